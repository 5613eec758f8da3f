//! For tests: a traffic thread without sockets that answers bytes, for whoever has dialects to try; and a pod that nobody gave anything.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use seawall_core::attestation::{Ends, Wait};
use seawall_core::cloud::CloudName;
use seawall_core::{Clock, shutdown};
use seawall_http::Refusal;

use crate::client::{Client, ClientId, ClientResolver, ServedPod};
use crate::connection_counter::Cap;
use crate::connection_table::Timeouts;
use crate::handler::Dialects;
use crate::route::Route;
use crate::thread::{Allowance, Answers, Bounds, Shared, Thread};
use crate::thread_metrics::Traffic;

/// A pod that may have nothing.
#[derive(Debug)]
pub struct FakePod {
    id: ClientId,
    connections: Arc<Cap>,
    long_polls: Arc<Cap>,
}

impl Default for FakePod {
    fn default() -> Self {
        Self { id: ClientId::unique(), connections: Arc::default(), long_polls: Arc::default() }
    }
}

impl ServedPod for FakePod {
    fn id(&self) -> ClientId {
        self.id
    }

    fn connections(&self) -> &Arc<Cap> {
        &self.connections
    }

    fn long_polls(&self) -> &Arc<Cap> {
        &self.long_polls
    }

    fn decided(&self, _: CloudName) -> Wait<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn fetched(&self, _: &Route, _: Option<&[u8]>) {}

    fn noted(&self, _: &Route, _: &[u8]) {}
}

/// Serves every address.
#[derive(Debug)]
struct Everybody;

impl<P: ServedPod> ClientResolver<P> for Everybody {
    fn at(&self, _: &Ends<'_>) -> Client<P> {
        Client::Anyone
    }

    fn likely_at(&self, _: &Ends<'_>) -> Option<Arc<P>> {
        None
    }

    fn currently_at<'a>(&'a self, _: Ends<'a>, _: CloudName) -> Wait<'a, Option<Arc<P>>> {
        Box::pin(std::future::ready(None))
    }

    fn settled<'a>(&'a self, _: Ends<'a>, _: CloudName) -> Wait<'a, Arc<P>> {
        Box::pin(std::future::pending())
    }

    fn why_nobody(&self, _: &Ends<'_>, _: CloudName) -> Refusal {
        Refusal::new(403, "unknown_caller", "no")
    }
}

/// A traffic thread that has no listeners. Must be made inside a runtime.
pub struct Bench<P: ServedPod>(Thread<P>);

/// A thread that has no listeners and counts requests of these kinds. Must be made inside a runtime.
#[expect(clippy::expect_used, reason = "for tests alone")]
pub(crate) fn thread<P: ServedPod>(clock: &Clock, routes: &[&'static Route]) -> Thread<P> {
    let timeouts = Timeouts { head: Duration::from_secs(1), idle: Duration::from_secs(1) };
    let shared = Shared {
        clock: clock.clone(),
        callers: Arc::new(Everybody),
        open: Arc::default(),
        strangers: Arc::default(),
        bounds: Bounds { connections: 8, held: 8 * 1024, cores: None, wire: seawall_http::Limits::default() },
    };
    let (allowance, (_, stop)) = (Allowance { connections: 8, timeouts }, shutdown::switch());
    let thread = Thread::new(shared, Vec::new(), allowance, Arc::new(Traffic::new(routes)), stop, 0);
    thread.expect("a poller")
}

impl<P: ServedPod> Bench<P> {
    /// One that counts requests of these kinds.
    pub fn new(clock: &Clock, routes: &[&'static Route]) -> Self {
        Self(thread(clock, routes))
    }

    /// What comes of these bytes of a client, which takes the shares of this pod.
    pub fn answer(&self, dialects: &Rc<Dialects<P>>, client: &Client<P>, pod: &P, bytes: &[u8]) -> Answers {
        self.0.answers(dialects, client, pod, IpAddr::from([127, 0, 0, 1]), bytes)
    }

    /// Answers a connection for which there is no room.
    ///
    /// # Panics
    /// The connection has no other end.
    #[expect(clippy::expect_used, reason = "for tests alone")]
    pub fn refuse_at_cap(&self, stream: &mut std::net::TcpStream, dialects: &Rc<Dialects<P>>, pod: &P) {
        let peer = stream.peer_addr().expect("connected");
        self.0.refuse_one_at_cap(stream, peer, dialects, pod);
    }
}
