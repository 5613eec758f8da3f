//! Readiness of many descriptors of one thread, over epoll(7), of which the runtime watches only the poller's own. Used by the thread
//! and its listening sockets.
//!
//! Registered with the runtime one by one, each would cost it an allocation and a task to be woken.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Most descriptors that one look tells of.
pub(crate) const MAX_EVENTS: usize = 256;

/// A poller of this thread's runtime.
#[derive(Debug)]
pub(crate) struct EpollPoller {
    epoll: AsyncFd<OwnedFd>,
}

impl EpollPoller {
    /// One that watches nothing yet. Must be called inside the thread's runtime.
    ///
    /// # Errors
    /// The kernel gives none.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: watched(epoll::create(CreateFlags::CLOEXEC)?)? })
    }

    /// Watches a descriptor until it is closed; `token` is what its events are told by.
    ///
    /// # Errors
    /// The kernel does not take it: no memory, or too many.
    pub(crate) fn add(&self, one: impl AsFd, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(self.epoll.get_ref(), one, EventData::new_u64(token), flags)?)
    }

    /// Watches one that was added for something else from now on; what of that is so already is told.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub(crate) fn change(&self, one: impl AsFd, token: u64, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(self.epoll.get_ref(), one, EventData::new_u64(token), flags)?)
    }

    /// Ready when there is something to look for that was not told of before. What comes from then on is told again.
    ///
    /// # Errors
    /// The poller failed.
    pub(crate) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Cleared before anybody looks.
        ready!(self.epoll.poll_read_ready(context))?.clear_ready();
        Poll::Ready(Ok(()))
    }

    /// Tells what is ready now, without waiting: how many descriptors that were. At [`MAX_EVENTS`] there may be more, of which nothing
    /// is told.
    ///
    /// # Errors
    /// The poller failed.
    pub(crate) fn collect_events(&self, mut tell: impl FnMut(u64, EventFlags)) -> io::Result<usize> {
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
    reason = "its successor is unsafe for types that may change their descriptor; an OwnedFd never does"
)]
fn watched(epoll: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(epoll, Interest::READABLE)
}
