//! The answers of a thread to bytes, for tests of dialects. [`crate::testing`] makes the thread.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use seawall_core::cloud::CloudName;

use super::TrafficThread;
use super::request::{NextAction, RequestOrigin};
use crate::client::{Client, ServedPod};
use crate::handler::ListenerDialects;

/// The outcome of some bytes.
#[derive(Debug)]
pub struct TestTurn {
    /// The answers.
    pub text: String,
    /// The number of bytes that are dealt with.
    pub taken: usize,
    /// The next action of the connection.
    pub next: TestNextAction,
}

/// The next action of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum TestNextAction {
    /// It waits for more bytes.
    Read,
    /// It looks at the bytes that are left.
    ReadBuffered,
    /// It waits for an answer that takes time.
    Deferred,
    /// It waits for the client's identity or the pod's entitlements at this cloud, for this long at most.
    AwaitIdentity(CloudName, Duration),
    /// It closes.
    Close,
    /// It closes once the client has read the reason.
    Linger,
}

impl<P: ServedPod> TrafficThread<P> {
    /// Answers these bytes of a client, which uses the shares of `pod`.
    pub(crate) fn answers(
        &self,
        dialects: &Rc<ListenerDialects<P>>,
        client: &Client<P>,
        pod: &P,
        peer: IpAddr,
        bytes: &[u8],
    ) -> TestTurn {
        let (now, mut out) = (self.shared.clock.now(), Vec::new());
        let tenant = self.tenants.borrow_mut().pod(pod);
        let asker = RequestOrigin { dialects, client, tenant: &tenant, peer, received_at: now };
        let batch = self.answer_all(asker, bytes, now, &mut out);
        let next = match batch.next {
            NextAction::Read => TestNextAction::Read,
            NextAction::ReadBuffered => TestNextAction::ReadBuffered,
            NextAction::Deferred(_) => TestNextAction::Deferred,
            NextAction::AwaitIdentity(cloud, patience) => TestNextAction::AwaitIdentity(cloud, patience),
            NextAction::Close => TestNextAction::Close,
            NextAction::Linger => TestNextAction::Linger,
        };
        TestTurn { text: String::from_utf8_lossy(&out).into_owned(), taken: batch.consumed, next }
    }

    /// Answers a connection for which there is no room.
    pub(crate) fn refuse_one_at_cap(
        &self,
        stream: &mut std::net::TcpStream,
        peer: SocketAddr,
        dialects: &Rc<ListenerDialects<P>>,
        pod: &P,
    ) {
        let tenant = self.tenants.borrow_mut().pod(pod);
        self.refuse_at_cap(stream, peer, dialects, &tenant);
    }
}
