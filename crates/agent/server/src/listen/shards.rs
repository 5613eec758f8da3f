//! Keeps the listening sockets (shards) of one traffic thread and finds the shards with waiting connections.
//!
//! Only that thread uses the shards. The shards have a separate poller. Each shard has one backlog, in which the kernel keeps the
//! connections that the thread has not accepted yet.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::net::{SocketFlags, acceptfrom_with, listen};
use seawall_core::Moment;

use super::{BACKLOG, ListenerShard, MAX_BACKLOG, defer_accept};
use crate::admission::{ConnectController, backlog_for_max_wait};
use crate::epoll::{EpollPoller, MAX_EVENTS};
use crate::tcp_info;

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
    /// True from the time when connections begin to wait until the next call of [`Self::take_backlog_period_begun_flag`].
    is_first_left: bool,
    /// True if the thread left connections waiting in a shard, or if a shard has a shortened backlog or an active throttle.
    must_bound: bool,
    /// The time of the last update of the throttles. `None` from the time when connections begin to wait until the next update.
    last_throttled: Option<Moment>,
}

/// The waiting connections of one shard.
#[derive(Clone, Copy, Debug)]
struct ShardWait {
    is_paused: bool,
    /// True if the thread has left connections waiting since the last call of [`ListenerShards::limit_backlogs`].
    was_left: bool,
    /// The number of connections that the thread has accepted since the last call of [`ListenerShards::limit_backlogs`].
    accepted: u32,
    backlog: i32,
    /// The number of connections that the thread has accepted since the last call of [`ListenerShards::throttle_connects`].
    accepted_since_throttled: u32,
    controller: ConnectController,
}

impl Default for ShardWait {
    fn default() -> Self {
        Self {
            is_paused: false,
            was_left: false,
            accepted: 0,
            backlog: BACKLOG,
            accepted_since_throttled: 0,
            controller: ConnectController::default(),
        }
    }
}

impl ShardWait {
    /// True if connections wait, or if the kernel still drops some because they waited.
    fn must_bound(&self) -> bool {
        self.was_left || !self.controller.admits_all()
    }
}

impl ListenerShards {
    /// Returns the shards of these sockets. A new poller watches the shards. Call this function inside the thread's runtime.
    ///
    /// # Errors
    /// The kernel cannot create an epoll instance, or refuses to watch a socket.
    pub fn new(lanes: Vec<ListenerShard>) -> io::Result<Self> {
        let poller = EpollPoller::new()?;
        for (number, lane) in lanes.iter().enumerate() {
            poller.add(&lane.socket, number as u64, EventFlags::IN)?;
        }
        let waits = vec![ShardWait::default(); lanes.len()];
        Ok(Self {
            poller,
            lanes,
            may_have_more: false,
            paused: VecDeque::new(),
            waits,
            is_first_left: false,
            must_bound: false,
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

    /// True if the thread must call [`Self::resume`] and [`Self::limit_backlogs`] later.
    pub fn needs_resume(&self) -> bool {
        !self.paused.is_empty() || self.must_bound
    }

    /// Records that the thread left connections waiting in a shard.
    pub fn record_left_waiting(&mut self, lane: usize) {
        if !self.needs_resume() {
            // The counts of accepted connections restart at zero when the first connection must wait.
            self.waits.iter_mut().for_each(|wait| wait.accepted = 0);
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

    /// Sets the lengths of the backlogs, so that no connection waits for long ([`backlog_for_max_wait`]).
    /// `period` is the time since the last call.
    ///
    /// # Errors
    /// The kernel refuses the new length.
    pub fn limit_backlogs(&mut self, period: Duration) -> io::Result<()> {
        let left = || self.waits.iter().filter(|wait| wait.was_left);
        let bounded =
            backlog_for_max_wait(left().map(|wait| wait.accepted).sum(), period, left().count(), BACKLOG);
        for (lane, wait) in self.lanes.iter().zip(&mut self.waits) {
            let throttled = lane.throttle.as_ref().map(|_| wait.controller.backlog(MAX_BACKLOG));
            let backlog = if wait.must_bound() { throttled.unwrap_or(bounded) } else { BACKLOG };
            if backlog != wait.backlog {
                listen(&lane.socket, backlog)?;
            }
            *wait = ShardWait { was_left: wait.is_paused, accepted: 0, backlog, ..*wait };
        }
        self.must_bound = self.waits.iter().any(|wait| wait.must_bound() || wait.backlog != BACKLOG);
        Ok(())
    }

    /// Adjusts the part of new connections that the kernel admits to each shard with waiting connections ([`ConnectController`]). The thread
    /// may call this function as often as it wants. Most calls cost nothing.
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
        let mut changed = None;
        for (lane, wait) in self.lanes.iter().zip(&mut self.waits) {
            let accepted = std::mem::take(&mut wait.accepted_since_throttled);
            let Some(throttle) = lane.throttle.as_ref().filter(|_| wait.must_bound()) else {
                wait.controller = ConnectController::default();
                continue;
            };
            let part = wait.controller.update(period, accepted, tcp_info::backlog_length(&lane.socket)?);
            throttle.set_admitted_part(lane.number, part);
            // The shards of an address follow each other.
            if let Some(before) = changed.replace(throttle).filter(|before| !Arc::ptr_eq(before, throttle)) {
                before.apply(now)?;
            }
        }
        changed.map_or(Ok(()), |throttle| throttle.apply(now))
    }

    /// Makes the kernel offer connections to `accept` even if their clients have sent nothing yet.
    /// Otherwise the kernel would reset these connections at the end of the process, although the clients see these connections
    /// as open. If the kernel refuses the change for a shard, only these connections of the shard are lost.
    pub fn disable_deferred_accept(&mut self) {
        for lane in &self.lanes {
            let _ = defer_accept(&lane.socket, 0);
            lane.throttle.iter().for_each(|throttle| throttle.disable());
        }
        let _ = self.resume(usize::MAX);
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
        Ok(Some((socket.into(), peer)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn lanes(count: usize) -> (ListenerShards, Vec<SocketAddr>) {
        let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        listeners.iter().for_each(|one| one.set_nonblocking(true).unwrap());
        let addresses = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        let lanes = listeners
            .into_iter()
            .map(|socket| ListenerShard { socket, listener_index: 0, number: 0, throttle: None, _seal: None })
            .collect();
        (ListenerShards::new(lanes).unwrap(), addresses)
    }

    async fn ready(lanes: &mut ListenerShards) -> Vec<usize> {
        let mut found = Vec::new();
        lanes.wait_for_connections(&mut found).await.unwrap();
        found.sort_unstable();
        found
    }

    #[tokio::test]
    async fn what_is_left_in_a_lane_is_told_again_and_an_emptied_one_is_quiet() {
        let (mut lanes, addresses) = lanes(3);
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
        let (mut lanes, addresses) = lanes(2);
        let _clients = [0, 1].map(|lane: usize| TcpStream::connect(addresses[lane]).unwrap());
        lanes.pause_shard(0).unwrap();
        assert_eq!(ready(&mut lanes).await, [1]);
        assert!(lanes.accept(1).unwrap().is_some());
        assert!(lanes.needs_resume());
        lanes.resume(1).unwrap();
        assert_eq!(ready(&mut lanes).await, [0]);
    }

    #[tokio::test]
    async fn a_backlog_is_short_while_connections_wait_in_it_and_long_again_later() {
        let (mut lanes, addresses) = lanes(2);
        let _client = TcpStream::connect(addresses[0]).unwrap();
        assert_eq!(ready(&mut lanes).await, [0]);
        assert!(lanes.accept(0).unwrap().is_some());
        lanes.record_left_waiting(0);
        lanes.limit_backlogs(Duration::from_millis(250)).unwrap();
        assert_eq!([lanes.waits[0].backlog, lanes.waits[1].backlog], [8, BACKLOG]);
        assert!(lanes.needs_resume(), "the bound must be taken back later");
        lanes.limit_backlogs(Duration::from_millis(250)).unwrap();
        assert_eq!(lanes.waits[0].backlog, BACKLOG);
        assert!(!lanes.needs_resume());
    }

    #[tokio::test]
    async fn more_lanes_than_fit_one_look_are_all_told() {
        let (mut lanes, addresses) = lanes(MAX_EVENTS * 2 + 5);
        let clients: Vec<_> = addresses.iter().map(|at| TcpStream::connect(at).unwrap()).collect();
        let mut accepted = 0;
        while accepted < clients.len() {
            for lane in ready(&mut lanes).await {
                accepted += usize::from(lanes.accept(lane).unwrap().is_some());
            }
        }
    }
}
