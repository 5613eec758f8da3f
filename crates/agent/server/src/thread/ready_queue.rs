//! The connections that have work to do, and the wait for more of them.
//!
//! One task of the runtime serves all connections of its thread: those with events of the poller, and those that have their turn or
//! return from a wait. A task for each connection took 11.7 µs of CPU for a request where this design takes 10.9
//! (docs/decisions/threads.md). Most of the difference came from memory that was no longer in any cache. Only work that takes time has
//! a task now ([`mod@super::deferred_response`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};

use crate::connection_table::ConnectionKey;
use crate::epoll::EpollPoller;

/// The work that is ready on a thread.
pub(super) struct ReadyQueue {
    pub(super) poller: EpollPoller,
    /// The connections that are ready. An entry may be duplicate or of a connection that is gone; it then costs only a look.
    pub(super) queue: RefCell<VecDeque<ConnectionKey>>,
    /// True if more events may be ready than the last poll reported.
    pub(super) may_have_more: Cell<bool>,
    /// The waker of the event loop, while the loop waits.
    pub(super) waker: Cell<Option<Waker>>,
}

impl ReadyQueue {
    /// Returns an empty queue. Must be called inside the thread's runtime.
    ///
    /// # Errors
    /// The kernel provides no poller.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            poller: EpollPoller::new()?,
            queue: RefCell::default(),
            may_have_more: Cell::new(false),
            waker: Cell::default(),
        })
    }

    /// Queues this connection.
    pub(super) fn push(&self, key: ConnectionKey) {
        self.queue.borrow_mut().push_back(key);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// True if work is ready that no event will report.
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
