//! One request to one answer. This is the whole decision; everything it calls is a pure function or a read of memory.
//!
//! The order is the argument: who calls was decided when the connection was accepted; the dialect canonicalises the path
//! once and refuses by default; only then is a lease looked up, under the caller's own holder, which cannot
//! reach anyone else's. What is no secret and must not be refused ([`Detection`]) is told to everybody. A request that needs to wait (a cold lease, a long poll, the real server) becomes a
//! [`Later`] and is the caller's task's business, never this thread's.

use std::sync::Arc;

use seawall_broker::google::WantRef;
use seawall_cloud::Refusal;
use seawall_cloud::gce::federate::{NO_ACCOUNT, NO_IDENTITY};
use seawall_cloud::gce::query::Alt;
use seawall_cloud::gce::{Detection, Frame, Hold, Server, Tree, What, respond};
use seawall_cluster::Complaint;
use seawall_core::Moment;
use seawall_wire::RequestHead;

use crate::callers::{Caller, Federated, PodCaller, Standing};
use crate::forward::Forwarder;
use crate::later::{self, Later, LongPolls, PollPlace, Wanted};
use crate::metrics::Route;
use crate::tenants::Tenant;

/// How this agent answers; one per traffic thread.
#[derive(Debug)]
pub(crate) struct Service {
    /// What everybody is told, whoever it is.
    detection: Detection,
    mode: Mode,
}

/// What is answered to those who are somebody.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Pods have credentials of their own.
    Federate {
        /// What the readiness probe sees: the node's tree, without an account.
        probe: Arc<Tree>,
        /// Bounds on requests that wait for a change.
        long_polls: LongPolls,
        /// The way to the real metadata server, for those whom the configuration lets through.
        passthrough: Forwarder,
    },
    /// Requests go through a filter to the real metadata server.
    Conceal(Forwarder),
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Step {
    /// The answer stands in the buffer.
    Answered { route: Route, status: u16 },
    /// The answer takes time.
    Later(Later),
}

/// One request, its caller and its moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a, 'h, 'b> {
    pub(crate) head: &'a RequestHead<'h, 'b>,
    pub(crate) frame: &'a Frame<'a>,
    /// Whose shares it takes.
    pub(crate) tenant: &'a Tenant,
    pub(crate) request: u64,
    /// When it came: earlier than `now` if it had to wait until it was known who asks.
    pub(crate) came: Moment,
    pub(crate) now: Moment,
}

const ANYONE: Refusal =
    Refusal::new(403, "unknown_caller", "Credentials are given only to pods that are known.");

/// Between the end of a pod and the end of its connections.
const GONE: Refusal =
    Refusal::new(503, "pod_gone", "The pod of this connection is gone, or is not known yet.");

const PROBE: Refusal = Refusal::new(403, "probe", "The readiness probe holds no credentials.");

impl Service {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { detection: Detection::default(), mode }
    }

    /// Which server's name the answers carry.
    pub(crate) fn server(&self) -> Server {
        match self.mode {
            Mode::Federate { .. } => Server::Gke,
            Mode::Conceal(_) => Server::Vm,
        }
    }

    /// Whether this is answered to whoever asks, so that nobody need wait until it is known who does.
    pub(crate) fn is_anybodys(&self, head: &RequestHead<'_, '_>) -> bool {
        self.detection.answer(head).is_some()
    }

    /// Answers into `out`, or says what has to be waited for.
    pub(crate) fn answer(&self, caller: &Caller, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
        let step = match (&self.mode, caller) {
            (_, Caller::Nobody(refusal)) => self.detect(asked, out).ok_or(*refusal),
            (_, Caller::Unsettled) => self.detect(asked, out).ok_or(GONE),
            (_, caller) if caller.is_gone() => Err(GONE),
            (Mode::Federate { .. }, Caller::Anyone) => Err(ANYONE),
            (Mode::Federate { long_polls, passthrough, .. }, Caller::Pod(pod)) => match &**pod.standing() {
                Standing::Federated(own) => federate(pod, own, long_polls, asked, out),
                Standing::Passthrough => passthrough.forward(asked.tenant, asked.head).map(Step::Later),
                Standing::Refused(tree, why) => bare(pod, tree, *why, long_polls, asked, out),
                Standing::Pending => Err(GONE),
            },
            (Mode::Federate { probe, .. }, Caller::Probe) => look(probe, asked, out),
            (Mode::Conceal(forwarder), _) => forwarder.forward(asked.tenant, asked.head).map(Step::Later),
        };
        step.unwrap_or_else(|refusal| {
            respond::refusal(out, asked.frame, &refusal, asked.request);
            Step::Answered { route: Route::Refused, status: refusal.status }
        })
    }

    /// Tells whoever asks that this is a metadata server. A library that is refused this decides once and for all that there is
    /// none, and hides the reason; one that is told so goes on to ask for a token, and then shows its user our sentence.
    fn detect(&self, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Option<Step> {
        let status = match self.detection.answer(asked.head)? {
            What::Known(known) => {
                respond::known(out, asked.frame, &known);
                200
            }
            What::Redirect(redirect) => {
                respond::redirect(out, asked.frame, &redirect);
                301
            }
            What::AccessToken { .. } | What::IdToken { .. } => return None,
        };
        Some(Step::Answered { route: Route::Probe, status })
    }
}

fn federate(
    pod: &Arc<PodCaller>,
    own: &Federated,
    long_polls: &LongPolls,
    asked: Asked<'_, '_, '_>,
    out: &mut Vec<u8>,
) -> Result<Step, Refusal> {
    let query = own.tree.query(asked.head).inspect_err(|refusal| {
        if *refusal == NO_IDENTITY {
            own.complainer.refused(Complaint::RefusedByPolicy, refusal);
        }
    })?;
    let hold = match query.hold {
        Some(hold) => Some((hold, long_polls.enter(&asked.tenant.long_polls)?)),
        None => None,
    };
    let wanted = match &query.what {
        What::AccessToken { scopes, alt } => {
            Wanted { want: WantRef::AccessToken { scopes: scopes.as_str() }, alt: *alt }
        }
        What::IdToken { audience, include_email } => {
            Wanted { want: WantRef::IdToken { audience, include_email: *include_email }, alt: Alt::Text }
        }
        What::Known(_) | What::Redirect(_) => return Ok(text(pod, query.what, hold, long_polls, asked, out)),
    };
    match hold {
        Some((hold, place)) => Ok(Step::Later(long_polls.lease(pod, wanted, &hold, place))),
        None => Ok(credential(own, wanted, asked, out)),
    }
}

/// The node's facts for a pod that has no account, and the reason where one is asked for.
fn bare(
    pod: &Arc<PodCaller>,
    tree: &Tree,
    why: Refusal,
    long_polls: &LongPolls,
    asked: Asked<'_, '_, '_>,
    out: &mut Vec<u8>,
) -> Result<Step, Refusal> {
    let query =
        tree.query(asked.head).map_err(|refusal| if refusal == NO_ACCOUNT { why } else { refusal })?;
    let hold = match query.hold {
        Some(hold) => Some((hold, long_polls.enter(&asked.tenant.long_polls)?)),
        None => None,
    };
    Ok(text(pod, query.what, hold, long_polls, asked, out))
}

/// A credential: from memory if a lease is held, else as soon as the broker has one.
fn credential(own: &Federated, wanted: Wanted<'_>, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
    let Some(lease) = own.holder.held(wanted.want, asked.now) else {
        return Step::Later(later::cold_lease(own, wanted, asked.came));
    };
    match wanted.want {
        WantRef::AccessToken { .. } => {
            later::access_token(out, asked.frame, &lease, asked.now, wanted.alt, None);
        }
        WantRef::IdToken { .. } => later::id_token(out, asked.frame, &lease),
    }
    Step::Answered { route: Route::of(wanted.want), status: 200 }
}

/// Text that is known already, unless the client wants to wait for it to change.
fn text(
    pod: &Arc<PodCaller>,
    what: What<'_, '_>,
    hold: Option<(Hold<'_>, PollPlace)>,
    long_polls: &LongPolls,
    asked: Asked<'_, '_, '_>,
    out: &mut Vec<u8>,
) -> Step {
    match (what, hold) {
        (What::Known(known), Some((hold, place))) => {
            Step::Later(long_polls.text(pod, asked.head.target, known, &hold, place))
        }
        (What::Redirect(redirect), _) => {
            respond::redirect(out, asked.frame, &redirect);
            Step::Answered { route: Route::Tree, status: 301 }
        }
        (What::Known(known), None) => {
            respond::known(out, asked.frame, &known);
            Step::Answered { route: Route::Tree, status: 200 }
        }
        // Credentials were answered before; naming them here keeps the match whole without a panic.
        (What::AccessToken { .. } | What::IdToken { .. }, _) => {
            respond::refusal(out, asked.frame, &PROBE, asked.request);
            Step::Answered { route: Route::Refused, status: PROBE.status }
        }
    }
}

/// A look at a tree that has no credentials.
fn look(tree: &Tree, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Result<Step, Refusal> {
    match tree.query(asked.head)?.what {
        What::Known(known) => {
            respond::known(out, asked.frame, &known);
            Ok(Step::Answered { route: Route::Probe, status: 200 })
        }
        _ => Err(PROBE),
    }
}
