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

use seawall_broker::{Credential, Fault, Holder, Unavailable};
use seawall_cloud::Refusal;
use seawall_cloud::gce::federate::Known;
use seawall_cloud::gce::query::Alt;
use seawall_cloud::gce::{AccessToken, ETag, Frame, Hold, respond};
use seawall_core::{Lease, Moment, Want, WantRef};

use crate::connections::{Cap, Permit};
use crate::forward::Forwarded;
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
    /// Appends the response; its status.
    pub(crate) fn write(self, frame: &Frame<'_>, request: u64, now: Moment, out: &mut Vec<u8>) -> u16 {
        match self {
            Self::AccessToken(lease, alt, tag) => access_token(out, frame, &lease, now, alt, tag),
            Self::IdToken(lease) => id_token(out, frame, &lease),
            Self::Known(known) => respond::known(out, frame, &known),
            Self::Forwarded(answer) => {
                let headers = answer.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
                respond::forwarded(out, frame, answer.status, headers, &answer.body);
                return answer.status;
            }
            Self::Refused(refusal) => {
                respond::refusal(out, frame, &refusal, request);
                return refusal.status;
            }
        }
        200
    }
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
pub(crate) struct PollPlace(#[expect(dead_code, reason = "held for its drop")] (Permit, Option<Permit>));

impl LongPolls {
    const FULL: Refusal =
        Refusal::new(503, "long_polls", "Too many requests are waiting for a change; try again shortly.");

    /// A place for one more, or 503.
    pub(crate) fn enter(&self, own: Option<&Arc<Cap>>) -> Result<PollPlace, Refusal> {
        let own = own.map(|cap| cap.take(self.most_per_pod).ok_or(Self::FULL)).transpose()?;
        let all = self.all.take(self.most).ok_or(Self::FULL)?;
        Ok(PollPlace((all, own)))
    }

    /// The same content at the end of the wait: nothing in this tree changes while the agent runs.
    pub(crate) fn unchanging(&self, known: Known<'_>, hold: &Hold<'_>, place: PollPlace) -> Later {
        let known = Known { body: Cow::Owned(known.body.into_owned()), ..known };
        let (timeout, mut stop) = (hold.timeout, self.stop.clone());
        let outcome = async move {
            let _place = place;
            // Ended by the timeout or by the drain, whichever comes first; both answer with the current content.
            let _ = tokio::time::timeout(timeout, stop.begun()).await;
            Outcome::Known(known)
        };
        Later { route: Route::Tree, is_poll: true, outcome: Box::pin(outcome) }
    }

    /// A credential once it differs from the one the client has, or the current one at the end of the wait.
    pub(crate) fn lease(
        &self,
        holder: &Arc<Holder>,
        wanted: Wanted<'_>,
        hold: &Hold<'_>,
        place: PollPlace,
    ) -> Later {
        let (holder, mut stop) = (holder.clone(), self.stop.clone());
        let (want, alt) = (wanted.want.to_want(), wanted.alt);
        let (seen, timeout) = (hold.last_etag.as_deref().map(str::to_owned), hold.timeout);
        let route = Route::of(want.as_ref());
        let outcome = async move {
            let _place = place;
            match next_lease(&holder, want.as_ref(), seen.as_deref(), timeout, &mut stop).await {
                Ok(lease) => {
                    let tag = tag(&lease);
                    issued(&want, alt, lease, Some(tag))
                }
                Err(unavailable) => Outcome::Refused(refusal(&unavailable)),
            }
        };
        Later { route, is_poll: true, outcome: Box::pin(outcome) }
    }
}

/// Waits for another lease than the one whose tag was seen. The lease is looked up again after the wait, and not kept over
/// it: while the cloud is down it may have expired meanwhile.
async fn next_lease(
    holder: &Holder,
    want: WantRef<'_>,
    seen: Option<&str>,
    timeout: Duration,
    stop: &mut Stop,
) -> Result<Arc<Lease<Credential>>, Unavailable> {
    let first = holder.lease(want).await?;
    let mut changes = holder.changes(want);
    if seen.is_none_or(|seen| tag(&first).matches(seen)) {
        let over = async {
            tokio::select! { () = changes.changed() => {}, () = stop.begun() => {} }
        };
        let _ = tokio::time::timeout(timeout, over).await;
    }
    holder.lease(want).await
}

/// A credential that nobody holds yet.
pub(crate) fn cold_lease(holder: &Arc<Holder>, wanted: Wanted<'_>) -> Later {
    let (holder, want, alt) = (holder.clone(), wanted.want.to_want(), wanted.alt);
    let route = Route::of(want.as_ref());
    let outcome = async move {
        match holder.lease(want.as_ref()).await {
            Ok(lease) => issued(&want, alt, lease, None),
            Err(unavailable) => Outcome::Refused(refusal(&unavailable)),
        }
    };
    Later { route, is_poll: false, outcome: Box::pin(outcome) }
}

fn issued(want: &Want, alt: Alt, lease: Arc<Lease<Credential>>, tag: Option<ETag>) -> Outcome {
    match want {
        Want::AccessToken { .. } => Outcome::AccessToken(lease, alt, tag),
        Want::IdToken { .. } => Outcome::IdToken(lease),
    }
}

/// The tag of a token's text. A hash of 64 bits over a secret of a thousand and more gives nothing of it away, and
/// it goes only to the pod that has the token.
fn tag(lease: &Lease<Credential>) -> ETag {
    ETag::of(lease.value.text().as_bytes())
}

/// What a pod is told when there is no credential, with the status its SDK acts rightly on (SDK study, section 4.4): 503 is
/// tried again, 403 and 404 are final. 429 is never sent: Go's client does not try it again.
fn refusal(unavailable: &Unavailable) -> Refusal {
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
    const THROTTLED: Refusal = Refusal::new(
        503,
        "upstream_throttled",
        "Google asks for fewer requests right now; try again shortly.",
    );
    const UPSTREAM: Refusal =
        Refusal::new(503, "upstream_down", "Google cannot be asked right now; try again shortly.");
    match unavailable {
        Unavailable::NoAccount => NO_ACCOUNT,
        Unavailable::TooMany { .. } => TOO_MANY,
        Unavailable::Slow => SLOW,
        Unavailable::Failed(error) => match error.fault {
            Fault::Denied => DENIED,
            Fault::Rejected => REJECTED,
            Fault::Subject => SUBJECT,
            Fault::Throttled => THROTTLED,
            Fault::Upstream => UPSTREAM,
        },
    }
}
