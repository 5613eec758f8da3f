//! Which connections have something to do, and the loop that has them do it.
//!
//! One task of the runtime serves all connections of its thread: what the poller tells of, and what has its turn or comes back
//! from a wait. A task for each connection took 11.7 µs of CPU for a request where this takes 10.9
//! (docs/decisions/threads.md), for the most part in memory that was no longer in any cache; only what takes time is one now
//! ([`mod@super::pending`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};

use crate::connection_table::ConnectionKey;
use crate::epoll::EpollPoller;

/// What there is to do on a thread.
pub(super) struct ReadyQueue {
    pub(super) poller: EpollPoller,
    /// Connections that go on. One may stand here twice, or be gone: it is looked at, and that is all.
    pub(super) queue: RefCell<VecDeque<ConnectionKey>>,
    /// There may be more than the last look told of.
    pub(super) may_have_more: Cell<bool>,
    /// The loop, while it waits.
    pub(super) waker: Cell<Option<Waker>>,
}

impl ReadyQueue {
    /// None yet. Must be called inside the thread's runtime.
    ///
    /// # Errors
    /// The kernel gives no poller.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            poller: EpollPoller::new()?,
            queue: RefCell::default(),
            may_have_more: Cell::new(false),
            waker: Cell::default(),
        })
    }

    /// This connection goes on.
    pub(super) fn push(&self, key: ConnectionKey) {
        self.queue.borrow_mut().push_back(key);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Whether there is something that nobody will tell of.
    pub(super) fn has_pending(&self) -> bool {
        self.may_have_more.get() || !self.queue.borrow().is_empty()
    }

    pub(super) fn poll_pending(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_pending() {
            return Poll::Ready(Ok(()));
        }
        self.waker.set(Some(context.waker().clone()));
        self.poller.poll_ready(context)
    }
}
