//! Which connections have something to do, and the loop that has them do it.
//!
//! One task of the runtime serves all connections of its thread: what the poller tells of, and what has its turn or comes back
//! from a wait. A task for each connection cost a request as much again as parsing and answering it, for the most part in
//! memory that was no longer in any cache (SPECIFICATION.md has the figures); only what takes time is one now
//! ([`mod@super::pending`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::event::epoll::EventFlags;

use super::Thread;
use super::connection::Connection;
use crate::server::epoll::{AT_ONCE, Poller};
use crate::server::fairness::scheduler::Key;

/// What there is to do on a thread.
pub(super) struct Work {
    pub(super) poller: Poller,
    /// Connections that go on. One may stand here twice, or be gone: it is looked at, and that is all.
    queue: RefCell<VecDeque<Key>>,
    /// There may be more than the last look told of.
    may_have_more: Cell<bool>,
    /// The loop, while it waits.
    waker: Cell<Option<Waker>>,
}

impl Work {
    /// None yet. Must be called inside the thread's runtime.
    ///
    /// # Errors
    /// The kernel gives no poller.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            poller: Poller::new()?,
            queue: RefCell::default(),
            may_have_more: Cell::new(false),
            waker: Cell::default(),
        })
    }

    /// This connection goes on.
    pub(super) fn push(&self, key: Key) {
        self.queue.borrow_mut().push_back(key);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Whether there is something that nobody will tell of.
    fn is_left(&self) -> bool {
        self.may_have_more.get() || !self.queue.borrow().is_empty()
    }

    fn poll_some(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_left() {
            return Poll::Ready(Ok(()));
        }
        self.waker.set(Some(context.waker().clone()));
        self.poller.poll_told(context)
    }
}

impl Thread {
    /// Does what there is to do; between two looks everything else on this thread has its turn. Ends only if the poller fails.
    pub(super) async fn work(self: Rc<Self>) -> io::Result<()> {
        loop {
            poll_fn(|context| self.work.poll_some(context)).await?;
            self.do_what_there_is()?;
            // A look costs, even if nobody it tells of has a turn left.
            self.rest();
            if self.work.is_left() {
                tokio::task::yield_now().await;
            }
        }
    }

    fn do_what_there_is(&self) -> io::Result<()> {
        let waiting = self.work.queue.borrow().len();
        for _ in 0..waiting {
            let next = self.work.queue.borrow_mut().pop_front();
            self.go_on(next, None);
        }
        let told = self.work.poller.look(|key, flags| self.go_on(usize::try_from(key).ok(), Some(flags)))?;
        self.work.may_have_more.set(told == AT_ONCE);
        Ok(())
    }

    fn go_on(&self, key: Option<Key>, told: Option<EventFlags>) {
        let find = |key| self.connections.borrow().get(key).cloned();
        let connection: Option<Rc<Connection>> = key.and_then(find);
        if let Some(connection) = connection {
            connection.go_on(told);
        }
    }
}
