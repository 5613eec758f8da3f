//! Test helpers for dialects: the answers of a thread to given bytes. [`crate::testing`] creates the thread.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use seawall_core::cloud::CloudName;

use super::TrafficThread;
use super::request::{NextAction, RequestOrigin};
use crate::connection_client::{Client, ServedPod};
use crate::handler::ListenerDialects;

/// The outcome of a turn.
#[derive(Debug)]
pub struct TestTurnOutcome {
    /// The answers.
    pub answer_text: String,
    /// The number of processed bytes.
    pub consumed_bytes: usize,
    /// The next action of the connection.
    pub next_action: TestNextAction,
}

/// The next action of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum TestNextAction {
    /// The connection waits for more bytes.
    Read,
    /// The connection parses the remaining bytes.
    ReadBuffered,
    /// The connection waits for an answer that is not ready yet.
    Deferred,
    /// The connection waits for the client's identity or the pod's entitlements at this cloud, at most for this duration.
    AwaitIdentity(CloudName, Duration),
    /// The connection closes.
    Close,
    /// The connection closes after the client has had time to read the refusal.
    Linger,
}

impl<P: ServedPod> TrafficThread<P> {
    /// Answers these bytes from a client that uses the shares of `pod`.
    pub(crate) fn answer_for_test(
        &self,
        dialects: &Rc<ListenerDialects<P>>,
        client: &Client<P>,
        pod: &P,
        peer: IpAddr,
        bytes: &[u8],
    ) -> TestTurnOutcome {
        let (now, mut out) = (self.shared.clock.now(), Vec::new());
        let tenant = self.tenants.borrow_mut().tenant_of_pod(pod);
        let asker = RequestOrigin {
            dialects,
            client,
            tenant: &tenant,
            peer_ip: peer,
            received_at: now,
            is_guest: false,
        };
        let batch = self.answer_requests(asker, bytes, now, &mut out);
        let next = match batch.next_action {
            NextAction::Read => TestNextAction::Read,
            NextAction::ReadBuffered => TestNextAction::ReadBuffered,
            NextAction::Deferred(_) => TestNextAction::Deferred,
            NextAction::AwaitIdentity(cloud, patience) => TestNextAction::AwaitIdentity(cloud, patience),
            NextAction::Close => TestNextAction::Close,
            NextAction::Linger => TestNextAction::Linger,
        };
        TestTurnOutcome {
            answer_text: String::from_utf8_lossy(&out).into_owned(),
            consumed_bytes: batch.consumed_bytes,
            next_action: next,
        }
    }

    /// Refuses a connection as the thread refuses connections of a deleted pod.
    pub(crate) fn refuse_deleted_pod_for_test(
        &self,
        stream: &mut std::net::TcpStream,
        peer: SocketAddr,
        dialects: &Rc<ListenerDialects<P>>,
        pod: &P,
    ) {
        let tenant = self.tenants.borrow_mut().tenant_of_pod(pod);
        self.refuse_deleted_pod(stream, peer, dialects, &tenant);
    }
}
