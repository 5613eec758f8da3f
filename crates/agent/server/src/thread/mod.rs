//! Implements the traffic threads. A traffic thread accepts connections, reads requests and writes answers.
//!
//! This file contains the thread itself: its fields, its sweeps and its updates. The submodules contain the other parts:
//! - [`mod@accept`] accepts connections.
//! - [`event_loop`] serves the connections in the [`ready_queue`], and drains the connections at the end.
//! - [`mod@connection_state`] defines the state of one connection. The state includes the [`socket`].
//! - [`connection_task`] implements the actions of a connection. [`request`] answers the requests that a turn has read.
//! - [`turn_waits`] implements the waits after a turn: for a [`deferred_response`], for its [body](streamed_body), or for
//!   the client's [identity](identify_client).
//!
//! Each thread has separate listeners (SO_REUSEPORT) and a current-thread runtime. The threads share only three kinds of writable
//! values: counters of connections, counters of long polls, and upstream permits. A connection that waits for its client holds no
//! buffer. When bytes arrive, the thread reads them into its scratch buffer, answers every complete request and writes the
//! answers. A connection needs a separate buffer only in three cases: for a partial head, for requests that wait because an
//! earlier answer is not ready, and for an answer that its client does not read.
//!
//! The thread does not use hyper, because an open connection needs 11 KiB in hyper and only 0.3 KiB here
//! (docs/decisions/http-server.md). The dialects interpret the requests. This module handles only bytes, states and limits.

mod accept;
mod closing_connections;
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
mod turn_waits;
mod unidentified_wait_limit;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seawall_core::shutdown::StopSignal;
use seawall_core::{Clock, Gcra, Moment, clock};
use seawall_http::{Refusal, ResponseContext};
use tokio::task::{JoinError, LocalSet};

use self::closing_connections::ClosingConnections;
use self::connection_state::ConnectionData;
use self::ready_queue::ReadyQueue;
use self::unidentified_wait_limit::UnidentifiedWaitLimit;
use crate::admission::{GuestCpuBudget, ShardAdmission};
use crate::connection_client::{ClientResolver, ServedPod};
use crate::connection_permits::PermitCounter;
use crate::connection_table::{ConnectionTable, SWEEP_INTERVAL};
use crate::date_header::DateHeader;
use crate::fairness::cpu_pacer::CpuPacer;
use crate::fairness::scheduler::FairScheduler;
use crate::fairness::tenants::Tenants;
use crate::handler::{ActiveDialects, ListenerDialects};
use crate::listen::known_client_shards::RecentKnownClientShards;
use crate::listen::shards::ListenerShards;
use crate::memory_levels::{MemoryGauge, MemoryLevel};
use crate::thread_metrics::ThreadMetrics;
use crate::watchdog::{HEARTBEAT_INTERVAL, ThreadActivity, ThreadHeartbeat};

pub use self::config_update::{BuildDialectsFn, ThreadUpdate, UpdateReceiver};
pub use self::limits::ClientLimits;
#[cfg(any(test, feature = "testing"))]
pub use self::testing::{TestNextAction, TestTurnOutcome};

/// The context that all traffic threads share.
#[derive(Debug)]
pub struct ServerContext<P> {
    /// The process's clock.
    pub clock: Clock,
    /// The resolver that identifies the pod at the other end of a connection.
    pub resolver: Arc<dyn ClientResolver<P>>,
    /// Counts all open connections.
    pub open_connection_counter: Arc<PermitCounter>,
    /// Counts the open guests. A guest is a connection that ends after its next answer, because its client has reached its share.
    pub guest_counter: Arc<PermitCounter>,
    /// Counts the connections of unknown clients.
    pub unknown_client_connection_counter: Arc<PermitCounter>,
    /// Reports how much memory is left for clients.
    pub free_memory_gauge: Arc<dyn MemoryGauge>,
    /// The limits on connections and buffers.
    pub limits: ThreadLimits,
}

impl<P> Clone for ServerContext<P> {
    fn clone(&self) -> Self {
        Self {
            clock: self.clock.clone(),
            resolver: self.resolver.clone(),
            open_connection_counter: self.open_connection_counter.clone(),
            guest_counter: self.guest_counter.clone(),
            unknown_client_connection_counter: self.unknown_client_connection_counter.clone(),
            free_memory_gauge: self.free_memory_gauge.clone(),
            limits: self.limits,
        }
    }
}

/// The limits on connections and on the memory of one thread.
#[derive(Debug, Clone, Copy)]
pub struct ThreadLimits {
    /// The maximum number of open connections in the process. Guests do not count.
    pub max_process_connections: u32,
    /// The maximum number of open guests in the process.
    pub max_guests_in_process: u32,
    /// The maximum number of ended connections of one thread whose sockets are still open.
    pub max_closing: usize,
    /// The number of traffic threads.
    pub threads: usize,
    /// The maximum number of buffered bytes of all connections of this thread.
    pub buffered_bytes: usize,
    /// The CPU quota of the process, as a number of cores, or `None` if there is no quota.
    pub cores: Option<f64>,
    /// The size limits for request heads.
    pub head_limits: seawall_http::HeadLimits,
}

/// The time limit of the drain. The whole shutdown takes less than 5 s, or less than 9 s if another agent already accepts new connections.
/// In the drain, the thread closes its listeners and its idle connections. If another agent already accepts new connections, idle
/// connections first get time for one more request ([`LAST_REQUESTS`], [`FIRST_REQUESTS`]). The thread also answers all requests in progress,
/// and then closes the connections of these requests. At the time limit, the thread closes all remaining connections.
const DRAIN: Duration = Duration::from_secs(4);

/// The time limit of the drain if another agent already accepts new connections. The chart's grace period is 15 s.
const REPLACED_DRAIN: Duration = Duration::from_secs(8);

/// The time in which a client that has sent nothing yet may send its request, if another agent already accepts new connections. A pod
/// without a CPU request, on a node where others want all CPU time, gets its turn after seconds: with 3 s, 8 of 5,194 requests of such a pod were
/// not answered in four rollouts. This time is part of [`REPLACED_DRAIN`].
const FIRST_REQUESTS: Duration = Duration::from_millis(7500);

/// The time in which an idle connection may send one more request, if another agent already accepts new connections.
/// This time is part of [`REPLACED_DRAIN`].
const LAST_REQUESTS: Duration = Duration::from_secs(3);

/// The refusal of a long poll on a guest connection.
const FULL: Refusal =
    Refusal::new(503, "too_many_connections", "Too many connections are open; try again shortly.");

/// The refusal for a deleted pod whose connection is still open.
const GONE: Refusal =
    Refusal::new(503, "pod_gone", "The pod of this connection is gone; try again on a new connection.");

/// The maximum number of bytes that one turn reads. A metadata request has about 200 bytes. A longer head takes several turns.
const READ: usize = 4 * 1024;

/// The maximum number of requests per turn. A turn also ends when its answers exceed [`BATCH`] bytes.
/// A client that pipelines more requests waits for its next turn.
const REQUESTS: u32 = 16;
const BATCH: usize = 16 * 1024;

/// The number of bytes of answers after which the thread reads the memory level again.
/// Answers that a client does not read stay in the kernel's buffers and use the agent's memory. This number is a quarter of 1 MiB, the free
/// memory below which the memory counts as exhausted.
const ANSWERED_BETWEEN_LOOKS: usize = 256 * 1024;

/// The maximum number of overdue connections that the thread ends in one round.
const ENDED_AT_ONCE: usize = 8;

/// The phases of a thread, which only move forward. They differ in the connections that may wait for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadPhase {
    /// The shutdown has not begun. All connections may wait.
    Serving,
    /// Another agent already accepts new connections. All connections may wait for one more request.
    LastRequests,
    /// The same. Only clients that have sent nothing yet may send a request.
    FirstRequests,
    /// No connection may wait.
    Ending,
}

/// The time for which the thread still accepts waiting connections after the shutdown begins.
const LAST_ACCEPTS: Duration = Duration::from_millis(500);

/// If another agent has replaced this agent, the thread still accepts connections for this time after the shutdown begins.
/// The kernel withholds a connection from `accept` while the client has sent no bytes. After the thread has ended this delay, the kernel offers
/// such a connection when it next looks at it: one or three seconds after the connect. The kernel withholds connections of an overloaded shard for
/// longer, and looks at them after 7, 15 and 31 s as well. So if a shard was overloaded, the thread accepts for [`FIRST_REQUESTS`]. Only silent
/// connections that are then 7 to 7.5 s or 15 to 23.5 s old are lost.
const REPLACED_ACCEPTS: Duration = Duration::from_millis(2100);

/// The CPU time that the quota grants during the longest pause between two checks for ready connections.
/// One check costs less than this CPU time, so the CPU debt shrinks with each check and pause.
const REST: Duration = Duration::from_millis(1);

/// The pause after a failed `accept`. The usual cause is that the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// One traffic thread.
pub struct TrafficThread<P: ServedPod> {
    shared: ServerContext<P>,
    /// The active dialects of each listener.
    listeners: Vec<Rc<ActiveDialects<P>>>,
    client_limits: Cell<ClientLimits>,
    metrics: Arc<ThreadMetrics>,
    heartbeat: Arc<ThreadHeartbeat>,
    stop: StopSignal,
    connections: RefCell<ConnectionTable<Rc<ConnectionData<P>>>>,
    /// The connections that are no longer in the table and whose sockets are open.
    closing: RefCell<ClosingConnections<Rc<ConnectionData<P>>>>,
    ready_queue: ReadyQueue,
    scratch: RefCell<Scratch>,
    date: RefCell<DateHeader>,
    scheduler: FairScheduler,
    /// The CPU pacer, or `None` without a CPU quota.
    pace: RefCell<Option<CpuPacer>>,
    tenants: RefCell<Tenants<P>>,
    known: RefCell<RecentKnownClientShards>,
    /// Limits how many requests of unknown clients wait for identity.
    unidentified_waits: Rc<UnidentifiedWaitLimit>,
    /// The last client and the open guests of each shard.
    shard_admission: RefCell<Vec<ShardAdmission>>,
    guest_budget: RefCell<GuestCpuBudget>,
    /// The number of guests that one shard may have in the current round.
    guests_per_shard: Cell<usize>,
    memory_level: Cell<MemoryLevel>,
    /// The number of answer bytes since the thread last read the memory level.
    answered_bytes: Cell<usize>,
    /// The number of accepted connections.
    accepted: Cell<u32>,
    last_resumed: Cell<Moment>,
    last_bounded: Cell<Moment>,
    /// The number of accept rounds. The thread rotates the order of the shards by this number.
    accept_round: Cell<usize>,
    /// True if an `accept` call has failed since the last round.
    is_accept_failing: Cell<bool>,
    /// Limits the rate of log lines about failed `accept` calls.
    accept_failures: Gcra,
    /// Follows the stop signal, shortly after it.
    phase: Cell<ThreadPhase>,
}

/// The thread's buffers. A turn borrows the buffers and never keeps them across an `await`.
struct Scratch {
    read: Vec<u8>,
    write: Vec<u8>,
}

/// Returns an error for a task that has ended although it should run forever.
fn died(ended: Result<(), JoinError>) -> io::Error {
    ended.map_or_else(io::Error::other, |()| io::Error::other("a thread's task ended unexpectedly"))
}

impl<P: ServedPod> TrafficThread<P> {
    /// Returns a thread that has not started. Call this function inside the thread's runtime.
    ///
    /// # Errors
    /// The kernel cannot create an epoll instance.
    pub fn new(
        shared: ServerContext<P>,
        listeners: Vec<ListenerDialects<P>>,
        allowance: ClientLimits,
        (metrics, heartbeat): (Arc<ThreadMetrics>, Arc<ThreadHeartbeat>),
        stop: StopSignal,
    ) -> io::Result<Self> {
        // The buffer has room for the largest head and the empty line that may precede a head. With a smaller buffer, a partial
        // head could fill the buffer, and a read into the full buffer would look like the end of the stream.
        let read = vec![0; shared.limits.head_limits.max_head_bytes + 2];
        let tenants = RefCell::new(Tenants::new(
            shared.limits.buffered_bytes,
            shared.unknown_client_connection_counter.clone(),
        ));
        let pace = shared.limits.cores.map(CpuPacer::new);
        let unsettled = UnidentifiedWaitLimit::new(shared.limits.max_process_connections);
        let guest_budget = GuestCpuBudget::new(shared.limits.cores, shared.limits.threads);
        let (now, shared_limits) = (shared.clock.now(), shared.limits);
        let scratch = Scratch { read, write: Vec::with_capacity(BATCH) };
        Ok(Self {
            shared,
            listeners: listeners.into_iter().map(|dialects| Rc::new(ActiveDialects::new(dialects))).collect(),
            client_limits: Cell::new(allowance),
            metrics,
            heartbeat,
            stop,
            connections: RefCell::default(),
            closing: RefCell::new(ClosingConnections::new(shared_limits.max_closing)),
            scratch: RefCell::new(scratch),
            date: RefCell::default(),
            scheduler: FairScheduler::default(),
            pace: RefCell::new(pace),
            tenants,
            known: RefCell::default(),
            unidentified_waits: unsettled,
            shard_admission: RefCell::default(),
            guest_budget: RefCell::new(guest_budget),
            guests_per_shard: Cell::new(1),
            memory_level: Cell::default(),
            answered_bytes: Cell::new(0),
            accepted: Cell::new(0),
            last_resumed: Cell::new(now),
            last_bounded: Cell::new(now),
            accept_round: Cell::new(0),
            is_accept_failing: Cell::new(false),
            accept_failures: Gcra::new(1, 1),
            phase: Cell::new(ThreadPhase::Serving),
            ready_queue: ReadyQueue::new()?,
        })
    }

    /// Serves these shards and applies these updates. Returns after the shutdown has begun and the drain is complete.
    ///
    /// # Errors
    /// The poller failed, or the thread could not apply an update. After such an error, the thread serves no clients.
    pub async fn run(self, lanes: ListenerShards, changes: UpdateReceiver<P>) -> io::Result<()> {
        let thread = Rc::new(self);
        let _beating = thread.heartbeat.mark_event_loop_begun();
        let mut stop = thread.stop.clone();
        let local = LocalSet::new();
        let mut accepting = local.spawn_local(thread.clone().accept(lanes));
        let rounds = local.spawn_local(thread.clone().run_rounds());
        let sweeping = local.spawn_local(thread.clone().sweep());
        let beating = local.spawn_local(thread.clone().beat());
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
            let is_replaced = thread.stop.is_agent_replaced();
            thread.phase.set(if is_replaced { ThreadPhase::LastRequests } else { ThreadPhase::Ending });
            // The accept task ends when no more connections wait, or by time if the agent is replaced. Its end closes the listeners.
            let longest = if is_replaced { FIRST_REQUESTS } else { LAST_ACCEPTS };
            let accepts = async {
                if !accepting.is_finished() && tokio::time::timeout(longest, &mut accepting).await.is_err() {
                    accepting.abort();
                }
            };
            thread.drain(accepts).await;
            Ok(())
        };
        // The thread cannot serve clients after one of these tasks has ended.
        let ended = local
            .run_until(async {
                tokio::select! {
                    drained = until_stopped => drained,
                    failed = working => failed.unwrap_or_else(|error| Err(io::Error::other(error))),
                    ended = rounds => Err(died(ended)),
                    ended = sweeping => Err(died(ended)),
                    ended = beating => Err(died(ended)),
                    failed = changing => failed.unwrap_or_else(|error| Err(io::Error::other(error))),
                }
            })
            .await;
        // The connections and the thread refer to each other. Ending all connections breaks this reference cycle.
        thread.connections.borrow_mut().end_all();
        ended
    }

    /// Returns the pause that the CPU quota requires. While at most one client is active, the pause is zero.
    fn owed_rest(&self) -> Duration {
        if !self.scheduler.is_contended() {
            return Duration::ZERO;
        }
        let rest = |pace: &mut CpuPacer| pace.next_pause(self.shared.clock.now(), clock::process_cpu_time());
        self.pace.borrow_mut().as_mut().map_or(Duration::ZERO, rest)
    }

    /// Sleeps between two passes if the CPU quota requires a pause.
    ///
    /// The whole thread sleeps, including its timers and other tasks. In an earlier version, the thread paused inside the async
    /// runtime, and every event ended the pause. As a result, two pods that sent single bytes could use up the quota.
    #[expect(
        clippy::disallowed_methods,
        reason = "the pause must last its full time, and no event may end it early"
    )]
    fn rest(&self) {
        let rest = self.owed_rest();
        if let Some(cores) = self.shared.limits.cores.filter(|_| !rest.is_zero()) {
            self.heartbeat.set_activity(ThreadActivity::CpuPause);
            std::thread::sleep(rest.min(REST.div_f64(cores.max(0.01))));
        }
    }

    /// Writes a refusal for input that is not an HTTP request.
    fn write_refusal(&self, dialects: &ListenerDialects<P>, refusal: &Refusal, out: &mut Vec<u8>) {
        let mut date = self.date.borrow_mut();
        let date = date.at(&self.shared.clock, self.shared.clock.now());
        dialects.first().refuse(refusal, &ResponseContext::for_invalid_request(date), out);
    }

    /// Ends overdue connections and connections of deleted pods, four times a second.
    /// Each round ends only a few overdue connections. The kernel needs up to 0.2 ms to close one connection (measured), because
    /// it also frees the connection's buffered bytes. Therefore, closing hundreds of connections at once would delay every
    /// client.
    async fn sweep(self: Rc<Self>) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.heartbeat.set_activity(ThreadActivity::Sweep);
            self.known.borrow_mut().advance_one_sweep();
            let gone = self.connections.borrow_mut().end_deleted_clients();
            self.metrics
                .connection_metrics
                .closed_pod_deleted
                .fetch_add(gone.len() as u64, Ordering::Relaxed);
            self.close_ended(gone);
            self.sweep_closing();
            while self.end_overdue() == ENDED_AT_ONCE {
                self.sweep_closing();
                self.scheduler.request_round();
                self.scheduler.wait_for_round().await;
            }
            self.read_memory_level();
            let is_short = self.memory_level.get() >= MemoryLevel::Scarce;
            let now = self.shared.clock.now();
            let mut ended = 0;
            while is_short && ended < ENDED_AT_ONCE && self.end_longest_idle_of_largest_client(now) {
                ended += 1;
            }
            self.tenants.borrow_mut().sweep(is_short);
            self.scheduler.reset_activity();
        }
    }

    /// Sends heartbeats to show the watchdog that the event loop runs.
    /// A separate task runs this function, because a sweep can wait for many rounds.
    async fn beat(self: Rc<Self>) {
        loop {
            self.heartbeat.beat();
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
    }

    fn read_memory_level(&self) {
        let open = self.shared.open_connection_counter.open_count() + self.shared.guest_counter.open_count();
        self.memory_level.set(self.shared.free_memory_gauge.level(open));
        self.answered_bytes.set(0);
    }

    /// Counts bytes of answers, and reads the memory level again after each [`ANSWERED_BETWEEN_LOOKS`] bytes.
    fn record_answered(&self, bytes: usize) {
        self.answered_bytes.set(self.answered_bytes.get() + bytes);
        if self.answered_bytes.get() > ANSWERED_BETWEEN_LOOKS {
            self.read_memory_level();
        }
    }

    /// Ends a few overdue connections. Returns the number of ended connections.
    fn end_overdue(&self) -> usize {
        let now = self.shared.clock.now();
        let timeouts = self.client_limits.get().timeouts;
        let ended = self.connections.borrow_mut().end_overdue(&timeouts, now, ENDED_AT_ONCE);
        let count = ended.len();
        self.metrics.connection_metrics.timed_out.fetch_add(count as u64, Ordering::Relaxed);
        self.close_ended(ended);
        count
    }

    /// Closes connections that the table has ended. If a task still uses a connection, the end of the task closes it.
    fn close_ended(&self, ended: impl IntoIterator<Item = Rc<ConnectionData<P>>>) {
        for connection in ended {
            if connection.task_abort_handle.borrow().is_none() {
                self.close(connection);
            }
        }
    }

    /// Closes a connection that is no longer in the table, or keeps its socket until the client has closed, too ([`ClosingConnections`]).
    ///
    /// The look at the socket costs 4 % of the instructions of a request on a connection of its own. So other connections than guests close
    /// without it while memory is plentiful. Memory that their clients take in this way makes it low, and then all are looked at.
    fn close(&self, connection: Rc<ConnectionData<P>>) {
        connection.free_shares();
        if !connection.is_guest.get() && self.memory_level.get() == MemoryLevel::Enough {
            return;
        }
        let socket = &connection.socket;
        // The connection of a deleted pod is reset when it is dropped. A socket that cannot be shut down has failed.
        if connection.is_pod_gone()
            || socket.is_reset_on_close()
            || socket.close_both_sides().is_err()
            || socket.is_over()
        {
            return;
        }
        socket.unwatch(&self.ready_queue.poller);
        let client = connection.client.borrow().tenant.id;
        let (now, memory) = (self.shared.clock.now(), self.memory_level.get());
        let reset = self.closing.borrow_mut().insert(connection, client, now, memory);
        self.record_unacknowledged(reset);
    }

    fn sweep_closing(&self) {
        let (now, memory) = (self.shared.clock.now(), self.memory_level.get());
        let reset = self.closing.borrow_mut().sweep(now, memory);
        self.record_unacknowledged(reset);
    }

    fn record_unacknowledged(&self, reset: u64) {
        self.metrics.connection_metrics.reset_unacknowledged.fetch_add(reset, Ordering::Relaxed);
    }

    async fn all_gone(&self) {
        while self.connections.borrow().len() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Applies each update when it arrives. Returns only if the thread cannot apply an update.
    /// In that case the thread ends, because it must not continue with an outdated configuration.
    async fn apply_updates(self: Rc<Self>, mut changes: UpdateReceiver<P>) -> io::Result<()> {
        while let Some(ThreadUpdate {
            build_dialects: speak,
            client_limits: allowance,
            applied_sender: made,
        }) = changes.recv().await
        {
            self.heartbeat.set_activity(ThreadActivity::Update);
            let spoken = speak().filter(|spoken| spoken.len() == self.listeners.len());
            let spoken = spoken.ok_or_else(|| io::Error::other("a listener has no dialects"))?;
            self.listeners.iter().zip(spoken).for_each(|(listener, dialects)| listener.replace(dialects));
            self.client_limits.set(allowance);
            // The sender of the update may no longer wait for this message.
            let _ = made.send(());
        }
        std::future::pending().await
    }
}
