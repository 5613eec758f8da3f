//! Answers that take time: a cold lease, a long poll, the real metadata server.
//!
//! Each is a future that the connection's own task awaits; the traffic thread goes on with everybody else. All are
//! bounded in time by their own deadline, and long polls in number as well.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use seawall_broker::google::{Credential, Want, WantRef};
use seawall_broker::{Fault, Unavailable};
use seawall_cloud::Refusal;
use seawall_cloud::gce::federate::Known;
use seawall_cloud::gce::query::Alt;
use seawall_cloud::gce::respond::Length;
use seawall_cloud::gce::{AccessToken, ETag, Frame, Hold, What, respond};
use seawall_core::{Lease, Moment, share};
use seawall_wire::request::slots;
use seawall_wire::{Parsed, Version, parse_request};

use crate::callers::{Federated, PodCaller, Standing};
use crate::connections::{Cap, Permit};
use crate::forward::{Forwarded, Rest};
use crate::lifecycle::Stop;
use crate::metrics::Route;

/// A credential and the form it is wanted in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) want: WantRef<'a>,
    pub(crate) alt: Alt,
}

/// An answer to come.
pub(crate) struct Later {
    pub(crate) route: Route,
    /// Whether it waits for a change. Then a client that ends its side is taken for gone, because its place is worth
    /// more than its answer. Any other answer comes soon, and whoever ended only the sending side still reads it.
    pub(crate) is_poll: bool,
    pub(crate) outcome: Pin<Box<dyn Future<Output = Outcome>>>,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Later({:?})", self.route)
    }
}

/// What came.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// An access token; its tag goes along where the client polls for changes.
    AccessToken(Arc<Lease<Credential>>, Alt, Option<ETag>),
    /// An identity token.
    IdToken(Arc<Lease<Credential>>),
    /// Text of the tree, after a long poll.
    Known(Known<'static>),
    /// The real server's answer.
    Forwarded(Forwarded),
    /// None.
    Refused(Refusal),
}

impl Outcome {
    /// With the tag of the access token, for a client that polls for changes.
    fn tagged(self) -> Self {
        match self {
            Self::AccessToken(lease, alt, _) => {
                let tag = tag(&lease);
                Self::AccessToken(lease, alt, Some(tag))
            }
            other => other,
        }
    }

    /// Appends the response, or its beginning.
    pub(crate) fn write(self, frame: &Frame<'_>, request: u64, now: Moment, out: &mut Vec<u8>) -> Written {
        let status = match self {
            Self::AccessToken(lease, alt, tag) => {
                access_token(out, frame, &lease, now, alt, tag);
                200
            }
            Self::IdToken(lease) => {
                id_token(out, frame, &lease);
                200
            }
            Self::Known(known) => {
                respond::known(out, frame, &known);
                200
            }
            Self::Forwarded(answer) => return forwarded(answer, frame, out),
            Self::Refused(refusal) => {
                respond::refusal(out, frame, &refusal, request);
                refusal.status
            }
        };
        Written { status, rest: None }
    }
}

/// What was written of an answer, and what is still to come.
pub(crate) struct Written {
    pub(crate) status: u16,
    /// The rest of the body, and how its end is told.
    pub(crate) rest: Option<(Box<Rest>, Length)>,
}

fn forwarded(answer: Forwarded, frame: &Frame<'_>, out: &mut Vec<u8>) -> Written {
    let Forwarded { status, headers, body, rest } = answer;
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let Some(rest) = rest else {
        respond::forwarded(out, frame, status, headers, &body);
        return Written { status, rest: None };
    };
    let length = match (rest.length, frame.version) {
        (Some(length), _) => Length::Known(length),
        (None, Version::Http11) => Length::Chunked,
        (None, Version::Http10) => Length::UntilClose,
    };
    let keep_alive = frame.keep_alive && length != Length::UntilClose;
    respond::forwarded_head(out, &Frame { keep_alive, ..*frame }, status, headers, length);
    if frame.head_only {
        return Written { status, rest: None };
    }
    match length {
        Length::Chunked => respond::chunk(out, &body),
        Length::Known(_) | Length::UntilClose => out.extend_from_slice(&body),
    }
    Written { status, rest: Some((rest, length)) }
}

/// Writes an access token with the life it truly has left.
pub(crate) fn access_token(
    out: &mut Vec<u8>,
    frame: &Frame<'_>,
    lease: &Lease<Credential>,
    now: Moment,
    alt: Alt,
    etag: Option<ETag>,
) {
    // Rounded down: a client must never believe in a second that is not there.
    let expires_in = lease.remaining(now).as_secs();
    respond::token(out, frame, &AccessToken { text: lease.value.text(), expires_in, alt, etag });
}

/// Writes an identity token.
pub(crate) fn id_token(out: &mut Vec<u8>, frame: &Frame<'_>, lease: &Lease<Credential>) {
    respond::id_token(out, frame, lease.value.text());
}

/// Bounds on requests that wait for a change: they are cheap, but a pod could open them without end.
#[derive(Clone, Debug)]
pub(crate) struct LongPolls {
    pub(crate) all: Arc<Cap>,
    pub(crate) most: u32,
    pub(crate) most_per_pod: u32,
    /// A drain answers them with what there is.
    pub(crate) stop: Stop,
}

/// The place of one long poll.
#[derive(Debug)]
pub(crate) struct PollPlace(#[expect(dead_code, reason = "held for its drop")] (Permit, Permit));

impl LongPolls {
    const FULL: Refusal =
        Refusal::new(503, "long_polls", "Too many requests are waiting for a change; try again shortly.");

    /// A place for one more of a caller that has `own`, or 503. Within its cap a caller may have as many as it leaves free
    /// ([`seawall_core::share`]).
    pub(crate) fn enter(&self, own: &Arc<Cap>) -> Result<PollPlace, Refusal> {
        let free = self.most.saturating_sub(self.all.open());
        if !share::may_take(own.open().into(), free.into()) {
            return Err(Self::FULL);
        }
        let own = own.take(self.most_per_pod).ok_or(Self::FULL)?;
        let all = self.all.take(self.most).ok_or(Self::FULL)?;
        Ok(PollPlace((all, own)))
    }

    /// Content of the tree once it differs from what the client knows, or the same at the end of the wait. It changes
    /// when the pod's ServiceAccount does.
    pub(crate) fn text(
        &self,
        pod: &Arc<PodCaller>,
        target: &str,
        known: Known<'_>,
        hold: &Hold<'_>,
        place: PollPlace,
    ) -> Later {
        let known = owned(known);
        let (pod, target) = (pod.clone(), target.to_owned());
        let (timeout, mut stop) = (hold.timeout, self.stop.clone());
        let outcome = async move {
            let _place = place;
            let other = async {
                loop {
                    let change = pod.change();
                    match look_again(&pod, &target) {
                        Ok(now) if now.etag == known.etag => {}
                        other => return other.map_or_else(Outcome::Refused, Outcome::Known),
                    }
                    change.await;
                }
            };
            // The timeout and the drain answer with the content that the client has.
            let over = async {
                tokio::select! { other = other => Some(other), () = stop.begun() => None }
            };
            tokio::time::timeout(timeout, over).await.ok().flatten().unwrap_or(Outcome::Known(known))
        };
        Later { route: Route::Tree, is_poll: true, outcome: Box::pin(outcome) }
    }

    /// A credential once it differs from the one the client has, or the current one at the end of the wait.
    pub(crate) fn lease(
        &self,
        pod: &Arc<PodCaller>,
        wanted: Wanted<'_>,
        hold: &Hold<'_>,
        place: PollPlace,
    ) -> Later {
        let (pod, mut stop) = (pod.clone(), self.stop.clone());
        let (want, alt) = (wanted.want.to_want(), wanted.alt);
        let (seen, timeout) = (hold.last_etag.as_deref().map(str::to_owned), hold.timeout);
        let route = Route::of(want.as_ref());
        let outcome = async move {
            let _place = place;
            match next_lease(&pod, want.as_ref(), seen.as_deref(), timeout, &mut stop).await {
                Ok(lease) => issued(&want, alt, lease).tagged(),
                Err(refusal) => Outcome::Refused(refusal),
            }
        };
        Later { route, is_poll: true, outcome: Box::pin(outcome) }
    }
}

/// Waits for another lease than the one whose tag was seen. The lease is looked up again after the wait, and not kept over
/// it: while the cloud is down it may have expired meanwhile, and the account may be another one by then.
async fn next_lease(
    pod: &PodCaller,
    want: WantRef<'_>,
    seen: Option<&str>,
    timeout: Duration,
    stop: &mut Stop,
) -> Result<Arc<Lease<Credential>>, Refusal> {
    let replaced = pod.change();
    let own = federated(pod)?;
    let first = own.holder.lease(want).await.map_err(|unavailable| refused(&own, &unavailable))?;
    let mut changes = own.holder.changes(want);
    if seen.is_none_or(|seen| tag(&first).matches(seen)) {
        let over = async {
            tokio::select! {
                () = changes.changed() => {}
                () = replaced => {}
                () = stop.begun() => {}
            }
        };
        let _ = tokio::time::timeout(timeout, over).await;
    }
    let own = federated(pod)?;
    own.holder.lease(want).await.map_err(|unavailable| refused(&own, &unavailable))
}

/// What the pod may have now, if that is credentials of its own.
fn federated(pod: &PodCaller) -> Result<Federated, Refusal> {
    match &**pod.standing() {
        Standing::Federated(own) => Ok(own.clone()),
        _ => Err(NO_MORE),
    }
}

const NO_MORE: Refusal =
    Refusal::new(503, "account_changed", "What this pod may have has just changed; try again.");

/// What the pod's present tree has at this target.
fn look_again(pod: &PodCaller, target: &str) -> Result<Known<'static>, Refusal> {
    let standing = pod.standing();
    let (Standing::Federated(Federated { tree, .. }) | Standing::Refused(tree, _)) = &**standing else {
        return Err(NO_MORE);
    };
    // Asked as the client did; what it sent was read and accepted once already.
    let request = format!("GET {target} HTTP/1.1\r\nHost: metadata\r\nMetadata-Flavor: Google\r\n\r\n");
    let mut slots = slots();
    match parse_request(request.as_bytes(), &mut slots, &seawall_wire::Limits::default()) {
        Ok(Parsed::Complete(head, _)) => match tree.query(&head)?.what {
            What::Known(known) => Ok(owned(known)),
            _ => Err(NO_MORE),
        },
        Ok(Parsed::Partial) | Err(_) => Err(NO_MORE),
    }
}

fn owned(known: Known<'_>) -> Known<'static> {
    Known { body: Cow::Owned(known.body.into_owned()), ..known }
}

/// A credential that nobody holds yet, for a request that came at `came`.
pub(crate) fn cold_lease(own: &Federated, wanted: Wanted<'_>, came: Moment) -> Later {
    let (own, want, alt) = (own.clone(), wanted.want.to_want(), wanted.alt);
    let route = Route::of(want.as_ref());
    let outcome = async move {
        match own.holder.lease_since(want.as_ref(), came).await {
            Ok(lease) => issued(&want, alt, lease),
            Err(unavailable) => Outcome::Refused(refused(&own, &unavailable)),
        }
    };
    Later { route, is_poll: false, outcome: Box::pin(outcome) }
}

/// The refusal, told to the pod's owner, too.
fn refused(own: &Federated, unavailable: &Unavailable) -> Refusal {
    let refusal = refusal(unavailable);
    own.complainer.unavailable(unavailable, &refusal);
    refusal
}

fn issued(want: &Want, alt: Alt, lease: Arc<Lease<Credential>>) -> Outcome {
    match want {
        Want::AccessToken { .. } => Outcome::AccessToken(lease, alt, None),
        Want::IdToken { .. } => Outcome::IdToken(lease),
    }
}

/// The tag of a token's text. A hash of 64 bits over a secret of a thousand and more gives nothing of it away, and
/// it goes only to the pod that has the token.
fn tag(lease: &Lease<Credential>) -> ETag {
    ETag::of(lease.value.text().as_bytes())
}

const SHORT_LIVED: Refusal = Refusal::new(
    503,
    "upstream_short_lived",
    "Google issued this credential for so short a time that it had ended when it came.",
);

/// What a pod is told when there is no credential, with the status its SDK acts rightly on (SDK study, section 4.4): 503 is
/// tried again, 403 and 404 are final. 429 is never sent: Go's client does not try it again.
pub(crate) fn refusal(unavailable: &Unavailable) -> Refusal {
    const NO_ACCOUNT: Refusal = Refusal::new(
        404,
        "no_account",
        "This pod acts as no Google service account, and identity tokens are issued to service accounts only.",
    );
    const TOO_MANY: Refusal = Refusal::new(
        503,
        "too_many_new",
        "This pod asks for too many different credentials at once; try again shortly.",
    );
    const SLOW: Refusal = Refusal::new(
        503,
        "upstream_slow",
        "The credential is being fetched and takes long; try again shortly.",
    );
    const DENIED: Refusal = Refusal::new(
        403,
        "denied",
        "Google refuses this credential to this pod's Kubernetes ServiceAccount.",
    );
    const REJECTED: Refusal = Refusal::new(
        403,
        "rejected",
        "Google rejects the exchange; the agent's or the account's configuration is wrong.",
    );
    const SUBJECT: Refusal = Refusal::new(
        503,
        "subject",
        "This pod's Kubernetes token cannot be had right now; try again shortly.",
    );
    const SUBJECT_REFUSED: Refusal = Refusal::new(
        403,
        "subject_refused",
        "The API server gives no token for this pod: its ServiceAccount is gone, or the agent may not ask.",
    );
    const THROTTLED: Refusal = Refusal::new(
        503,
        "upstream_throttled",
        "Google asks for fewer requests right now; try again shortly.",
    );
    const UPSTREAM: Refusal =
        Refusal::new(503, "upstream_down", "Google cannot be asked right now; try again shortly.");
    match unavailable {
        Unavailable::NotEntitled(_) => NO_ACCOUNT,
        Unavailable::TooMany { .. } => TOO_MANY,
        Unavailable::Slow => SLOW,
        Unavailable::Failed(error) => match error.fault {
            Fault::Denied => DENIED,
            Fault::Rejected => REJECTED,
            Fault::Subject => SUBJECT,
            Fault::SubjectRefused => SUBJECT_REFUSED,
            Fault::Throttled => THROTTLED,
            Fault::Upstream => UPSTREAM,
            Fault::ShortLived => SHORT_LIVED,
        },
    }
}
