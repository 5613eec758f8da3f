//! Requests that wait: for a credential that nobody holds yet, and for a change of one or of the tree.
//!
//! All are bounded in time by their own deadline, and long polls in number as well ([`LongPolls`]).

use std::sync::Arc;
use std::time::Duration;

use seawall_broker::Unavailable;
use seawall_broker::google::{Credential, WantRef};
use seawall_core::cloud::CloudName;
use seawall_core::shutdown::Stop;
use seawall_core::{Lease, Moment};
use seawall_http::Refusal;
use seawall_protocols::google::{Alt, Hold, Known, Look, Server};
use seawall_server::client::ClientShares;
use seawall_server::response::{Later, Reply, Writing, Written};
use seawall_server::upstream::long_polls::{LongPolls, PollPlace};

use super::entitlement::{Entitlement, Federated};
use super::response::{Came, tag};
use super::{refusals, routes};
use crate::entitlements::Decided;
use crate::pod::PodCaller;
use crate::pod_events;

/// A credential and the form it is wanted in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) want: WantRef<'a>,
    pub(super) alt: Alt,
}

/// Waits for changes.
#[derive(Clone, Debug)]
pub(super) struct Waits(pub(super) LongPolls);

impl Waits {
    /// A place for one more of this caller.
    pub(super) fn enter(&self, shares: ClientShares<'_>) -> Result<PollPlace, Refusal> {
        self.0.enter(shares.long_polls)
    }

    /// Content of the tree once it differs from what the client knows, or the same at the end of the wait. It changes
    /// when the pod's ServiceAccount does.
    pub(super) fn text(
        &self,
        pod: &Arc<PodCaller>,
        look: Look,
        known: Known<'_>,
        hold: &Hold<'_>,
        place: PollPlace,
    ) -> Later {
        let (pod, known) = (pod.clone(), known.into_owned());
        let (timeout, mut stop) = (hold.timeout, self.0.stop.clone());
        Later::new(&routes::TREE, true, async move {
            let _place = place;
            // The timeout and the drain answer with the content that the client has.
            let over = async {
                tokio::select! { other = other_text(&pod, &look, &known) => Some(other), () = stop.begun() => None }
            };
            let came = tokio::time::timeout(timeout, over).await.ok().flatten();
            Box::new(came.unwrap_or(Came::Known(known))) as Box<dyn Reply>
        })
    }

    /// A credential once it differs from the one the client has, or the current one at the end of the wait.
    pub(super) fn lease(
        &self,
        pod: &Arc<PodCaller>,
        wanted: Wanted<'_>,
        hold: &Hold<'_>,
        place: PollPlace,
    ) -> Later {
        let (pod, mut stop) = (pod.clone(), self.0.stop.clone());
        let (want, alt) = (wanted.want.to_want(), wanted.alt);
        let (seen, timeout) = (hold.last_etag.as_deref().map(str::to_owned), hold.timeout);
        Later::new(routes::of(wanted.want), true, async move {
            let _place = place;
            let lease = next_lease(&pod, want.as_ref(), seen.as_deref(), timeout, &mut stop).await;
            let came = lease.map_or_else(Came::Refused, |lease| Came::issued(&want, alt, lease).tagged());
            Box::new(came) as Box<dyn Reply>
        })
    }
}

/// What the pod's present tree has where the client looked, once that is something else.
async fn other_text(pod: &PodCaller, look: &Look, known: &Known<'_>) -> Came {
    loop {
        let change = pod.change();
        match look_again(pod, look) {
            None => {}
            Some(Ok(now)) if now.etag == known.etag => {}
            Some(other) => return other.map_or_else(Came::Refused, Came::Known),
        }
        change.await;
    }
}

/// Nothing while it is not known what the pod may have.
fn look_again(pod: &PodCaller, look: &Look) -> Option<Result<Known<'static>, Refusal>> {
    match pod.entitlements().google() {
        Decided::Is(Entitlement::Federated(Federated { tree, .. }) | Entitlement::Refused(tree, _)) => {
            Some(tree.look(look).map(Known::into_owned))
        }
        Decided::Is(Entitlement::Passthrough) | Decided::Off => Some(Err(NO_MORE)),
        Decided::NotYet => None,
    }
}

/// How long a request that waited for a change waits for its outcome, once there is one.
const CHANGING: Duration = Duration::from_secs(1);

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
        // For a moment it is not, while another configuration takes the place of the one in force.
        let _ = tokio::time::timeout(CHANGING, pod.decided(CloudName::Google)).await;
    }
    let own = federated(pod)?;
    own.holder.lease(want).await.map_err(|unavailable| refused(&own, &unavailable))
}

/// What the pod may have now, if that is credentials of its own.
fn federated(pod: &PodCaller) -> Result<Federated, Refusal> {
    match pod.entitlements().google() {
        Decided::Is(Entitlement::Federated(own)) => Ok(own.clone()),
        Decided::Is(Entitlement::Passthrough | Entitlement::Refused(..)) | Decided::NotYet | Decided::Off => {
            Err(NO_MORE)
        }
    }
}

/// A request that waits at the real server for a change, which may be hours, is let wait there for as long as its pod may be there at
/// all: what comes of it are the node's own credentials. Others come soon and are answered as they were asked.
pub(super) fn while_let_through(pod: &Arc<PodCaller>, later: Later, server: Server) -> Later {
    if !later.is_poll {
        return later;
    }
    let (pod, Later { route, reply, .. }) = (pod.clone(), later);
    Later::new(route, true, async move {
        tokio::select! {
            reply = reply => reply,
            () = no_more_let_through(&pod) => Box::new(NoMore(server)),
        }
    })
}

async fn no_more_let_through(pod: &PodCaller) {
    loop {
        let change = pod.change();
        match pod.entitlements().google() {
            Decided::Is(Entitlement::Passthrough) | Decided::NotYet => {}
            Decided::Is(Entitlement::Federated(_) | Entitlement::Refused(..)) | Decided::Off => return,
        }
        change.await;
    }
}

/// [`NO_MORE`], in the words of this server.
struct NoMore(Server);

impl Reply for NoMore {
    fn write(self: Box<Self>, writing: &Writing<'_>, out: &mut Vec<u8>) -> Written {
        self.0.refusal(out, writing.frame, &NO_MORE, writing.request);
        Written::whole(NO_MORE.status)
    }
}

const NO_MORE: Refusal =
    Refusal::new(503, "account_changed", "What this pod may have has just changed; try again.");

/// A credential that nobody holds yet, for a request that came at `came`.
pub(super) fn cold_lease(own: &Federated, wanted: Wanted<'_>, came: Moment) -> Later {
    let (own, want, alt) = (own.clone(), wanted.want.to_want(), wanted.alt);
    Later::new(routes::of(wanted.want), false, async move {
        let came = match own.holder.lease_since(want.as_ref(), came).await {
            Ok(lease) => Came::issued(&want, alt, lease),
            Err(unavailable) => Came::Refused(refused(&own, &unavailable)),
        };
        Box::new(came) as Box<dyn Reply>
    })
}

/// The refusal, told to the pod's owner, too.
fn refused(own: &Federated, unavailable: &Unavailable) -> Refusal {
    let refusal = refusals::WORDS.of(unavailable);
    pod_events::unavailable(&own.complainer, unavailable, &refusal);
    refusal
}
