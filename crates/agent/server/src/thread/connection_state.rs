//! The state of one connection, from accept to end.
//!
//! It knows sockets and states; what a connection does stands in [`mod@super::connection_task`]. While
//! it waits for its client it is this and a place in the table, and holds no buffer.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;

use seawall_core::Moment;
use tokio::task::AbortHandle;

use super::socket::Socket;
use crate::client::{Client, ServedPod};
use crate::connection_table::{Entered, Key, Waits};
use crate::fairness::buffer_budget::Held;
use crate::fairness::clients::Tenant;
use crate::fairness::scheduler::Share;
use crate::handler::Spoken;
use crate::listen::UNREAD;

/// One connection. What it is doing: it waits for its client, or stands in the queue of the thread's work, or waits for a turn
/// (`parked`), or a task of its own has it (`task`), which may wait for a turn, too.
///
/// In this order: what every turn touches stands together at the beginning. With a small quota the kernel stops the process for
/// most of the time, and what it finds again afterwards is in no cache; a line of memory is then 1 % of a request.
#[repr(C)]
pub(super) struct Connection<P: ServedPod> {
    pub(super) key: Key,
    /// What is spoken where it was accepted.
    pub(super) spoken: Rc<Spoken<P>>,
    /// It is parked, or has a task: the poller's word is not for its next turn.
    pub(super) is_away: Cell<bool>,
    /// Whole requests may stand in what is kept: the next turn looks there and does not read.
    pub(super) looks: Cell<bool>,
    pub(super) waits: Waits,
    /// Bytes of a head that has not arrived whole, or of requests behind one that takes time.
    pub(super) kept: RefCell<Option<Box<Held>>>,
    pub(super) who: RefCell<Who<P>>,
    pub(super) socket: Socket,
    /// When the request came that waits until it is known who asks.
    pub(super) came: Cell<Option<Moment>>,
    pub(super) parked: RefCell<Option<Parked>>,
    pub(super) task: RefCell<Option<AbortHandle>>,
    pub(super) peer: SocketAddr,
}

/// Who is at the other end, and whose shares that takes.
#[derive(Debug)]
pub(super) struct Who<P> {
    pub(super) caller: Client<P>,
    pub(super) tenant: Rc<Tenant<P>>,
}

/// It waits for its next turn: in whose queue, and which task does, if one does.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) of: Rc<Share>,
    pub(super) waker: Option<Waker>,
}

impl<P: ServedPod> Connection<P> {
    pub(super) fn new(
        now: Moment,
        key: Key,
        socket: Socket,
        peer: SocketAddr,
        spoken: Rc<Spoken<P>>,
        who: Who<P>,
    ) -> Self {
        Self {
            is_away: Cell::new(false),
            looks: Cell::new(false),
            waits: Waits::new(now),
            kept: RefCell::default(),
            who: RefCell::new(who),
            parked: RefCell::default(),
            task: RefCell::default(),
            came: Cell::new(None),
            socket,
            key,
            spoken,
            peer,
        }
    }

    /// Whether bytes are kept.
    pub(super) fn keeps(&self) -> bool {
        self.kept.borrow().is_some()
    }

    /// What was kept counts for whom it counts for now. False where that caller may not hold so much.
    pub(super) fn pass_kept_on(&self) -> bool {
        let share = &self.who.borrow().tenant.held;
        self.kept.borrow_mut().as_mut().is_none_or(|kept| kept.pass_to(share))
    }

    /// Whether its pod is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.who.borrow().caller.is_gone()
    }

    /// Holds what the socket did not take. Nothing where the caller may not hold so much.
    pub(super) fn hold(&self, rest: &[u8]) -> Option<Held> {
        let mut unsent = self.who.borrow().tenant.held.nothing();
        unsent.replace_unsent(rest, UNREAD).then_some(unsent)
    }
}

/// Keeps these bytes instead of what was kept. False, and nothing is kept, if that is too much for the caller.
pub(super) fn keep<P>(kept: &mut Option<Box<Held>>, tenant: &Tenant<P>, bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        *kept = None;
        return true;
    }
    let mut held = kept.take().unwrap_or_else(|| Box::new(tenant.held.nothing()));
    let is_held = held.replace(bytes);
    *kept = is_held.then_some(held);
    is_held
}

impl<P: ServedPod> Entered for Rc<Connection<P>> {
    fn waits(&self) -> &Waits {
        &self.waits
    }

    fn end(&self) -> bool {
        let task = self.task.borrow();
        task.as_ref().inspect(|task| task.abort()).is_some()
    }
}

impl<P: ServedPod> Drop for Connection<P> {
    /// A pod that is gone is not answered any more, by the kernel neither: what was written and not acknowledged it would
    /// send to the pod's address again and again, where the next pod may be by then, and that one could read it from
    /// the wire (container runtimes grant CAP_NET_RAW by default). A reset throws it away.
    fn drop(&mut self) {
        if self.is_gone() {
            self.socket.reset_at_end();
        }
        if let Some(parked) = self.parked.take() {
            parked.of.forget(self.key);
        }
    }
}

impl<P: ServedPod> fmt::Debug for Connection<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.key)
    }
}
