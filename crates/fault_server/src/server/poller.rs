//! An event poller with a timer of microsecond precision and a wake-up from other threads: epoll(7), timerfd(2) and eventfd(2).
//!
//! The timers of an async runtime have milliseconds: a pool of 5 ms would be one of 6.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{self, Errno};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use seawall_core::Moment;

pub(super) use rustix::event::epoll::Event;

/// The poller's token of the listener.
pub(super) const LISTENER_TOKEN: u64 = u64::MAX;
/// The poller's token of the DNS socket.
pub(super) const DNS_TOKEN: u64 = u64::MAX - 1;
const CALL: u64 = u64::MAX - 2;
const ALARM: u64 = u64::MAX - 3;

/// The most events taken at once.
const BATCH: usize = 256;

const SECOND: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct FaultServerPoller {
    epoll: OwnedFd,
    alarm: OwnedFd,
    call: Arc<OwnedFd>,
    armed: Option<Moment>,
}

/// Wakes the event loop from another thread.
#[derive(Clone, Debug)]
pub(super) struct PollerWaker(Arc<OwnedFd>);

impl PollerWaker {
    pub(super) fn wake(&self) {
        // A full counter means that the loop will wake anyway.
        let _ = io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

impl FaultServerPoller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // The timer uses the clock of `core::Clock`.
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let alarm = timerfd_create(TimerfdClockId::Boottime, flags)?;
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Both are edge-triggered and never read: each expiry and each wake-up is one event.
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &alarm, EventData::new_u64(ALARM), edge)?;
        epoll::add(&epoll, &call, EventData::new_u64(CALL), edge)?;
        Ok(Self { epoll, alarm, call: Arc::new(call), armed: None })
    }

    pub(super) fn event_buffer() -> Vec<Event> {
        Vec::with_capacity(BATCH)
    }

    pub(super) fn waker(&self) -> PollerWaker {
        PollerWaker(self.call.clone())
    }

    /// Watches a socket, edge-triggered: after an event, all input must be read.
    pub(super) fn watch(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, socket, EventData::new_u64(token), edges)
    }

    /// Watches a socket, level-triggered for input.
    pub(super) fn watch_level_triggered(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        epoll::add(&self.epoll, socket, EventData::new_u64(token), EventFlags::IN)
    }

    /// Stops watching a socket.
    pub(super) fn unwatch(&self, socket: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.epoll, socket)
    }

    /// Waits until a source is ready, or until this time if given.
    pub(super) fn wait(&mut self, events: &mut Vec<Event>, until: Option<Moment>) -> io::Result<()> {
        events.clear();
        if let Some(until) = until.filter(|until| self.armed != Some(*until)) {
            self.arm(until)?;
        }
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        events.retain(|event| event.data.u64() != CALL && event.data.u64() != ALARM);
        Ok(())
    }

    fn arm(&mut self, until: Moment) -> io::Result<()> {
        let part = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        let it_value =
            Timespec { tv_sec: part(until.as_nanos() / SECOND), tv_nsec: part(until.as_nanos() % SECOND) };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.alarm, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        self.armed = Some(until);
        Ok(())
    }
}

/// Returns whether the peer has closed its side or the connection is broken.
pub(super) fn is_peer_closed(event: &Event) -> bool {
    let flags = event.flags;
    flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
}
