//! The traffic threads: accept, read, answer, write.
//!
//! Here is the thread: what it has, its sweeps, its changes. [`mod@accept`] lets connections in, [`event_loop`] has those go on that have
//! something to do ([`ready_queue`]) and drains them in the end. [`mod@connection_state`] is the state of one of them, on its [`socket`], and
//! [`connection_task`] what it does: [`request`] is what one turn makes of the bytes that were read, [`waits`] what it waits for
//! after a turn: a [`deferred_response`], its [body](streamed_body), [who its client is](identify_client).
//!
//! Each thread has its own listeners (SO_REUSEPORT) and a current-thread runtime, and shares nothing it writes with
//! the others but the counters of open connections. While a connection waits for its client it holds no
//! buffer: once there is something to read, it reads into the thread's scratch buffer, answers every whole request found there
//! and writes; only a head that arrived in part, or a client that does not read, costs it memory of its own.
//! Why not hyper here: a kept connection takes 11 KiB of it and 0.3 KiB here (docs/decisions/http-server.md). What a request means its dialect decides; this module knows bytes, states and limits.

mod accept;
mod config_update;
mod connection_state;
mod connection_task;
mod deferred_response;
mod event_loop;
mod identify_client;
mod limits;
mod ready_queue;
mod request;
mod socket;
mod streamed_body;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod unidentified_wait_limit;
mod waits;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seawall_core::shutdown::StopSignal;
use seawall_core::{Clock, Gcra, clock};
use seawall_http::{Refusal, ResponseContext};
use tokio::task::{JoinError, LocalSet};

use self::connection_state::ConnectionData;
use self::ready_queue::ReadyQueue;
use self::unidentified_wait_limit::UnidentifiedWaitLimit;
use crate::client::{ClientResolver, ServedPod};
use crate::connection_table::{ConnectionTable, SWEEP};
use crate::date_header::DateHeader;
use crate::fairness::clients::Tenants;
use crate::fairness::cpu_pacer::CpuPacer;
use crate::fairness::scheduler::FairScheduler;
use crate::handler::{ActiveDialects, ListenerDialects};
use crate::listen::shards::{ListenerShards, RecentShards};
use crate::permit_counter::PermitCounter;
use crate::thread_metrics::ThreadMetrics;

pub use self::config_update::{BuildDialectsFn, ThreadUpdate, UpdateReceiver};
pub use self::limits::ClientLimits;
#[cfg(any(test, feature = "testing"))]
pub use self::testing::{TestNextAction, TestTurn};

/// What every traffic thread has in common.
#[derive(Debug)]
pub struct ServerContext<P> {
    /// The process's clock.
    pub clock: Clock,
    /// Tells which pod is at the other end of a connection.
    pub resolver: Arc<dyn ClientResolver<P>>,
    /// All open connections.
    pub open_connections: Arc<PermitCounter>,
    /// Connections of those whom nothing is given to.
    pub strangers: Arc<PermitCounter>,
    /// What clients may hold open.
    pub limits: ThreadLimits,
}

impl<P> Clone for ServerContext<P> {
    fn clone(&self) -> Self {
        Self {
            clock: self.clock.clone(),
            resolver: self.resolver.clone(),
            open_connections: self.open_connections.clone(),
            strangers: self.strangers.clone(),
            limits: self.limits,
        }
    }
}

/// What clients may hold open.
#[derive(Debug, Clone, Copy)]
pub struct ThreadLimits {
    /// Connections, all threads together.
    pub connections: u32,
    /// Bytes that this thread's connections may hold together.
    pub buffered_bytes: usize,
    /// Cores of CPU quota.
    pub cores: Option<f64>,
    /// Sizes of requests' heads.
    pub wire: seawall_http::HeadLimits,
}

/// How long requests under way may take once stopping has begun: listeners close, idle connections close (where another agent has taken
/// over, after one more answer, if they ask in time), requests under way are answered and then their connections close. What is left
/// then is cut. With the rest of the shutdown it stays below 5 s.
const DRAIN: Duration = Duration::from_secs(4);

/// How long idle connections may ask once more where whoever comes anew reaches another agent: it is part of [`DRAIN`].
const LAST_ANSWERS: Duration = Duration::from_secs(3);

const FULL: Refusal = Refusal::new(503, "connections", "Too many connections are open; try again shortly.");

/// Bytes read in one turn. A metadata request has some 200; a head that is longer comes in several turns.
const READ: usize = 4 * 1024;

/// Requests answered in one turn, and bytes of answers after which it ends; a client that pipelines more waits for its next turn.
const REQUESTS: u32 = 16;
const BATCH: usize = 16 * 1024;

/// Connections that are ended in one round for being too slow or idle.
const ENDED_AT_ONCE: usize = 8;

/// How long those are still accepted who waited for it when the stop began.
const LAST_ACCEPTS: Duration = Duration::from_millis(500);

/// What the quota gives in the time that a thread rests at most before it looks again for those who have turns left. A look costs
/// less, so that what is owed is paid.
const REST: Duration = Duration::from_millis(1);

/// How long the keeper of rounds waits after an `accept` that failed for want of something that others have to give back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// One traffic thread.
pub struct TrafficThread<P: ServedPod> {
    shared: ServerContext<P>,
    /// What each listener speaks.
    listeners: Vec<Rc<ActiveDialects<P>>>,
    client_limits: Cell<ClientLimits>,
    metrics: Arc<ThreadMetrics>,
    stop: StopSignal,
    connections: RefCell<ConnectionTable<Rc<ConnectionData<P>>>>,
    ready_queue: ReadyQueue,
    scratch: RefCell<Scratch>,
    date: RefCell<DateHeader>,
    scheduler: FairScheduler,
    /// Where there is a CPU quota.
    pace: RefCell<Option<CpuPacer>>,
    tenants: RefCell<Tenants<P>>,
    known: RefCell<RecentShards>,
    /// Where strangers wait until they are known.
    unidentified_waits: Rc<UnidentifiedWaitLimit>,
    /// Looks at the lanes, for their order.
    accept_round: Cell<usize>,
    /// An `accept` has failed since the last round.
    is_accept_failing: Cell<bool>,
    /// Lines of that in the log.
    accept_failures: Gcra,
    /// Follows `stop`, for the many who ask; it may be a moment late.
    draining: Cell<bool>,
    /// In the drain: idle connections may ask once more.
    is_patient: Cell<bool>,
    requests: Cell<u64>,
}

/// The thread's buffers, borrowed only between two waits.
struct Scratch {
    read: Vec<u8>,
    write: Vec<u8>,
}

/// What is said of a task of the thread that ended although it never does.
fn died(ended: Result<(), JoinError>) -> io::Error {
    ended.map_or_else(io::Error::other, |()| io::Error::other("a task ended by itself"))
}

impl<P: ServedPod> TrafficThread<P> {
    /// A thread that has not begun. `number` makes its request ids distinct from those of other threads. Must be called inside its
    /// runtime.
    ///
    /// # Errors
    /// The kernel gives no poller.
    pub fn new(
        shared: ServerContext<P>,
        listeners: Vec<ListenerDialects<P>>,
        allowance: ClientLimits,
        metrics: Arc<ThreadMetrics>,
        stop: StopSignal,
        number: u64,
    ) -> io::Result<Self> {
        // Larger than the largest head by the empty line that may stand before one: a full buffer must never hold a head
        // of which the parser still wants more, or reading into no room would look like the client's end.
        let read = vec![0; shared.limits.wire.head + 2];
        let tenants = RefCell::new(Tenants::new(shared.limits.buffered_bytes, shared.strangers.clone()));
        let pace = shared.limits.cores.map(CpuPacer::new);
        let unsettled = UnidentifiedWaitLimit::new(shared.limits.connections);
        let scratch = Scratch { read, write: Vec::with_capacity(BATCH) };
        Ok(Self {
            shared,
            listeners: listeners.into_iter().map(|dialects| Rc::new(ActiveDialects::new(dialects))).collect(),
            client_limits: Cell::new(allowance),
            metrics,
            stop,
            connections: RefCell::default(),
            scratch: RefCell::new(scratch),
            date: RefCell::default(),
            scheduler: FairScheduler::default(),
            pace: RefCell::new(pace),
            tenants,
            known: RefCell::default(),
            unidentified_waits: unsettled,
            accept_round: Cell::new(0),
            is_accept_failing: Cell::new(false),
            accept_failures: Gcra::new(1, 1),
            draining: Cell::new(false),
            is_patient: Cell::new(false),
            requests: Cell::new(number << 48),
            ready_queue: ReadyQueue::new()?,
        })
    }

    /// Serves these lanes until the stop has begun and the drain is over, and makes these changes meanwhile.
    ///
    /// # Errors
    /// The poller failed, or a change could not be made: nobody can be served.
    pub async fn run(self, lanes: ListenerShards, changes: UpdateReceiver<P>) -> io::Result<()> {
        let thread = Rc::new(self);
        let mut stop = thread.stop.clone();
        let local = LocalSet::new();
        let mut accepting = local.spawn_local(thread.clone().accept(lanes));
        let rounds = local.spawn_local(thread.clone().run_rounds());
        let sweeping = local.spawn_local(thread.clone().sweep());
        let working = local.spawn_local(thread.clone().serve_ready());
        let changing = local.spawn_local(thread.clone().apply_updates(changes));
        let until_stopped = async {
            let accepted = tokio::select! {
                () = stop.wait() => None,
                accepted = &mut accepting => Some(accepted),
            };
            let is_stop = thread.stop.has_begun();
            if let Some(accepted) = accepted.filter(|accepted| accepted.is_err() || !is_stop) {
                return Err(died(accepted));
            }
            thread.draining.set(true);
            thread.is_patient.set(thread.stop.is_replaced());
            // It ends once nobody waits to be accepted. Its listeners close with it.
            if !accepting.is_finished() && tokio::time::timeout(LAST_ACCEPTS, &mut accepting).await.is_err() {
                accepting.abort();
            }
            thread.drain().await;
            Ok(())
        };
        // Without any of them the thread would live on and serve nobody.
        let ended = local
            .run_until(async {
                tokio::select! {
                    drained = until_stopped => drained,
                    failed = working => failed.unwrap_or_else(|error| Err(io::Error::other(error))),
                    ended = rounds => Err(died(ended)),
                    ended = sweeping => Err(died(ended)),
                    failed = changing => failed.unwrap_or_else(|error| Err(io::Error::other(error))),
                }
            })
            .await;
        // They and the thread have each other.
        thread.connections.borrow_mut().end_all();
        ended
    }

    /// How long to rest, by the CPU quota, while others are there.
    fn owed_rest(&self) -> Duration {
        if !self.scheduler.is_contended() {
            return Duration::ZERO;
        }
        let rest = |pace: &mut CpuPacer| pace.rest(self.shared.clock.now(), clock::cpu_time());
        self.pace.borrow_mut().as_mut().map_or(Duration::ZERO, rest)
    }

    /// Rests a little between two looks, where the quota demands rest.
    ///
    /// All of the thread rests, timers and other tasks with it: while the runtime waited in its place, whatever came woke it, and to
    /// be woken by two pods that send bytes one at a time used up the quota.
    #[expect(
        clippy::disallowed_methods,
        reason = "what is waited for is the time itself, and no event may end it"
    )]
    fn rest(&self) {
        let rest = self.owed_rest();
        if let Some(cores) = self.shared.limits.cores.filter(|_| !rest.is_zero()) {
            std::thread::sleep(rest.min(REST.div_f64(cores.max(0.01))));
        }
    }

    /// Refuses what is no request.
    fn write_refusal(&self, dialects: &ListenerDialects<P>, refusal: &Refusal, out: &mut Vec<u8>) {
        let mut date = self.date.borrow_mut();
        let date = date.at(&self.shared.clock, self.shared.clock.now());
        dialects.first().refuse(refusal, &ResponseContext::closing(date), self.next_request(), out);
    }

    fn next_request(&self) -> u64 {
        self.requests.replace(self.requests.get() + 1)
    }

    /// Ends what is overdue and whose pod is gone, four times a second: a few in each round, because the kernel frees what a
    /// client still had to send while we close (0.2 ms each, measured), and hundreds at once would be everybody's wait.
    async fn sweep(self: Rc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            self.known.borrow_mut().sweep();
            let gone = self.connections.borrow_mut().end_closed();
            self.metrics.connections.ended_with_pod.fetch_add(gone as u64, Ordering::Relaxed);
            while self.end_overdue() == ENDED_AT_ONCE {
                self.scheduler.request_round();
                self.scheduler.wait_for_round().await;
            }
            self.tenants.borrow_mut().sweep();
            self.scheduler.reset_activity();
        }
    }

    /// Ends a few of those that waited longer than they may; how many.
    fn end_overdue(&self) -> usize {
        let now = self.shared.clock.now();
        let timeouts = self.client_limits.get().timeouts;
        let ended = self.connections.borrow_mut().end_overdue(&timeouts, now, ENDED_AT_ONCE);
        self.metrics.connections.timed_out.fetch_add(ended as u64, Ordering::Relaxed);
        ended
    }

    /// Returns when no connection is left.
    async fn all_gone(&self) {
        while self.connections.borrow().len() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Makes each change as it comes. Ends only if one cannot be made: the thread must not go on by a configuration that is not in force.
    async fn apply_updates(self: Rc<Self>, mut changes: UpdateReceiver<P>) -> io::Result<()> {
        while let Some(ThreadUpdate { build_dialects: speak, client_limits: allowance, applied: made }) =
            changes.recv().await
        {
            let spoken = speak().filter(|spoken| spoken.len() == self.listeners.len());
            let spoken = spoken.ok_or_else(|| io::Error::other("a listener has nothing to speak"))?;
            self.listeners.iter().zip(spoken).for_each(|(listener, dialects)| listener.replace(dialects));
            self.client_limits.set(allowance);
            // Who ordered it may not wait any more.
            let _ = made.send(());
        }
        std::future::pending().await
    }
}
