//! Watches the file descriptors of one traffic thread with epoll(7): its connections and its listening sockets.
//!
//! The async runtime watches only the poller's own descriptor. If the runtime watched each descriptor, each descriptor would need
//! an allocation and a separate task.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The largest number of events that one call to [`EpollPoller::for_each_event`] reports.
pub(crate) const MAX_EVENTS: usize = 256;

/// A poller that belongs to one thread's runtime.
#[derive(Debug)]
pub(crate) struct EpollPoller {
    epoll: AsyncFd<OwnedFd>,
}

impl EpollPoller {
    /// Returns a poller that watches no descriptors yet. Call this function inside the thread's runtime.
    ///
    /// # Errors
    /// The kernel cannot create an epoll instance.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: watched(epoll::create(CreateFlags::CLOEXEC)?)? })
    }

    /// Watches a descriptor until the process closes it. The events of this descriptor carry `token`.
    ///
    /// # Errors
    /// The kernel has no memory to watch the descriptor, or too many descriptors are watched.
    pub(crate) fn add(&self, one: impl AsFd, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(self.epoll.get_ref(), one, EventData::new_u64(token), flags)?)
    }

    /// Replaces the set of events that the poller reports for a descriptor. The poller also reports events that are already
    /// pending.
    ///
    /// # Errors
    /// The kernel has no memory for the change.
    pub(crate) fn change(&self, one: impl AsFd, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(self.epoll.get_ref(), one, EventData::new_u64(token), flags)?)
    }

    /// Stops watching a descriptor that stays open.
    pub(crate) fn remove(&self, one: impl AsFd) {
        // The only cause is a descriptor that is not watched.
        let _ = epoll::delete(self.epoll.get_ref(), one);
    }

    /// Returns ready when there are events that the poller has not reported before. Later events make the poller ready again.
    ///
    /// # Errors
    /// The poller failed.
    pub(crate) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Clear the readiness before the caller collects the events. Otherwise an event between the two steps would be lost.
        ready!(self.epoll.poll_read_ready(context))?.clear_ready();
        Poll::Ready(Ok(()))
    }

    /// Reports the pending events to `tell`. Never waits. Returns the number of reported descriptors.
    /// If the result is [`MAX_EVENTS`], more events may be pending.
    ///
    /// # Errors
    /// The poller failed.
    pub(crate) fn for_each_event(&self, mut tell: impl FnMut(u64, EventFlags)) -> io::Result<usize> {
        let mut room = [const { MaybeUninit::<Event>::uninit() }; MAX_EVENTS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let (ready, _) = match epoll::wait(self.epoll.get_ref(), &mut room, Some(&now)) {
            Err(Errno::INTR) => return Ok(0),
            waited => waited?,
        };
        ready.iter().for_each(|event| tell(event.data.u64(), event.flags));
        Ok(ready.len())
    }
}

#[expect(
    deprecated,
    reason = "the replacement API is unsafe because some types can change their descriptor; an OwnedFd keeps its descriptor"
)]
fn watched(epoll: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(epoll, Interest::READABLE)
}
