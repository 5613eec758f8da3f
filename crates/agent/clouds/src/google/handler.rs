//! One request in Google's dialect to one answer.
//!
//! What is no secret and must not be refused ([`Detection`]) is told to everybody. Everything else is answered from the
//! caller's own [`Entitlement`], which the resolver found and no request can choose.

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::google::{Want, WantRef};
use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use seawall_core::events::Complaint;
use seawall_http::{Frame, Refusal, RequestHead};
use seawall_protocols::google::federate::{NO_ACCOUNT, NO_IDENTITY};
use seawall_protocols::google::{Alt, Credential, Detection, Hold, Look, Server, Text, Tree, What};
use seawall_server::handler::{Asked, Dialect};
use seawall_server::replay_cache::Again;
use seawall_server::route;
use seawall_server::route::Route;
use seawall_server::upstream::long_polls::PollPlace;

use super::awaited_changes::{Waits, Wanted};
use super::entitlement::{Entitlement, Federated};
use super::passthrough::Passthrough;
use super::{awaited_changes, response, routes};
use crate::entitlements::Decided;
use crate::pod::{Client, PodCaller, Step};
use crate::pod_events;

/// Google's dialect on one traffic thread.
#[derive(Debug)]
pub(super) struct GoogleDialect {
    /// What everybody is told, whoever it is.
    detection: Detection,
    serves: Serves,
    waits: Waits,
    /// The way to the real metadata server: of everybody in `conceal`, else of those whom the configuration lets through.
    passthrough: Passthrough,
}

/// What is answered to those who are somebody.
#[derive(Clone, Debug)]
pub(super) enum Serves {
    /// Pods have credentials of their own; the readiness probe sees the node's tree, without an account.
    Federate { probe: Arc<Tree> },
    /// Requests go through a filter to the real metadata server.
    Conceal,
}

const ANYONE: Refusal =
    Refusal::new(403, "unknown_caller", "Credentials are given only to pods that are known.");

const PROBE: Refusal = Refusal::new(403, "probe", "The readiness probe holds no credentials.");

impl Dialect<PodCaller> for GoogleDialect {
    fn cloud(&self) -> CloudName {
        CloudName::Google
    }

    /// The metadata server's versions and what stands above them: a library asks `/` whether this is one.
    fn claims(&self, path: &str) -> bool {
        matches!(path, "/" | "/computeMetadata")
            || path.starts_with("/computeMetadata/")
            || path.starts_with("/0.1/")
    }

    fn goes_on_after(&self, method: &str) -> bool {
        matches!(method, "GET" | "HEAD")
    }

    /// The tightest of Go's clients takes 500 ms for an answer. Node's has 3 s for all its tries, with pauses of 0.1, 0.5 and
    /// 1.5 s between them: a longer wait would have it give up in the middle of its third, and show a timeout where it would have
    /// shown our sentence.
    fn patience(&self, head: &RequestHead<'_, '_>) -> Duration {
        // `gcloud-golang/0.1` is cloud.google.com/go/compute/metadata; the other is net/http.
        let is_go = |agent: &[u8]| {
            ["Go-http-client/", "gcloud-golang/"].iter().any(|known| agent.starts_with(known.as_bytes()))
        };
        let millis = if head.header("user-agent").is_some_and(is_go) { 400 } else { 500 };
        Duration::from_millis(millis)
    }

    fn answer(&self, caller: &Client, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
        let step = match (&self.serves, caller) {
            (_, Client::Nobody(refusal)) => self.detect(asked, out).ok_or(*refusal),
            (_, Client::Unsettled) => Ok(self.not_yet(asked, out)),
            (Serves::Federate { .. }, Client::Anyone) => Err(ANYONE),
            (Serves::Federate { .. }, Client::Pod(pod)) => self.federate(pod, asked, out),
            (Serves::Federate { probe }, Client::Probe) => self.look(probe, asked, out),
            (Serves::Conceal, Client::Pod(pod)) => {
                let later = self.passthrough.forward(asked.shares, asked.head);
                later.map(|later| Step::Later(awaited_changes::while_let_through(pod, later, self.server())))
            }
            (Serves::Conceal, _) => self.passthrough.forward(asked.shares, asked.head).map(Step::Later),
        };
        step.unwrap_or_else(|refusal| {
            self.refuse(&refusal, asked.frame, asked.request, out);
            Step::Answered { route: &route::REFUSED, status: refusal.status }
        })
    }

    fn refuse(&self, refusal: &Refusal, frame: &Frame<'_>, request: u64, out: &mut Vec<u8>) {
        self.server().refusal(out, frame, refusal, request);
    }
}

impl GoogleDialect {
    pub(super) fn new(serves: Serves, waits: Waits, passthrough: Passthrough) -> Self {
        Self { detection: Detection::default(), serves, waits, passthrough }
    }

    /// Which server's name the answers carry.
    fn server(&self) -> Server {
        match self.serves {
            Serves::Federate { .. } => Server::Gke,
            Serves::Conceal => Server::Vm,
        }
    }

    /// Tells whoever asks that this is a metadata server. A library that is refused this decides once and for all that there is
    /// none, and hides the reason; one that is told so goes on to ask for a token, and then shows its user our sentence.
    fn detect(&self, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Option<Step> {
        let status = self.write_text(&self.detection.answer(asked.head)?, asked.frame, out);
        Some(Step::Answered { route: &route::PROBE, status })
    }

    /// What is told to whoever asks, also while it is not known who does or what it may have.
    fn not_yet(&self, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
        self.detect(asked, out).unwrap_or(Step::NotYet)
    }

    fn federate(
        &self,
        pod: &Arc<PodCaller>,
        asked: Asked<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<Step, Refusal> {
        match pod.entitlements().google() {
            Decided::Is(Entitlement::Federated(own)) => self.own(pod, own, asked, out),
            Decided::Is(Entitlement::Passthrough) => {
                let later = self.passthrough.forward(asked.shares, asked.head)?;
                Ok(Step::Later(awaited_changes::while_let_through(pod, later, self.server())))
            }
            Decided::Is(Entitlement::Refused(tree, why)) => self.bare(pod, tree, *why, asked, out),
            Decided::NotYet => Ok(self.not_yet(asked, out)),
            // No listener speaks the dialect of a cloud that is off.
            Decided::Off => Err(ANYONE),
        }
    }

    fn own(
        &self,
        pod: &Arc<PodCaller>,
        own: &Federated,
        asked: Asked<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<Step, Refusal> {
        let query = own.tree.query(asked.head).inspect_err(|refusal| {
            if *refusal == NO_IDENTITY {
                pod_events::refused(&own.complainer, Complaint::RefusedByPolicy, refusal);
            }
        })?;
        let hold = self.place(query.hold, asked)?;
        let wanted = match &query.what {
            What::Text(text) => return self.text(pod, text, hold, asked, out),
            What::Credential(credential) => wanted(credential),
        };
        match hold {
            Some((hold, place)) => Ok(Step::Later(self.waits.lease(pod, wanted, &hold, place))),
            None => Ok(credential(own, wanted, asked, out)),
        }
    }

    /// The node's facts for a pod that has no account, and the reason where one is asked for.
    fn bare(
        &self,
        pod: &Arc<PodCaller>,
        tree: &Tree,
        why: Refusal,
        asked: Asked<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<Step, Refusal> {
        let query =
            tree.query(asked.head).map_err(|refusal| if refusal == NO_ACCOUNT { why } else { refusal })?;
        let hold = self.place(query.hold, asked)?;
        match query.what {
            What::Text(text) => self.text(pod, &text, hold, asked, out),
            What::Credential(_) => Err(why),
        }
    }

    /// A look at a tree that has no credentials.
    fn look(&self, tree: &Tree, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Result<Step, Refusal> {
        match tree.query(asked.head)?.what {
            What::Text(text @ Text::Known(_)) => {
                let status = self.write_text(&text, asked.frame, out);
                Ok(Step::Answered { route: &route::PROBE, status })
            }
            What::Text(Text::Redirect(_)) | What::Credential(_) => Err(PROBE),
        }
    }

    /// A place for a request that is to wait.
    fn place<'b>(
        &self,
        hold: Option<Hold<'b>>,
        asked: Asked<'_, '_, '_>,
    ) -> Result<Option<(Hold<'b>, PollPlace)>, Refusal> {
        hold.map(|hold| Ok((hold, self.waits.enter(asked.shares)?))).transpose()
    }

    /// Text that is known already, unless the client wants to wait for it to change.
    fn text(
        &self,
        pod: &Arc<PodCaller>,
        text: &Text<'_, '_>,
        hold: Option<(Hold<'_>, PollPlace)>,
        asked: Asked<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<Step, Refusal> {
        if let (Text::Known(known), Some((hold, place))) = (text, hold) {
            let look = Look::of(asked.head)?;
            return Ok(Step::Later(self.waits.text(pod, look, known.clone(), &hold, place)));
        }
        let status = self.write_text(text, asked.frame, out);
        Ok(Step::Answered { route: &routes::TREE, status })
    }

    /// Writes text, and gives its status.
    fn write_text(&self, text: &Text<'_, '_>, frame: &Frame<'_>, out: &mut Vec<u8>) -> u16 {
        match text {
            Text::Known(known) => {
                self.server().known(out, frame, known);
                200
            }
            Text::Redirect(redirect) => {
                self.server().redirect(out, frame, redirect);
                301
            }
        }
    }
}

fn wanted<'a>(credential: &'a Credential<'_, '_>) -> Wanted<'a> {
    match credential {
        Credential::AccessToken { scopes, alt } => {
            Wanted { want: WantRef::AccessToken { scopes: scopes.as_str() }, alt: *alt }
        }
        Credential::IdToken { audience, include_email } => {
            Wanted { want: WantRef::IdToken { audience, include_email: *include_email }, alt: Alt::Text }
        }
    }
}

/// A credential: from memory if a lease is held, else as soon as the broker has one.
fn credential(own: &Federated, wanted: Wanted<'_>, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
    let Some(route) = lend(own, wanted, asked.frame, asked.now, out) else {
        return Step::Later(awaited_changes::cold_lease(own, wanted, asked.came));
    };
    let question = || {
        let (tree, want, alt) = (own.tree.clone(), wanted.want.to_want(), wanted.alt);
        Box::new(CredentialAgain { tree, want, alt }) as Box<dyn Again<PodCaller>>
    };
    Step::Lent { route, question: asked.is_to_be_remembered.then(question) }
}

/// A credential from memory, if a lease is held.
fn lend(
    own: &Federated,
    wanted: Wanted<'_>,
    frame: &Frame<'_>,
    now: Moment,
    out: &mut Vec<u8>,
) -> Option<&'static Route> {
    let lease = own.holder.held(wanted.want, now)?;
    match wanted.want {
        WantRef::AccessToken { .. } => response::access_token(out, frame, &lease, now, wanted.alt, None),
        WantRef::IdToken { .. } => response::id_token(out, frame, &lease),
    }
    Some(routes::of(wanted.want))
}

/// A credential that was asked for before.
#[derive(Debug)]
struct CredentialAgain {
    /// By which the request was read.
    tree: Arc<Tree>,
    want: Want,
    alt: Alt,
}

impl Again<PodCaller> for CredentialAgain {
    /// From the caller's own holder, as it is now. Another tree reads the same path otherwise: whose account's it is, and which scopes
    /// are meant where none are named.
    fn answer(
        &self,
        caller: &Client,
        frame: &Frame<'_>,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<&'static Route> {
        let Client::Pod(pod) = caller else { return None };
        let entitlements = pod.entitlements();
        match entitlements.google() {
            Decided::Is(Entitlement::Federated(own)) if Arc::ptr_eq(&own.tree, &self.tree) => {
                lend(own, Wanted { want: self.want.as_ref(), alt: self.alt }, frame, now, out)
            }
            _ => None,
        }
    }
}
