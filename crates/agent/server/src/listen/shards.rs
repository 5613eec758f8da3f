//! Keeps the listening sockets (shards) of one traffic thread and finds the shards with waiting connections.
//!
//! Only that thread uses the shards. The shards have a separate poller. Each shard has one backlog, in which the kernel keeps the
//! connections that the thread has not accepted yet.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::net::{SocketFlags, acceptfrom_with, listen};
use seawall_core::{Gcra, Moment, clock};

use super::reserve_shards::{ClientCounts, ReserveShards};
use super::{
    BACKLOG, DEFERRED_SECONDS, ListenerShard, MAX_BACKLOG, OVERLOADED_DEFERRED_SECONDS, ShardKind,
    defer_accept,
};
use crate::admission::{ConnectController, LEAST_BACKLOG, backlog_for_max_wait};
use crate::epoll::{EpollPoller, MAX_EVENTS};
use crate::tcp_info;

/// The number of calls of [`ListenerShards::limit_backlogs`] without overload after which a shard is calm. They are 250 ms apart. A shard whose
/// connections wait only now and then must not change its mind each time.
const CALM_AFTER: u32 = 8;

/// The same after the client that overloaded the shard has moved to a reserve shard: 31 s. The requests of connections that it has left
/// behind may have been dropped, too ([`OVERLOADED_DEFERRED_SECONDS`]). With [`CALM_AFTER`], 269 of 1,100,000 connections were closed
/// without a response.
const CALM_AFTER_MOVE: u32 = 4 * OVERLOADED_DEFERRED_SECONDS;

/// The least time between two updates of the throttles.
const THROTTLE_INTERVAL: Duration = Duration::from_millis(20);

/// The shards of a thread.
#[derive(Debug)]
pub struct ListenerShards {
    poller: EpollPoller,
    lanes: Vec<ListenerShard>,
    /// True if there may be waiting connections that the poller does not report.
    /// The flag is set if one poll reported the maximum number of shards, or if the thread did not accept all connections of a
    /// shard.
    may_have_more: bool,
    /// The shards that the poller does not watch, in the order in which the thread paused them.
    paused: VecDeque<usize>,
    waits: Vec<ShardWait>,
    reserve: ReserveShards,
    /// True from the time when connections begin to wait until the next call of [`Self::take_backlog_period_begun_flag`].
    is_first_left: bool,
    /// True if the thread left connections waiting in a shard, or if a shard has an active throttle.
    must_bound: bool,
    /// True if a shard is not calm yet, or if a client has a reserve shard.
    is_calming: bool,
    /// The last time at which a shard was not calm.
    last_restless: Option<Moment>,
    /// Limits the lines in the log about clients that move to reserve shards.
    logged_moves: Gcra,
    /// The time of the last update of the throttles. `None` from the time when connections begin to wait until the next update.
    last_throttled: Option<Moment>,
}

/// The waiting connections of one shard.
#[derive(Clone, Copy, Debug)]
struct ShardWait {
    is_paused: bool,
    /// True if the thread has left connections waiting since the last call of [`ListenerShards::limit_backlogs`].
    was_left: bool,
    /// True if the poller did not watch the shard for some time since that call.
    was_paused: bool,
    /// The number of connections that the thread has accepted since the last call of [`ListenerShards::limit_backlogs`].
    accepted: u32,
    backlog: i32,
    /// The number of calls of [`ListenerShards::limit_backlogs`] until the shard is calm, if nothing waits meanwhile. Until then, the kernel withholds
    /// silent connections for as long as for an overloaded shard.
    until_calm: u32,
    /// The number of connections that the thread has accepted since the last call of [`ListenerShards::throttle_connects`].
    accepted_since_throttled: u32,
    controller: ConnectController,
    clients: ClientCounts,
}

impl Default for ShardWait {
    fn default() -> Self {
        Self {
            is_paused: false,
            was_left: false,
            was_paused: false,
            accepted: 0,
            backlog: BACKLOG,
            until_calm: 0,
            accepted_since_throttled: 0,
            controller: ConnectController::default(),
            clients: ClientCounts::default(),
        }
    }
}

impl ShardWait {
    /// True if connections wait, or if the kernel still drops some because they waited.
    fn must_bound(&self) -> bool {
        self.was_left || !self.controller.admits_all()
    }

    /// True if the kernel withholds silent connections of the shard only for as long as usual.
    fn is_calm(&self) -> bool {
        self.until_calm == 0
    }

    /// True if the thread may not accept all connections of the shard. A busy thread can also leave connections for its next round.
    fn is_overloaded(&self) -> bool {
        self.was_paused || !self.controller.admits_all()
    }
}

impl ListenerShard {
    /// Changes the length of the backlog, and the time for which the kernel withholds silent connections, where they differ from those in
    /// `before`.
    fn apply_limits(&self, before: &ShardWait, backlog: i32, is_calm: bool) -> io::Result<()> {
        if backlog != before.backlog {
            listen(&self.socket, backlog)?;
        }
        if is_calm != before.is_calm() {
            defer_accept(&self.socket, if is_calm { DEFERRED_SECONDS } else { OVERLOADED_DEFERRED_SECONDS })?;
        }
        Ok(())
    }
}

impl ListenerShards {
    /// Returns the shards of these sockets. A new poller watches the shards. Call this function inside the thread's runtime.
    ///
    /// # Errors
    /// The kernel cannot create an epoll instance, or refuses to watch a socket.
    pub fn new(lanes: Vec<ListenerShard>) -> io::Result<Self> {
        let poller = EpollPoller::new()?;
        let mut reserve = ReserveShards::default();
        for (number, lane) in lanes.iter().enumerate() {
            poller.add(&lane.socket, number as u64, EventFlags::IN)?;
            if lane.kind == ShardKind::Reserve && lane.program.is_some() {
                reserve.add(number, lane.listener_index);
            }
        }
        let waits = vec![ShardWait::default(); lanes.len()];
        Ok(Self {
            poller,
            lanes,
            may_have_more: false,
            paused: VecDeque::new(),
            waits,
            reserve,
            is_first_left: false,
            must_bound: false,
            is_calming: false,
            last_restless: None,
            logged_moves: Gcra::new(1, 1),
            last_throttled: None,
        })
    }

    /// Waits until at least one shard has a waiting connection, then fills `found` with such shards.
    /// The thread must empty these shards or call [`Self::mark_unfinished`].
    ///
    /// # Errors
    /// The poller failed.
    pub async fn wait_for_connections(&mut self, found: &mut Vec<usize>) -> io::Result<()> {
        found.clear();
        while found.is_empty() {
            if !self.may_have_more {
                poll_fn(|context| self.poller.poll_ready(context)).await?;
            }
            let ready = self.poller.for_each_event(|lane, _| found.extend(usize::try_from(lane).ok()))?;
            self.may_have_more = ready == MAX_EVENTS;
        }
        Ok(())
    }

    /// Fills `found` with the shards that have waiting connections now. This function does not block.
    ///
    /// # Errors
    /// The poller failed.
    pub fn collect_ready(&self, found: &mut Vec<usize>) -> io::Result<()> {
        found.clear();
        self.poller.for_each_event(|lane, _| found.extend(usize::try_from(lane).ok()))?;
        Ok(())
    }

    /// Records that connections remain in the shards that were ready.
    pub fn mark_unfinished(&mut self) {
        self.may_have_more = true;
    }

    /// Stops watching a shard, because the thread may not accept the shard's connections now. The connections wait in the kernel and cost
    /// the agent nothing.
    ///
    /// # Errors
    /// The kernel has no memory for the change.
    pub fn pause_shard(&mut self, lane: usize) -> io::Result<()> {
        self.record_left_waiting(lane);
        if !self.waits[lane].is_paused {
            self.poller.change(&self.lanes[lane].socket, lane as u64, EventFlags::empty())?;
            self.waits[lane].is_paused = true;
            self.waits[lane].was_paused = true;
            self.paused.push_back(lane);
        }
        Ok(())
    }

    /// Watches at most `most` paused shards again. The shard that has waited longest comes first.
    ///
    /// # Errors
    /// The kernel has no memory for the change.
    pub fn resume(&mut self, most: usize) -> io::Result<()> {
        for _ in 0..most.min(self.paused.len()) {
            let Some(lane) = self.paused.front().copied() else { break };
            self.poller.change(&self.lanes[lane].socket, lane as u64, EventFlags::IN)?;
            self.paused.pop_front();
            self.waits[lane].is_paused = false;
            // If the thread has not polled since the pause, the shard is still in the kernel's list of ready sockets, and the kernel
            // signals no new event. Therefore the next poll must not wait.
            self.may_have_more = true;
        }
        Ok(())
    }

    /// True if the poller does not watch some shards.
    pub fn has_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// True if the thread must call [`Self::resume`] and [`Self::limit_backlogs`] later.
    pub fn needs_resume(&self) -> bool {
        self.must_look_soon() || self.is_calming
    }

    /// True if connections wait that the thread may accept soon, or if a throttle is active.
    pub fn must_look_soon(&self) -> bool {
        self.has_paused() || self.must_bound
    }

    /// Records that the thread left connections waiting in a shard.
    pub fn record_left_waiting(&mut self, lane: usize) {
        if !self.needs_resume() {
            // The counts of accepted connections restart at zero when the first connection must wait.
            // So do the controllers: a throttle that was switched off for some time may work now.
            for wait in &mut self.waits {
                (wait.accepted, wait.controller) = Default::default();
                wait.clients.clear();
            }
            self.is_first_left = true;
            self.last_throttled = None;
        }
        self.waits[lane].was_left = true;
        self.must_bound = true;
    }

    /// Returns true in the first call after connections began to wait, and false in later calls.
    /// The first period of [`Self::limit_backlogs`] begins at the call that returns true.
    pub fn take_backlog_period_begun_flag(&mut self) -> bool {
        std::mem::take(&mut self.is_first_left)
    }

    /// Sets the lengths of the backlogs, so that no connection waits for long ([`backlog_for_max_wait`]), and the time for which the kernel withholds
    /// silent connections. `period` is the time since the last call.
    ///
    /// # Errors
    /// The kernel refuses a change. The other shards have theirs, and the next call tries again.
    pub fn limit_backlogs(&mut self, now: Moment, period: Duration) -> io::Result<()> {
        let left = || self.waits.iter().filter(|wait| wait.was_left);
        let bounded =
            backlog_for_max_wait(left().map(|wait| wait.accepted).sum(), period, left().count(), BACKLOG);
        let mut result = Ok(());
        for (lane, wait) in self.lanes.iter().zip(&mut self.waits) {
            let throttled = lane.program.as_ref().map(|_| wait.controller.backlog(MAX_BACKLOG));
            let is_bounded = wait.must_bound();
            let backlog = if is_bounded { throttled.unwrap_or(bounded) } else { BACKLOG };
            let is_overloaded = wait.is_overloaded();
            let until_calm = if is_overloaded {
                wait.until_calm.max(CALM_AFTER)
            } else {
                wait.until_calm.saturating_sub(1)
            };
            match lane.apply_limits(wait, backlog, until_calm == 0) {
                Ok(()) => (wait.backlog, wait.until_calm) = (backlog, until_calm),
                Err(error) => result = Err(error),
            }
            if !wait.is_calm() {
                self.last_restless = Some(now);
            }
            (wait.was_left, wait.was_paused, wait.accepted) = (wait.is_paused, wait.is_paused, 0);
        }
        self.must_bound = self.waits.iter().any(ShardWait::must_bound);
        let returned = self.reserve.look(|lane| !self.waits[lane].is_calm());
        for (lane, client) in returned {
            self.lanes[lane].program.iter().for_each(|program| program.end_reserve(client));
        }
        // A failure must not leave a throttle in the kernel when nothing is throttled any more.
        let mut programs: Vec<_> = self.lanes.iter().filter_map(|lane| lane.program.as_ref()).collect();
        programs.dedup_by(|one, other| Arc::ptr_eq(one, other));
        // A failure of one address must not keep the others from it.
        let applied =
            programs.into_iter().map(|program| program.apply_members(now)).fold(Ok(()), io::Result::and);
        self.is_calming = applied.is_err()
            || self.reserve.is_in_use()
            || self.waits.iter().any(|wait| !wait.is_calm() || wait.backlog != BACKLOG);
        result.and(applied)
    }

    /// True if the kernel can withhold connections that are older than [`DEFERRED_SECONDS`], because a shard was overloaded. The kernel
    /// does not look at a connection earlier because the option has changed.
    pub fn may_withhold_for_long(&self, now: Moment) -> bool {
        let longest = Duration::from_secs(OVERLOADED_DEFERRED_SECONDS.into());
        self.last_restless.is_some_and(|last| now.since(last) < longest)
    }

    /// Adjusts the part of new connections that the kernel admits to each shard with waiting connections ([`ConnectController`]), and gives
    /// clients that overload a shard reserve shards ([`ReserveShards`]). The thread may call this function as often as it wants. Most calls
    /// cost nothing.
    ///
    /// # Errors
    /// The kernel refuses to report the length of a backlog, or has no memory for the change.
    pub fn throttle_connects(&mut self, now: Moment) -> io::Result<()> {
        let Some(last) = self.last_throttled else {
            self.last_throttled = Some(now);
            self.waits.iter_mut().for_each(|wait| wait.accepted_since_throttled = 0);
            return Ok(());
        };
        let period = now.since(last);
        if period < THROTTLE_INTERVAL {
            return Ok(());
        }
        self.last_throttled = Some(now);
        (0..self.lanes.len()).for_each(|lane| self.move_heavy_clients(lane, now));
        let (mut changed, mut result) = (None, Ok(()));
        for (lane, wait) in self.lanes.iter().zip(&mut self.waits) {
            let accepted = std::mem::take(&mut wait.accepted_since_throttled);
            let Some(program) = lane.program.as_ref().filter(|_| wait.must_bound()) else {
                wait.controller.reset_while_nothing_waits(period);
                wait.clients.clear();
                continue;
            };
            let waiting = match tcp_info::backlog_length(&lane.socket) {
                Ok(waiting) => waiting,
                Err(error) => {
                    result = Err(error);
                    continue;
                }
            };
            let part = wait.controller.update(period, accepted, waiting);
            program.set_admitted_part(lane.number, part);
            // The shards of an address follow each other.
            if let Some(before) = changed.replace(program).filter(|before| !Arc::ptr_eq(before, program)) {
                result = result.and(before.apply_when_due(now, clock::process_cpu_time()));
            }
        }
        let applied =
            changed.map_or(Ok(()), |program| program.apply_when_due(now, clock::process_cpu_time()));
        result.and(applied)
    }

    /// Gives the clients that overload this shard reserve shards, as far as there are enough.
    fn move_heavy_clients(&mut self, lane: usize, now: Moment) {
        let (shard, wait) = (&self.lanes[lane], &mut self.waits[lane]);
        if !wait.is_overloaded() {
            wait.clients.clear();
            return;
        }
        let heavy = wait.clients.take_heavy();
        let Some(program) =
            shard.program.clone().filter(|_| shard.kind == ShardKind::Usual && !heavy.is_empty())
        else {
            return;
        };
        let listener = shard.listener_index;
        let heavy: Vec<_> = heavy.into_iter().filter(|client| !self.reserve.has(listener, *client)).collect();
        let take = |client: &IpAddr| Some((*client, self.reserve.take(listener, *client)?));
        let moved: Vec<_> = heavy.iter().filter_map(take).collect();
        for (client, (own, before)) in &moved {
            before.iter().for_each(|before| program.end_reserve(*before));
            program.reserve(*client, self.lanes[*own].number);
        }
        if moved.is_empty() {
            return;
        }
        if self.logged_moves.take(now).is_ok() {
            let addresses: Vec<_> = moved.iter().map(|(client, _)| client.to_string()).collect();
            tracing::info!(
                addresses = addresses.join(", "),
                "clients overload their shard of the listener, so each gets a shard of its own"
            );
        }
        let mut controller = ConnectController::default();
        if moved.len() == heavy.len() {
            // The kernel must not go on to drop the connections of the others in this shard.
            program.set_admitted_part(self.lanes[lane].number, 1.0);
            let of_shard = self.waits[lane].controller.move_to_reserve();
            // What the kernel admits of all clients of a shard is far too little for each of several.
            if moved.len() == 1 {
                controller = of_shard;
            }
        }
        self.limit_after_move(lane, self.waits[lane].backlog, CALM_AFTER_MOVE);
        for (_, (own, _)) in moved {
            self.waits[own].controller = controller;
            // Meanwhile the thread also accepts what the client has left in its usual shard, so few connections may wait in the
            // reserve shard.
            self.limit_after_move(own, LEAST_BACKLOG, CALM_AFTER);
        }
    }

    /// Limits a shard from which a client has moved, or to which it has moved. After a failure, the next look tries again.
    fn limit_after_move(&mut self, lane: usize, backlog: i32, until_calm: u32) {
        if self.lanes[lane].apply_limits(&self.waits[lane], backlog, false).is_ok() {
            (self.waits[lane].backlog, self.waits[lane].until_calm) = (backlog, until_calm);
        }
    }

    /// Makes the kernel offer connections to `accept` even if their clients have sent nothing yet.
    /// Otherwise the kernel would reset these connections at the end of the process, although the clients see these connections
    /// as open. If the kernel refuses the change for a shard, only these connections of the shard are lost.
    ///
    /// With a short backlog, the kernel would drop most of those that are older than 3 s instead of offering them (`reqsk_timer_handler` in Linux).
    pub fn disable_deferred_accept(&mut self) {
        for lane in &self.lanes {
            let _ = listen(&lane.socket, MAX_BACKLOG);
            let _ = defer_accept(&lane.socket, 0);
            lane.program.iter().for_each(|program| program.restore());
        }
        let _ = self.resume(usize::MAX);
    }

    /// True if the shard is a reserve shard, whether or not a client has it.
    pub fn is_reserve(&self, lane: usize) -> bool {
        self.lanes[lane].kind == ShardKind::Reserve
    }

    /// True if a connection waits in the backlog of the shard.
    pub fn has_waiting(&self, lane: usize) -> bool {
        tcp_info::backlog_length(&self.lanes[lane].socket).is_ok_and(|waiting| waiting > 0)
    }

    /// Returns the number of the listener to which a shard belongs.
    pub fn listener_index(&self, lane: usize) -> usize {
        self.lanes[lane].listener_index
    }

    /// Accepts one connection. Returns `None` at once if no connection waits.
    ///
    /// # Errors
    /// `accept` failed.
    pub fn accept(&mut self, lane: usize) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer) = match acceptfrom_with(&self.lanes[lane].socket, flags) {
            Ok((socket, Some(peer))) => (socket, SocketAddr::try_from(peer)?),
            Ok((_, None)) => return Ok(None),
            Err(error) if error == rustix::io::Errno::AGAIN => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let wait = &mut self.waits[lane];
        wait.accepted = wait.accepted.saturating_add(1);
        wait.accepted_since_throttled = wait.accepted_since_throttled.saturating_add(1);
        if self.must_bound {
            wait.clients.record(peer.ip().to_canonical());
        }
        Ok(Some((socket.into(), peer)))
    }
}

/// Returns shards of so many listeners on loopback, and their addresses.
#[cfg(test)]
pub(crate) fn new_test_shards(count: usize) -> (ListenerShards, Vec<SocketAddr>) {
    let listeners: Vec<_> = (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().for_each(|one| one.set_nonblocking(true).unwrap());
    let addresses = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
    let lanes = listeners
        .into_iter()
        .map(|socket| ListenerShard {
            socket,
            listener_index: 0,
            number: 0,
            kind: ShardKind::Usual,
            program: None,
            _seal: None,
        })
        .collect();
    (ListenerShards::new(lanes).unwrap(), addresses)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use nix::sys::socket::getsockopt;
    use nix::sys::socket::sockopt::GetStruct;
    use nix::{getsockopt_impl, libc};

    use super::*;

    async fn ready(lanes: &mut ListenerShards) -> Vec<usize> {
        let mut found = Vec::new();
        lanes.wait_for_connections(&mut found).await.unwrap();
        found.sort_unstable();
        found
    }

    #[tokio::test]
    async fn what_is_left_in_a_lane_is_told_again_and_an_emptied_one_is_quiet() {
        let (mut lanes, addresses) = new_test_shards(3);
        let _clients = [0, 0, 2].map(|lane: usize| TcpStream::connect(addresses[lane]).unwrap());
        assert_eq!(ready(&mut lanes).await, [0, 2]);
        assert!(lanes.accept(0).unwrap().is_some());
        assert!(lanes.accept(2).unwrap().is_some());
        lanes.mark_unfinished();
        assert_eq!(ready(&mut lanes).await, [0]);
        assert!(lanes.accept(0).unwrap().is_some());
        assert!(lanes.accept(0).unwrap().is_none());
        let mut found = Vec::new();
        assert!(
            pin!(lanes.wait_for_connections(&mut found))
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }

    #[tokio::test]
    async fn a_paused_lane_is_quiet_until_it_is_resumed() {
        let (mut lanes, addresses) = new_test_shards(2);
        let _clients = [0, 1].map(|lane: usize| TcpStream::connect(addresses[lane]).unwrap());
        lanes.pause_shard(0).unwrap();
        assert_eq!(ready(&mut lanes).await, [1]);
        assert!(lanes.accept(1).unwrap().is_some());
        assert!(lanes.needs_resume());
        lanes.resume(1).unwrap();
        assert_eq!(ready(&mut lanes).await, [0]);
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    /// Limits the backlogs once, 250 ms after the last time.
    fn look(lanes: &mut ListenerShards, seconds: u64) {
        lanes.limit_backlogs(at(seconds), Duration::from_millis(250)).unwrap();
    }

    getsockopt_impl!(DeferredSeconds, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, u32, GetStruct<u32>);

    /// The time for which the kernel withholds silent connections (tcp(7), TCP_DEFER_ACCEPT).
    #[derive(Clone, Copy, Debug)]
    struct DeferredSeconds;

    /// Returns the time for which the kernel withholds silent connections of each shard.
    fn deferred_seconds(lanes: &ListenerShards) -> Vec<u32> {
        lanes.lanes.iter().map(|lane| getsockopt(&lane.socket, DeferredSeconds).unwrap()).collect()
    }

    /// Regression: requests that a full backlog had dropped came after the agent had closed their connections as silent.
    #[tokio::test]
    async fn an_overloaded_shard_withholds_silent_connections_until_dropped_requests_are_repeated() {
        let (mut lanes, _) = new_test_shards(2);
        lanes.lanes.iter().for_each(|lane| defer_accept(&lane.socket, DEFERRED_SECONDS).unwrap());
        lanes.pause_shard(0).unwrap();
        lanes.resume(1).unwrap();
        // So many connections that the bound is the length of a calm shard's backlog.
        lanes.waits[0].accepted = 200;
        for number in 0..CALM_AFTER {
            look(&mut lanes, 0);
            assert_eq!(deferred_seconds(&lanes), [OVERLOADED_DEFERRED_SECONDS, DEFERRED_SECONDS], "{number}");
            assert!(lanes.needs_resume() && !lanes.must_look_soon() && lanes.waits[0].backlog == BACKLOG);
        }
        look(&mut lanes, 0);
        assert_eq!(deferred_seconds(&lanes), [DEFERRED_SECONDS; 2]);
        assert!(!lanes.needs_resume());
        assert!(lanes.may_withhold_for_long(at(30)) && !lanes.may_withhold_for_long(at(31)));
    }

    /// A thread that serves many shards leaves connections for its next round, without overload.
    #[tokio::test]
    async fn a_shard_that_is_only_left_for_the_next_round_is_not_overloaded() {
        let (mut lanes, _) = new_test_shards(1);
        lanes.lanes.iter().for_each(|lane| defer_accept(&lane.socket, DEFERRED_SECONDS).unwrap());
        lanes.record_left_waiting(0);
        look(&mut lanes, 0);
        assert_eq!(deferred_seconds(&lanes), [DEFERRED_SECONDS]);
        assert!(!lanes.may_withhold_for_long(at(0)));
    }

    /// Otherwise the kernel drops connections that it withheld when the agent is replaced.
    #[tokio::test]
    async fn a_closing_shard_withholds_nothing_and_has_a_long_backlog() {
        let (mut lanes, _) = new_test_shards(1);
        lanes.record_left_waiting(0);
        look(&mut lanes, 0);
        let backlog = |lanes: &ListenerShards| tcp_info::backlog_limit(&lanes.lanes[0].socket).unwrap();
        assert_eq!(backlog(&lanes), 8);
        lanes.disable_deferred_accept();
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let most = most.trim().parse::<u32>().unwrap().min(MAX_BACKLOG as u32);
        assert_eq!((deferred_seconds(&lanes), backlog(&lanes)), (vec![0], most));
    }

    /// Returns the shards of an address, 8 usual ones and 2 reserve shards, and the address.
    fn shards_with_reserve() -> (ListenerShards, SocketAddr) {
        let mut listeners = super::super::bind(&[SocketAddr::from(([127, 0, 0, 1], 0))], 1, 8).unwrap();
        let lanes = ListenerShards::new(listeners.shards_by_thread.pop().unwrap()).unwrap();
        (lanes, listeners.bound_addresses()[0])
    }

    fn connect_from(host: [u8; 4], address: SocketAddr) -> socket2::Socket {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((host, 0)).into()).unwrap();
        socket.connect_timeout(&address.into(), Duration::from_secs(5)).unwrap();
        socket.send(b"G").unwrap();
        socket
    }

    /// Accepts 40 connections of each of these clients, in turn.
    fn accept_many(lanes: &mut ListenerShards, lane: usize, address: SocketAddr, hosts: &[[u8; 4]]) {
        for _ in 0..40 {
            for host in hosts {
                connect_from(*host, address);
                lanes.accept(lane).unwrap().unwrap();
            }
        }
    }

    fn throttle(lanes: &mut ListenerShards, seconds: u64) {
        lanes.throttle_connects(at(seconds)).unwrap();
        lanes.throttle_connects(at(seconds) + THROTTLE_INTERVAL).unwrap();
    }

    /// Regression: three clients with a third of the connections each stayed in their shard, and another one got 5 answers of 400 there.
    #[tokio::test]
    async fn clients_that_overload_a_shard_together_move_together_as_far_as_there_are_reserve_shards() {
        let loud = [1, 2, 3].map(|network| [127, 0, network, 3]);
        for (count, is_throttled) in [(2, false), (3, true)] {
            let (mut lanes, address) = shards_with_reserve();
            lanes.record_left_waiting(3);
            while lanes.waits[3].controller.update(THROTTLE_INTERVAL, 1, 250) > 0.05 {}
            accept_many(&mut lanes, 3, address, &loud[..count]);
            throttle(&mut lanes, 1);
            // A throttled shard must not be without its throttle while a client overloads it.
            assert_eq!(!lanes.waits[3].controller.admits_all(), is_throttled, "{count} clients");
            let program = lanes.lanes[3].program.clone().unwrap();
            program.set_admitted_part(3, 1.0);
            program.apply(at(2)).unwrap();
            let _clients = loud.map(|host| connect_from(host, address));
            let moved: Vec<_> =
                [9, 10].iter().map(|own| lanes.accept(*own).unwrap().map(|(_, peer)| peer.ip())).collect();
            assert!(moved.iter().all(Option::is_some) && moved[0] != moved[1], "{moved:?}");
            assert!(lanes.accept(3).unwrap().is_some(), "the third client");
            assert!([9, 10].iter().all(|own| lanes.waits[*own].controller.admits_all()));
        }
    }

    #[tokio::test]
    async fn what_a_client_has_left_in_its_usual_shard_gets_it_no_second_reserve_shard() {
        let (mut lanes, address) = shards_with_reserve();
        let loud = [127, 0, 1, 3];
        lanes.record_left_waiting(3);
        while lanes.waits[3].controller.update(THROTTLE_INTERVAL, 1, 250) > 0.05 {}
        accept_many(&mut lanes, 3, address, &[loud]);
        throttle(&mut lanes, 1);
        let listener = lanes.lanes[3].listener_index;
        assert!(lanes.reserve.has(listener, loud.into()));
        (0..40).for_each(|_| lanes.waits[3].clients.record(loud.into()));
        lanes.waits[3].was_paused = true;
        throttle(&mut lanes, 2);
        let free = lanes.reserve.take(listener, IpAddr::from([127, 0, 2, 3]));
        assert_eq!(free, Some((9, None)), "the other one is free");
    }

    /// Regression: beside 4,000 silent connections, another client of the shard got no answer in 10 s.
    #[tokio::test]
    async fn a_client_that_overloads_its_shard_gets_another_one_until_it_is_calm() {
        let (mut lanes, address) = shards_with_reserve();
        let [lane, own] = [3, 10];
        let connect = |host| connect_from(host, address);
        let (loud, other) = ([127, 0, 0, 3], [127, 0, 1, 3]);
        lanes.record_left_waiting(lane);
        accept_many(&mut lanes, lane, address, &[loud]);
        throttle(&mut lanes, 0);
        let _left = connect(loud);
        assert!(lanes.accept(own).unwrap().is_none(), "a busy thread alone is no overload");
        lanes.accept(lane).unwrap().unwrap();

        // No connection waits any more, but the kernel still drops nearly all connections of the shard.
        while lanes.waits[lane].controller.update(THROTTLE_INTERVAL, 1, 250) > 0.05 {}
        accept_many(&mut lanes, lane, address, &[loud]);
        let program = lanes.lanes[lane].program.clone().unwrap();
        program.set_admitted_part(lane, 0.0);
        program.apply(at(1)).unwrap();
        look(&mut lanes, 1);
        assert!(!lanes.waits[lane].was_left);
        throttle(&mut lanes, 1);
        assert!(!lanes.waits[own].controller.admits_all(), "its throttle moves, too");
        for seconds in 0..31 {
            assert_eq!(
                [lane, own].map(|lane| deferred_seconds(&lanes)[lane]),
                [OVERLOADED_DEFERRED_SECONDS; 2],
                "{seconds} s"
            );
            (0..4).for_each(|_| look(&mut lanes, seconds));
        }
        assert!(lanes.may_withhold_for_long(at(40)), "connections of the usual shard");
        program.set_admitted_part(own, 1.0);
        program.apply(at(1)).unwrap();
        let _clients = [connect(loud), connect(other)];
        assert_eq!(lanes.accept(own).unwrap().unwrap().1.ip(), IpAddr::from(loud));
        assert_eq!(lanes.accept(lane).unwrap().unwrap().1.ip(), IpAddr::from(other));

        for seconds in 2..1000 {
            assert!(lanes.needs_resume());
            throttle(&mut lanes, seconds);
            look(&mut lanes, seconds);
            if !lanes.reserve.is_in_use() {
                break;
            }
        }
        assert!(!lanes.reserve.is_in_use());
        let _client = connect(loud);
        assert!(lanes.accept(own).unwrap().is_none() && lanes.accept(lane).unwrap().is_some());
    }

    #[tokio::test]
    async fn a_backlog_is_short_while_connections_wait_in_it_and_long_again_later() {
        let (mut lanes, addresses) = new_test_shards(2);
        let _client = TcpStream::connect(addresses[0]).unwrap();
        assert_eq!(ready(&mut lanes).await, [0]);
        assert!(lanes.accept(0).unwrap().is_some());
        lanes.record_left_waiting(0);
        look(&mut lanes, 0);
        assert_eq!([lanes.waits[0].backlog, lanes.waits[1].backlog], [8, BACKLOG]);
        assert!(lanes.needs_resume(), "the bound must be taken back later");
        look(&mut lanes, 0);
        assert_eq!(lanes.waits[0].backlog, BACKLOG);
        assert!(!lanes.needs_resume());
    }

    #[tokio::test]
    async fn more_lanes_than_fit_one_look_are_all_told() {
        let (mut lanes, addresses) = new_test_shards(MAX_EVENTS * 2 + 5);
        let clients: Vec<_> = addresses.iter().map(|at| TcpStream::connect(at).unwrap()).collect();
        let mut accepted = 0;
        while accepted < clients.len() {
            for lane in ready(&mut lanes).await {
                accepted += usize::from(lanes.accept(lane).unwrap().is_some());
            }
        }
    }
}
