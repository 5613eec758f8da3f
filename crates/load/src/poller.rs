//! Waits for sockets, for an exact time, and for a wake-up call, with epoll(7), timerfd(2) and eventfd(2).
//!
//! Sockets are registered once, edge-triggered, and never changed: a short read shows that a socket is drained (epoll(7),
//! question 9). The alarm is a timerfd and not epoll's own timeout, which has a resolution of milliseconds before Linux 5.11 and
//! is subject to timer slack after it; a timerfd is exact in both.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::BorrowedFd;
use rustix::io::{self, Errno};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock::{Nanos, RunClock};
use crate::transport::socket::keep_kernel_timestamping;

/// The events of a poll.
pub(crate) use rustix::event::epoll::{Event, EventFlags};

/// The tokens that do not belong to a socket.
const ALARM: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

/// The maximum number of events of one poll. The sender looks at the schedule between two events, but a batch also delays sockets
/// that become ready after it.
const BATCH: usize = 256;

/// The maximum time between two looks at the clock of a thread that runs. A step of the loop takes some ten microseconds. After a
/// longer time the thread was asleep or without a CPU, and the data that it reads next may have waited.
const STEP: Nanos = 100_000;

/// The poller of one thread.
#[derive(Debug)]
pub(crate) struct EventPoller {
    epoll: OwnedFd,
    alarm: OwnedFd,
    wake: Arc<OwnedFd>,
    clock: RunClock,
    /// The time when the alarm rings; in the past if it has rung.
    armed: Nanos,
    lateness: ReaderLateness,
    /// The socket that keeps kernel timestamps on; it is only kept open.
    _stamping: Option<OwnedFd>,
}

/// Tells whether data waited before this thread read it. That is so if the thread did not look at the clock for long, in this
/// batch of events or in the batch before. Asking the kernel for the arrival time costs a twentieth of a request, so a thread
/// that is always busy does not ask.
#[derive(Debug, Default)]
struct ReaderLateness {
    looked: Cell<Nanos>,
    batches: Cell<u8>,
}

impl ReaderLateness {
    #[inline]
    fn look(&self, now: Nanos) {
        if now.saturating_sub(self.looked.replace(now)) > STEP {
            self.batches.set(2);
        }
    }

    #[inline]
    fn begin_batch(&self) {
        self.batches.set(self.batches.get().saturating_sub(1));
    }
}

/// Wakes a poller from another thread.
#[derive(Debug, Clone)]
pub(crate) struct SenderWaker(Arc<OwnedFd>);

impl SenderWaker {
    pub(crate) fn wake(&self) {
        // A full counter means that the poller is about to wake anyway.
        let _ = io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// Returns the token of the socket that an event belongs to; `None` if the event belongs to no socket.
pub(crate) fn event_socket_token(event: &Event) -> Option<u64> {
    Some(event.data.u64()).filter(|&token| token < WAKE)
}

impl EventPoller {
    pub(crate) fn new(clock: RunClock) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let alarm =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &alarm, epoll::EventData::new_u64(ALARM), edge)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), edge)?;
        Ok(Self {
            epoll,
            alarm,
            wake: Arc::new(wake),
            clock,
            armed: 0,
            lateness: ReaderLateness::default(),
            _stamping: keep_kernel_timestamping(),
        })
    }

    pub(crate) fn waker(&self) -> SenderWaker {
        SenderWaker(Arc::clone(&self.wake))
    }

    #[inline]
    pub(crate) fn clock(&self) -> &RunClock {
        &self.clock
    }

    /// Returns the time, and notes that the thread looked at the clock.
    #[inline]
    pub(crate) fn read_clock(&self) -> Nanos {
        let now = self.clock.now();
        self.lateness.look(now);
        now
    }

    /// True if the data that is read now waited before this thread read it.
    #[inline]
    pub(crate) fn may_data_have_waited(&self) -> bool {
        self.lateness.batches.get() > 0
    }

    /// Makes a buffer for one batch of events.
    pub(crate) fn new_event_buffer() -> Vec<Event> {
        Vec::with_capacity(BATCH)
    }

    /// Registers a socket until it is closed.
    pub(crate) fn watch(&self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), watched())
    }

    /// Makes epoll report a socket again that has not been drained.
    pub(crate) fn watch_again(&self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(token), watched())
    }

    /// Collects the events that are ready now, without waiting.
    pub(crate) fn poll(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        self.collect(events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    /// Waits until an event is ready, or until `until` or shortly before; an earlier alarm is left as it is.
    pub(crate) fn wait(&mut self, events: &mut Vec<Event>, now: Nanos, until: Nanos) -> io::Result<()> {
        if until < self.armed || self.armed <= now {
            let value = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: self.clock.timespec(until),
            };
            timerfd_settime(&self.alarm, TimerfdTimerFlags::ABSTIME, &value)?;
            self.armed = until;
        }
        self.collect(events, None)
    }

    fn collect(&mut self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> io::Result<()> {
        events.clear();
        self.lateness.begin_batch();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn watched() -> EventFlags {
    EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_at_work_is_not_late() {
        let lateness = ReaderLateness::default();
        for step in 1..1000 {
            lateness.begin_batch();
            lateness.look(step * STEP);
            assert_eq!(lateness.batches.get(), 0);
        }
    }

    /// Data that came in the meantime is in the next batch at the latest.
    #[test]
    fn a_thread_that_was_away_is_late_with_this_batch_and_the_next() {
        let lateness = ReaderLateness::default();
        lateness.look(STEP + 1);
        assert_eq!(lateness.batches.get(), 2);
        for late in [1, 0, 0] {
            lateness.begin_batch();
            lateness.look(STEP + 2);
            assert_eq!(lateness.batches.get(), late);
        }
    }
}
