//! What a thread answers to bytes, for tests of whoever has dialects: [`crate::testing`] makes it.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use seawall_core::cloud::CloudName;

use super::Thread;
use super::request::{After, Asker};
use crate::client::{Client, ServedPod};
use crate::handler::Dialects;

/// What came of some bytes.
#[derive(Debug)]
pub struct Answers {
    /// The answers.
    pub text: String,
    /// How many of the bytes are dealt with.
    pub taken: usize,
    /// What the connection does next.
    pub next: Next,
}

/// What a connection does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// It waits for more bytes.
    Read,
    /// It looks at the bytes that are left.
    Look,
    /// It waits for an answer that takes time.
    Later,
    /// It waits until it is known who asks, or what the pod may have of this cloud: for so long at most.
    Settle(CloudName, Duration),
    /// It closes.
    Close,
    /// It closes once the client has read why.
    Linger,
}

impl<P: ServedPod> Thread<P> {
    /// Answers these bytes of a client, which takes the shares of this pod.
    pub(crate) fn answers(
        &self,
        dialects: &Rc<Dialects<P>>,
        client: &Client<P>,
        pod: &P,
        peer: IpAddr,
        bytes: &[u8],
    ) -> Answers {
        let (now, mut out) = (self.shared.clock.now(), Vec::new());
        let tenant = self.tenants.borrow_mut().pod(pod);
        let asker = Asker { dialects, caller: client, tenant: &tenant, peer, came: now };
        let batch = self.answer_all(asker, bytes, now, &mut out);
        let next = match batch.after {
            After::Read => Next::Read,
            After::Look => Next::Look,
            After::Later(_) => Next::Later,
            After::Settle(cloud, patience) => Next::Settle(cloud, patience),
            After::Close => Next::Close,
            After::Linger => Next::Linger,
        };
        Answers { text: String::from_utf8_lossy(&out).into_owned(), taken: batch.taken, next }
    }

    /// Answers a connection for which there is no room.
    pub(crate) fn refuse_one_at_cap(
        &self,
        stream: &mut std::net::TcpStream,
        peer: SocketAddr,
        dialects: &Rc<Dialects<P>>,
        pod: &P,
    ) {
        let tenant = self.tenants.borrow_mut().pod(pod);
        self.refuse_at_cap(stream, peer, dialects, &tenant);
    }
}
