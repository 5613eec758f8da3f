//! Queues the connections that have work to do, and waits for more such connections.
//!
//! One task of the runtime serves all ready connections of its thread. A connection is ready when the poller reports an event,
//! when the connection may take its next turn, or when its wait ends. With one task per connection, a request took 11.7 µs of CPU
//! time. With one task for all connections, a request takes 10.9 µs (docs/decisions/threads.md). Most of the difference was cache
//! misses. A connection has a separate task only while it must wait for an event ([`mod@super::turn_waits`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};

use crate::connection_table::ConnectionKey;
use crate::epoll::EpollPoller;

/// The work that is ready on a thread.
pub(super) struct ReadyQueue {
    pub(super) poller: EpollPoller,
    /// The keys of the ready connections. The queue can contain a key twice, or the key of a closed connection. Each unnecessary
    /// key costs only one check.
    pub(super) ready_connection_keys: RefCell<VecDeque<ConnectionKey>>,
    /// True if more events may be pending than the last poll reported.
    pub(super) may_have_more: Cell<bool>,
    /// The waker of the event loop, or `None` while the event loop does not wait.
    pub(super) waker: Cell<Option<Waker>>,
}

impl ReadyQueue {
    /// Returns an empty queue. Call this function inside the thread's runtime.
    ///
    /// # Errors
    /// The kernel cannot create an epoll instance.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            poller: EpollPoller::new()?,
            ready_connection_keys: RefCell::default(),
            may_have_more: Cell::new(false),
            waker: Cell::default(),
        })
    }

    pub(super) fn push(&self, key: ConnectionKey) {
        self.ready_connection_keys.borrow_mut().push_back(key);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// True if there is ready work that no later event will report.
    pub(super) fn has_pending(&self) -> bool {
        self.may_have_more.get() || !self.ready_connection_keys.borrow().is_empty()
    }

    pub(super) fn poll_pending(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_pending() {
            return Poll::Ready(Ok(()));
        }
        self.waker.set(Some(context.waker().clone()));
        self.poller.poll_ready(context)
    }
}
