//! Waits until the client of a request is identified and its entitlements are decided.

use seawall_core::attestation::ConnectionEnds;
use seawall_core::cloud::CloudName;
use std::time::Duration;

use super::GONE;
use super::connection_task::ConnectionOnThread;
use crate::connection_client::{Client, ServedPod};
use crate::connection_table::ConnectionState;

impl<P: ServedPod> ConnectionOnThread<P> {
    /// Waits until the client is known and its entitlements at a cloud are decided, but at most for `patience`.
    /// If the wait takes longer than `patience`, returns a refusal with the reason. If the client is already identified, the
    /// function waits only for the client's entitlements. The function never identifies a connection twice, because the kernel
    /// reports the owner of each connection only once.
    pub(super) async fn identify_client(&self, cloud: CloudName, patience: Duration) -> Client<P> {
        let stream = self.socket.stream();
        let local = || stream.local_addr().ok();
        let ends = ConnectionEnds { peer: self.peer, read_local_address: &local };
        let thread = &self.thread;
        let now = self.now();
        self.waiting_request_received_at.set(Some(now));
        self.connection_state.set_state(ConnectionState::Busy, now);
        let callers = &thread.shared.resolver;
        let known = self.client.borrow().identity.clone();
        if let Client::Pod(pod) = known {
            let decided = tokio::time::timeout(patience, pod.wait_for_entitlements(cloud)).await;
            return decided.map_or_else(
                |_| Client::Refused(callers.explain_refusal(&ends, cloud)),
                |()| Client::Pod(pod.clone()),
            );
        }
        let is_stranger = thread.is_unknown_client(&self.client.borrow().tenant);
        let place = is_stranger.then(|| thread.unidentified_waits.take(self.peer.ip()));
        if let Some(None) = place {
            thread.metrics.record_unidentified_wait();
            return Client::Refused(callers.explain_refusal(&ends, cloud));
        }
        let settled = tokio::time::timeout(patience, async {
            match callers.attest_pod(ends, cloud).await {
                Some(pod) => pod,
                None => {
                    let pod = callers.wait_for_pod(ends, cloud).await;
                    thread.metrics.record_identified_wait();
                    pod
                }
            }
        })
        .await;
        match settled {
            Ok(pod) if self.counts_for(&pod) => Client::Pod(pod),
            Ok(_) => Client::Refused(GONE),
            Err(_) => {
                thread.metrics.record_unidentified_wait();
                Client::Refused(callers.explain_refusal(&ends, cloud))
            }
        }
    }

    /// Counts the connection toward this pod from now on. Returns false if the pod was deleted.
    /// If the pod has reached its connection limit, the connection becomes a guest and ends after its next answer.
    fn counts_for(&self, pod: &P) -> bool {
        let thread = &self.thread;
        if self.client.borrow().tenant.id != pod.id() {
            let own = pod.connections();
            let kept = thread.has_share_left(own).then(|| own.take(thread.client_limits.get().connections));
            let Some(permit) = kept.flatten().or_else(|| {
                self.is_guest.set(true);
                own.take(u32::MAX)
            }) else {
                return false;
            };
            thread.connections.borrow_mut().reassign(self.key, pod.id(), permit);
            self.client.borrow_mut().tenant = thread.tenants.borrow_mut().tenant_of_pod(pod);
        }
        true
    }
}
