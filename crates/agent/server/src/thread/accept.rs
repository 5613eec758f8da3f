//! Accepts connections: chooses the order of the shards, uses [`mod@crate::admission`] to decide which connections to accept, and
//! identifies each client.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use seawall_core::attestation::ConnectionEnds;
use seawall_core::{Moment, clock};

use super::connection_state::{ConnectionClient, ConnectionData};
use super::request::RequestOrigin;
use super::socket::ClientSocket;
use super::{ACCEPT_PAUSE, FIRST_REQUESTS, GONE, REPLACED_ACCEPTS, TrafficThread};
use crate::admission::{ADMISSION_INTERVAL, GuestPlace};
use crate::connection_client::{Client, ServedPod};
use crate::connection_permits::PermitCounter;
use crate::connection_table::{ConnectionPermits, SWEEP_INTERVAL};
use crate::fairness::tenants::Tenant;
use crate::handler::ListenerDialects;
use crate::listen::shards::ListenerShards;
use crate::memory_levels::MemoryLevel;
use crate::watchdog::ThreadActivity;

/// The maximum number of connections that one round accepts from shards in which the thread recently accepted a known client.
const ACCEPTED: usize = 32;
/// The maximum number of connections that one round accepts from all other shards. If only other shards are ready, [`ACCEPTED`] is the
/// maximum.
const ACCEPTED_OF_STRANGERS: usize = 8;

/// The maximum number of accept rounds after the shutdown has begun. Together, these rounds accept at most about 2,000
/// connections.
const MAX_LAST_ROUNDS: usize = 64;

/// The number of accepted connections after which the thread reads the memory level again.
const MEMORY_CHECK: u32 = 128;

/// Every 16th accepted connection is a sample: the thread measures how long the connection's request has waited.
/// The measurement costs 1 µs.
const WAIT_SAMPLE: u32 = 16;

/// The decision about the next connection of a shard.
enum Gate {
    /// The thread may accept the connection. The connection will probably stay open.
    Open,
    /// The thread may accept the connection. The connection is probably a guest, and the guest budget has paid for it.
    Guest,
    /// The thread must leave the connection in the backlog, because the shard has no free place for a guest.
    NoPlace,
    /// The thread must leave the connection in the backlog, because the guest budget is used up.
    NoBudget,
}

/// A connection that the thread has just accepted.
pub(super) struct Admitted {
    is_known: bool,
    is_guest: bool,
}

impl<P: ServedPod> TrafficThread<P> {
    /// Accepts connections until the shutdown has begun and no connection waits.
    /// Each round accepts a few connections from each ready shard. An error never ends the loop, because most errors are
    /// temporary. Examples are a reset by the client and a lack of file descriptors.
    pub(super) async fn accept(self: Rc<Self>, mut lanes: ListenerShards) {
        let mut ready = Vec::new();
        let mut stop = self.stop.clone();
        let mut stopped = pin!(stop.wait());
        loop {
            let longest = if lanes.must_look_soon() { ADMISSION_INTERVAL } else { SWEEP_INTERVAL };
            let found = tokio::select! {
                biased;
                () = &mut stopped => break,
                found = lanes.wait_for_connections(&mut ready) => found,
                () = tokio::time::sleep(longest), if lanes.needs_resume() => {
                    ready.clear();
                    Ok(())
                }
            };
            let accepted = found
                .and_then(|()| self.accept_some(&mut lanes, &mut ready))
                .and_then(|is_all| self.resume_waiting(&mut lanes).map(|()| is_all));
            match accepted {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => self.record_accept_error(&error),
            }
            lanes.mark_unfinished();
            // Between the request for a round and the wait for this round, there must be no other `await`. Otherwise the task
            // could miss the start of the round.
            self.scheduler.request_round();
            self.scheduler.wait_for_round().await;
        }
        lanes.disable_deferred_accept();
        self.accept_the_last(&mut lanes);
        if self.stop.is_agent_replaced() {
            // The other agent gets all new connections. Until this timer ends, `accept` still returns the connections that the
            // kernel has withheld.
            let is_long = lanes.may_withhold_for_long(self.shared.clock.now());
            let longest = if is_long { FIRST_REQUESTS } else { REPLACED_ACCEPTS };
            // The poller does not report the connections again that the last rounds left.
            lanes.mark_unfinished();
            let _ = tokio::time::timeout(longest, self.accept_withheld(&mut lanes)).await;
        }
    }

    /// Accepts connections until the poller fails.
    async fn accept_withheld(self: &Rc<Self>, lanes: &mut ListenerShards) {
        let mut ready = Vec::new();
        loop {
            let found = tokio::select! {
                found = lanes.wait_for_connections(&mut ready) => found,
                () = tokio::time::sleep(ADMISSION_INTERVAL), if lanes.has_paused() => {
                    ready.clear();
                    Ok(())
                }
            };
            if found.is_err() {
                return;
            }
            let accepted = self.accept_some(lanes, &mut ready);
            if !matches!(accepted, Ok(true)) {
                lanes.mark_unfinished();
            }
            match accepted.and_then(|_| self.resume_paused(lanes, self.shared.clock.now())) {
                Ok(()) => tokio::task::yield_now().await,
                Err(error) => {
                    self.record_accept_error(&error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Counts and logs a failed accept.
    /// The usual cause is that no file descriptor is free. Therefore the thread resets the connections that wait for their clients' ends, and
    /// if there are none, the table ends an idle connection.
    fn record_accept_error(&self, error: &std::io::Error) {
        self.metrics.connection_metrics.accept_errors.fetch_add(1, Ordering::Relaxed);
        let now = self.shared.clock.now();
        if self.accept_failures.take(now).is_ok() {
            tracing::warn!(%error, "cannot accept connections");
        }
        let lacks_descriptors = [Errno::MFILE, Errno::NFILE]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
        let reset = if lacks_descriptors { self.closing.borrow_mut().reset_all() } else { 0 };
        self.record_unacknowledged(reset);
        if reset == 0 {
            self.end_longest_idle_of_largest_client(now);
        }
        self.is_accept_failing.set(true);
    }

    /// Accepts the connections that already wait when the shutdown begins. The runtime may not have reported these connections yet.
    /// The connections are established, and most clients have already sent their requests. The number of accept rounds is
    /// limited, so a client cannot prolong the shutdown.
    fn accept_the_last(self: &Rc<Self>, lanes: &mut ListenerShards) {
        let mut ready = Vec::new();
        for _ in 0..MAX_LAST_ROUNDS {
            let looked = lanes.collect_ready(&mut ready);
            if looked.is_err() || ready.is_empty() || self.accept_some(lanes, &mut ready).is_err() {
                return;
            }
        }
    }

    /// Watches as many paused shards again as the guest budget allows. Also limits the backlogs four times per second.
    fn resume_waiting(&self, lanes: &mut ListenerShards) -> std::io::Result<()> {
        if !lanes.needs_resume() {
            return Ok(());
        }
        let now = self.shared.clock.now();
        self.resume_paused(lanes, now)?;
        // Without the throttle, the clients of an overloaded shard have unequal chances. Everything else goes on.
        if let Err(error) = lanes.throttle_connects(now)
            && self.accept_failures.take(now).is_ok()
        {
            tracing::warn!(%error, "cannot throttle overloaded shards: some clients of a pod with thousands of clients may wait for minutes");
        }
        if lanes.take_backlog_period_begun_flag() {
            self.last_bounded.set(now);
        }
        let period = now.since(self.last_bounded.get());
        if period >= SWEEP_INTERVAL {
            self.last_bounded.set(now);
            if let Err(error) = lanes.limit_backlogs(now, period)
                && self.accept_failures.take(now).is_ok()
            {
                tracing::warn!(%error, "cannot limit the backlogs of overloaded shards: connections may wait for longer than 0.5 s");
            }
        }
        Ok(())
    }

    /// Increases the guest budget, and watches as many paused shards again as it allows.
    fn resume_paused(&self, lanes: &mut ListenerShards, now: Moment) -> std::io::Result<()> {
        if now.since(self.last_resumed.get()) < ADMISSION_INTERVAL {
            return Ok(());
        }
        self.last_resumed.set(now);
        let mut budget = self.guest_budget.borrow_mut();
        budget.grow(now, clock::thread_cpu_time(), clock::process_cpu_time());
        lanes.resume(budget.affordable_guests())
    }

    /// Accepts connections from these shards. Returns true if the thread has accepted all connections that it may accept now.
    /// Each ready shard gets an equal part of the round's maximum. Shards in which the thread recently accepted a known client
    /// come first. The other shards together get only the share of unknown clients. All unknown clients count as one client, even
    /// if they have many addresses.
    ///
    /// The total number of accepts per round is limited, so that the thread also serves the open connections.
    fn accept_some(
        self: &Rc<Self>,
        lanes: &mut ListenerShards,
        ready: &mut [usize],
    ) -> std::io::Result<bool> {
        if ready.is_empty() {
            return Ok(true);
        }
        self.heartbeat.set_activity(ThreadActivity::Accept);
        // Each ready shard gets an equal part of the guest budget, so that the first shard does not use up the budget.
        let budget = self.guest_budget.borrow().affordable_guests();
        self.guests_per_shard.set((budget / ready.len()).max(1));
        if let [lane] = ready {
            return self.accept_of(lanes, *lane, ACCEPTED);
        }
        // Rotate the starting shard, so that the same unknown clients are not always first.
        self.accept_round.set(self.accept_round.get().wrapping_add(1));
        ready.rotate_left(self.accept_round.get() % ready.len().max(1));
        let is_known = |lane: &usize| self.known.borrow().had_recent_known_client(*lane);
        let (known, strangers): (Vec<usize>, Vec<usize>) = ready.iter().partition(|lane| is_known(lane));
        let share = |lanes: &[usize], most: usize| (most / lanes.len().max(1)).max(1);
        let mut is_all = true;
        for lane in &known {
            is_all &= self.accept_of(lanes, *lane, share(&known, ACCEPTED))?;
        }
        let most = if known.is_empty() { ACCEPTED } else { ACCEPTED_OF_STRANGERS };
        is_all &= strangers.len() <= most;
        for lane in strangers.iter().take(most) {
            is_all &= self.accept_of(lanes, *lane, share(&strangers, most))?;
        }
        Ok(is_all)
    }

    /// Accepts at most `most` connections from a shard. Returns true if the thread has accepted all connections that it may
    /// accept from this shard now.
    fn accept_of(
        self: &Rc<Self>,
        lanes: &mut ListenerShards,
        lane: usize,
        most: usize,
    ) -> std::io::Result<bool> {
        let mut guests = 0;
        for _ in 0..most {
            let gate = self.gate(lane);
            guests += usize::from(matches!(gate, Gate::Guest));
            if matches!(gate, Gate::NoPlace) {
                self.record_wait_for_place(lanes, lane);
            }
            if matches!(gate, Gate::NoPlace | Gate::NoBudget) || guests > self.guests_per_shard.get() {
                self.refund(&gate);
                lanes.pause_shard(lane)?;
                return Ok(true);
            }
            match lanes.accept(lane) {
                Ok(Some((stream, peer))) => {
                    let admitted = self.admit(stream, peer, lanes.listener_index(lane), lane);
                    self.settle(&gate, &admitted);
                    if admitted.is_known {
                        self.known.borrow_mut().mark_shard_recently_known(lane);
                    }
                    continue;
                }
                Ok(None) => {
                    self.refund(&gate);
                    return Ok(true);
                }
                // The client closed the connection before the thread accepted it (accept(2)).
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => self.refund(&gate),
                Err(error) => {
                    self.refund(&gate);
                    return Err(error);
                }
            }
        }
        lanes.record_left_waiting(lane);
        Ok(false)
    }

    /// Decides whether the thread may accept the next connection of this shard.
    fn gate(&self, lane: usize) -> Gate {
        let (open, most) = (&self.shared.open_connection_counter, self.shared.limits.max_process_connections);
        let is_exhausted = self.memory_level.get() == MemoryLevel::Exhausted;
        let shards = self.shard_admission.borrow();
        let shard = shards.get(lane);
        // When the process ends, the kernel resets the connections in the backlog. Therefore, during a shutdown, the thread also
        // accepts from crowded shards. Each connection then closes after one answer.
        let is_ending = self.stop.has_begun();
        let is_crowded =
            !is_ending && shard.is_some_and(|shard| shard.expects_guest(|last| self.has_share_left(last)));
        if !is_crowded && !is_exhausted && open.open_count() < most {
            return Gate::Open;
        }
        let most = self.shared.limits.max_guests_in_process;
        if shard.is_some_and(|shard| !shard.has_guest_place(&self.shared.guest_counter, most)) {
            Gate::NoPlace
        } else if self.guest_budget.borrow_mut().pay_for_guest() {
            Gate::Guest
        } else {
            Gate::NoBudget
        }
    }

    /// Records that connections of this shard wait for a place of a guest, if some do. The silent guests of the shard then have less time.
    /// In a reserve shard, all connections have the same client, so its silent connections keep no other client waiting. While the process
    /// ends, a client that has sent nothing yet gets more time on purpose.
    fn record_wait_for_place(&self, lanes: &ListenerShards, lane: usize) {
        if self.stop.has_begun() || lanes.is_reserve(lane) || !lanes.has_waiting(lane) {
            return;
        }
        if let Some(shard) = self.shard_admission.borrow().get(lane) {
            shard.record_wait_for_place(self.shared.clock.now());
        }
    }

    fn refund(&self, gate: &Gate) {
        if matches!(gate, Gate::Guest) {
            self.guest_budget.borrow_mut().refund();
        }
    }

    /// Corrects the guest budget if the gate's guess about the connection was wrong.
    fn settle(&self, gate: &Gate, admitted: &Admitted) {
        match (gate, admitted.is_guest) {
            (Gate::Guest, false) => self.guest_budget.borrow_mut().refund(),
            (Gate::Open, true) => self.guest_budget.borrow_mut().charge(),
            _ => {}
        }
    }

    /// Identifies the client, takes permits for the connection, and inserts the connection into the table.
    pub(super) fn admit(
        self: &Rc<Self>,
        mut stream: std::net::TcpStream,
        peer: SocketAddr,
        listener: usize,
        lane: usize,
    ) -> Admitted {
        self.metrics.connection_metrics.accepted.fetch_add(1, Ordering::Relaxed);
        let count = self.accepted.replace(self.accepted.get().wrapping_add(1));
        if count.is_multiple_of(MEMORY_CHECK) {
            self.read_memory_level();
        }
        if count.is_multiple_of(WAIT_SAMPLE) {
            self.metrics.record_accept_wait(&stream);
        }
        let ends = ConnectionEnds { peer, read_local_address: &|| stream.local_addr().ok() };
        self.heartbeat.set_activity(ThreadActivity::Identify);
        let caller = self.shared.resolver.resolve(&ends);
        self.heartbeat.set_activity(ThreadActivity::Accept);
        let tenant = self.tenant(&caller, &ends);
        let is_known = !self.is_unknown_client(&tenant);
        let Some(spoken) = self.listeners.get(listener).cloned() else {
            return Admitted { is_known, is_guest: false };
        };
        let Some((permits, guest)) = self.permits(&tenant, lane) else {
            self.metrics.connection_metrics.rejected_pod_deleted.fetch_add(1, Ordering::Relaxed);
            self.refuse_deleted_pod(&mut stream, peer, &spoken.current(), &tenant);
            return Admitted { is_known, is_guest: false };
        };
        let is_guest = guest.is_some();
        if is_guest {
            self.metrics.connection_metrics.guest_connections.fetch_add(1, Ordering::Relaxed);
            tenant.record_guest();
        }
        let who = ConnectionClient { identity: caller, tenant };
        let key = self.connections.borrow_mut().insert(permits, |key| {
            let data = ConnectionData::new(
                self.shared.clock.now(),
                key,
                ClientSocket::new(stream),
                peer,
                spoken,
                who,
                guest,
            );
            Rc::new(data)
        });
        // Check the connection at once, because the first request has usually arrived already.
        self.ready_queue.push(key);
        Admitted { is_known, is_guest }
    }

    /// Returns the tenant whose shares a connection uses.
    /// If attestation has not identified the pod yet, the connection uses the tenant of the likely pod. This guess is safe,
    /// because shares are not credentials. Without the guess, a known pod would compete with unknown clients at each renewal of
    /// its attestation.
    fn tenant(&self, caller: &Client<P>, ends: &ConnectionEnds<'_>) -> Rc<Tenant<P>> {
        let likely =
            matches!(caller, Client::Unidentified).then(|| self.shared.resolver.likely_pod(ends)).flatten();
        self.tenants.borrow_mut().tenant_of_client(caller, likely.as_ref(), ends.peer.ip())
    }

    /// Takes one permit of the process and one permit of the client. If the client is at its share, the connection becomes a
    /// guest. Returns `None` if the client's pod is gone.
    fn permits(&self, tenant: &Tenant<P>, lane: usize) -> Option<(ConnectionPermits, Option<GuestPlace>)> {
        let (bounds, open, own) =
            (&self.shared.limits, &self.shared.open_connection_counter, &tenant.connection_counter);
        let mut shards = self.shard_admission.borrow_mut();
        if shards.len() <= lane {
            shards.resize_with(lane + 1, Default::default);
        }
        shards[lane].record_client(own);
        drop(shards);
        if self.has_share_left(own)
            && let Some(process) = open.take(bounds.max_process_connections)
        {
            let most = self.client_limits.get().connections;
            if let Some(caller) = own.take(most) {
                return Some((
                    ConnectionPermits { process_permit: process, client_permit: caller, client: tenant.id },
                    None,
                ));
            }
        }
        let caller = own.take(u32::MAX)?;
        let process = self.shared.guest_counter.take(u32::MAX)?;
        let place = self.shard_admission.borrow()[lane].take_guest_place();
        Some((
            ConnectionPermits { process_permit: process, client_permit: caller, client: tenant.id },
            Some(place),
        ))
    }

    /// True if a client may keep one more connection open. `own` counts the client's connections.
    /// While memory is low, only clients with few connections may keep one more. For all other clients, the process counts as
    /// full. While memory is exhausted, no client may keep one more, because thousands of clients with few connections each would
    /// use up the remaining memory.
    pub(super) fn has_share_left(&self, own: &PermitCounter) -> bool {
        let (open, most) = (&self.shared.open_connection_counter, self.shared.limits.max_process_connections);
        match self.memory_level.get() {
            _ if own.open_count() >= self.client_limits.get().connections => false,
            MemoryLevel::Exhausted => false,
            MemoryLevel::Scarce | MemoryLevel::FreeMemoryLow => {
                own.has_share_left(open, most.min(open.open_count()))
            }
            MemoryLevel::Enough => own.has_share_left(open, most),
        }
    }

    /// Ends one idle connection of the client with the most connections.
    /// The thread calls this function only while memory or file descriptors are short. The function never ends a connection with
    /// an unread request.
    pub(super) fn end_longest_idle_of_largest_client(&self, now: Moment) -> bool {
        let timeouts = self.client_limits.get().timeouts;
        let ended = self.connections.borrow_mut().end_longest_idle_of_largest_client(&timeouts, now);
        let is_ended = ended.is_some();
        self.metrics.connection_metrics.evicted_idle.fetch_add(u64::from(is_ended), Ordering::Relaxed);
        self.close_ended(ended);
        is_ended
    }

    /// Refuses a connection of a deleted pod with status 503. Public requests still get their normal answer.
    /// The thread first reads the bytes that the client has already sent. A close with unread bytes resets the connection, and the
    /// reset can overtake the answer. If the bytes contain no complete request, the first dialect writes the refusal.
    pub(super) fn refuse_deleted_pod(
        &self,
        stream: &mut std::net::TcpStream,
        peer: SocketAddr,
        dialects: &Rc<ListenerDialects<P>>,
        tenant: &Tenant<P>,
    ) {
        let mut out = Vec::with_capacity(512);
        let now = self.shared.clock.now();
        let asker = RequestOrigin {
            dialects,
            client: &Client::Refused(GONE),
            tenant,
            peer_ip: peer.ip(),
            received_at: now,
            is_guest: true,
        };
        {
            let read = &mut self.scratch.borrow_mut().read;
            let sent = stream.read(read).unwrap_or_default();
            self.answer_requests(asker, &read[..sent], now, &mut out);
        }
        if out.is_empty() {
            self.write_refusal(dialects, &GONE, &mut out);
        }
        // The send buffer of the socket is empty, so the kernel accepts the whole answer unless the client is gone.
        let _ = stream.write(&out);
    }
}
