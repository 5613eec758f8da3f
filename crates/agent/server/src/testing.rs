//! Test helpers for dialects: a traffic thread without sockets that answers bytes, and a pod without entitlements.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use seawall_core::attestation::{AttestFuture, ConnectionEnds};
use seawall_core::cloud::CloudName;
use seawall_core::{Clock, shutdown};
use seawall_http::Refusal;

use crate::connection_client::{Client, ClientId, ClientResolver, ServedPod};
use crate::connection_permits::PermitCounter;
use crate::connection_table::ConnectionTimeouts;
use crate::handler::ListenerDialects;
use crate::memory_levels::UnlimitedMemory;
use crate::route::MetadataRoute;
use crate::thread::{ClientLimits, ServerContext, TestTurnOutcome, ThreadLimits, TrafficThread};
use crate::thread_metrics::ThreadMetrics;

/// A pod without entitlements.
#[derive(Debug)]
pub struct FakePod {
    id: ClientId,
    connections: Arc<PermitCounter>,
    long_polls: Arc<PermitCounter>,
}

impl Default for FakePod {
    fn default() -> Self {
        Self { id: ClientId::new_unique(), connections: Arc::default(), long_polls: Arc::default() }
    }
}

impl ServedPod for FakePod {
    fn id(&self) -> ClientId {
        self.id
    }

    fn connections(&self) -> &Arc<PermitCounter> {
        &self.connections
    }

    fn long_polls(&self) -> &Arc<PermitCounter> {
        &self.long_polls
    }

    fn wait_for_entitlements(&self, _: CloudName) -> AttestFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn record_fetch(&self, _: &MetadataRoute, _: Option<&[u8]>) {}

    fn record_pending_fetch(&self, _: &MetadataRoute, _: &[u8]) {}
}

/// A resolver that identifies every address as [`Client::Anyone`].
#[derive(Debug)]
struct AnyoneResolver;

impl<P: ServedPod> ClientResolver<P> for AnyoneResolver {
    fn resolve(&self, _: &ConnectionEnds<'_>) -> Client<P> {
        Client::Anyone
    }

    fn likely_pod(&self, _: &ConnectionEnds<'_>) -> Option<Arc<P>> {
        None
    }

    fn attest_pod<'a>(&'a self, _: ConnectionEnds<'a>, _: CloudName) -> AttestFuture<'a, Option<Arc<P>>> {
        Box::pin(std::future::ready(None))
    }

    fn wait_for_pod<'a>(&'a self, _: ConnectionEnds<'a>, _: CloudName) -> AttestFuture<'a, Arc<P>> {
        Box::pin(std::future::pending())
    }

    fn explain_refusal(&self, _: &ConnectionEnds<'_>, _: CloudName) -> Refusal {
        Refusal::new(403, "unknown_client", "no")
    }
}

/// A traffic thread without listeners. Create it inside a runtime.
pub struct TestThread<P: ServedPod>(TrafficThread<P>);

/// Returns a thread without listeners that counts requests of these routes. Call this function inside a runtime.
#[expect(clippy::expect_used, reason = "only tests use this function")]
pub(crate) fn new_test_thread<P: ServedPod>(
    clock: &Clock,
    routes: &[&'static MetadataRoute],
) -> TrafficThread<P> {
    let timeouts = ConnectionTimeouts { head: Duration::from_secs(1), idle: Duration::from_secs(1) };
    let shared = ServerContext {
        clock: clock.clone(),
        resolver: Arc::new(AnyoneResolver),
        open_connection_counter: Arc::default(),
        guest_counter: Arc::default(),
        unknown_client_connection_counter: Arc::default(),
        free_memory_gauge: Arc::new(UnlimitedMemory),
        limits: ThreadLimits {
            max_process_connections: 8,
            max_guests_in_process: 8,
            max_closing: 8,
            threads: 1,
            buffered_bytes: 8 * 1024,
            cores: None,
            head_limits: seawall_http::HeadLimits::default(),
        },
    };
    let (allowance, (_, stop)) = (ClientLimits { connections: 8, timeouts }, shutdown::stop_channel());
    let observed = (Arc::new(ThreadMetrics::new(routes)), Arc::default());
    let thread = TrafficThread::new(shared, Vec::new(), allowance, observed, stop);
    thread.expect("a poller")
}

impl<P: ServedPod> TestThread<P> {
    /// Returns a thread that counts requests of these routes.
    pub fn new(clock: &Clock, routes: &[&'static MetadataRoute]) -> Self {
        Self(new_test_thread(clock, routes))
    }

    /// Returns the thread's answers to these bytes from a client that uses the shares of `pod`.
    pub fn answer(
        &self,
        dialects: &Rc<ListenerDialects<P>>,
        client: &Client<P>,
        pod: &P,
        bytes: &[u8],
    ) -> TestTurnOutcome {
        self.0.answer_for_test(dialects, client, pod, IpAddr::from([127, 0, 0, 1]), bytes)
    }

    /// Refuses a connection as the thread refuses connections of a deleted pod.
    ///
    /// # Panics
    /// The socket has no peer address.
    #[expect(clippy::expect_used, reason = "only tests use this function")]
    pub fn refuse_deleted_pod(
        &self,
        stream: &mut std::net::TcpStream,
        dialects: &Rc<ListenerDialects<P>>,
        pod: &P,
    ) {
        let peer = stream.peer_addr().expect("connected");
        self.0.refuse_deleted_pod_for_test(stream, peer, dialects, pod);
    }
}
