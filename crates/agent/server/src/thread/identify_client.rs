//! A request whose client is not known yet, or of a pod of which it is not decided yet what it may have: it waits for either.

use seawall_core::attestation::Ends;
use seawall_core::cloud::CloudName;
use std::time::Duration;

use super::FULL;
use super::connection_task::ActiveConnection;
use crate::client::{Client, ServedPod};
use crate::connection_table::State;

impl<P: ServedPod> ActiveConnection<P> {
    /// Waits until it is known who asks, and what it may have of a cloud; whoever is not known by then is nobody, and is told why. Who asks
    /// on a connection was decided once for all: a pod that is known waits for the cloud alone, and is not attested again (what the
    /// kernel notes of a connection is good for one look).
    pub(super) async fn settle(&self, cloud: CloudName, patience: Duration) -> Client<P> {
        let stream = self.socket.stream();
        let local = || stream.local_addr().ok();
        let ends = Ends { peer: self.peer, local: &local };
        let thread = &self.thread;
        let now = self.now();
        self.came.set(Some(now));
        self.waits.note(State::Busy, now);
        let callers = &thread.shared.callers;
        let known = self.who.borrow().caller.clone();
        if let Client::Pod(pod) = known {
            let decided = tokio::time::timeout(patience, pod.decided(cloud)).await;
            return decided.map_or_else(
                |_| Client::Nobody(callers.why_nobody(&ends, cloud)),
                |()| Client::Pod(pod.clone()),
            );
        }
        let is_stranger = thread.is_stranger(&self.who.borrow().tenant);
        let place = is_stranger.then(|| thread.unsettled.take(self.peer.ip()));
        if let Some(None) = place {
            thread.metrics.held_in_vain();
            return Client::Nobody(callers.why_nobody(&ends, cloud));
        }
        let settled = tokio::time::timeout(patience, async {
            match callers.currently_at(ends, cloud).await {
                Some(pod) => pod,
                None => {
                    let pod = callers.settled(ends, cloud).await;
                    thread.metrics.held_and_settled();
                    pod
                }
            }
        })
        .await;
        match settled {
            Ok(pod) if self.counts_for(&pod) => Client::Pod(pod),
            Ok(_) => Client::Nobody(FULL),
            Err(_) => {
                thread.metrics.held_in_vain();
                Client::Nobody(callers.why_nobody(&ends, cloud))
            }
        }
    }

    /// Counts the connection for this pod from now on. False where the pod has no room for it.
    fn counts_for(&self, pod: &P) -> bool {
        let thread = &self.thread;
        if self.who.borrow().tenant.id != pod.id() {
            let Some(permit) = thread.permit(pod.id(), pod.connections()) else { return false };
            thread.connections.borrow_mut().settle(self.key, pod.id(), permit);
            self.who.borrow_mut().tenant = thread.tenants.borrow_mut().pod(pod);
        }
        true
    }
}
