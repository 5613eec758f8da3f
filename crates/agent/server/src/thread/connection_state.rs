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

use super::socket::ClientSocket;
use crate::client::{Client, ServedPod};
use crate::connection_table::{ConnectionKey, TableEntry, TimedState};
use crate::fairness::buffer_budget::BufferedBytes;
use crate::fairness::clients::Tenant;
use crate::fairness::scheduler::ClientTurns;
use crate::handler::ActiveDialects;
use crate::listen::MAX_UNREAD_BYTES;

/// One connection. What it is doing: it waits for its client, or stands in the queue of the thread's work, or waits for a turn
/// (`parked`), or a task of its own has it (`task`), which may wait for a turn, too.
///
/// In this order: what every turn touches stands together at the beginning. With a small quota the kernel stops the process for
/// most of the time, and what it finds again afterwards is in no cache; a line of memory is then 1 % of a request.
#[repr(C)]
pub(super) struct ConnectionData<P: ServedPod> {
    pub(super) key: ConnectionKey,
    /// What is spoken where it was accepted.
    pub(super) dialects: Rc<ActiveDialects<P>>,
    /// It is parked, or has a task: the poller's word is not for its next turn.
    pub(super) is_suspended: Cell<bool>,
    /// Whole requests may stand in what is kept: the next turn looks there and does not read.
    pub(super) has_buffered_request: Cell<bool>,
    pub(super) state: TimedState,
    /// Bytes of a head that has not arrived whole, or of requests behind one that takes time.
    pub(super) buffered: RefCell<Option<Box<BufferedBytes>>>,
    pub(super) client: RefCell<ConnectionClient<P>>,
    pub(super) socket: ClientSocket,
    /// When the request came that waits until it is known who asks.
    pub(super) received_at: Cell<Option<Moment>>,
    pub(super) parked: RefCell<Option<ParkedTurn>>,
    pub(super) task: RefCell<Option<AbortHandle>>,
    pub(super) peer: SocketAddr,
}

/// Who is at the other end, and whose shares that takes.
#[derive(Debug)]
pub(super) struct ConnectionClient<P> {
    pub(super) identity: Client<P>,
    pub(super) tenant: Rc<Tenant<P>>,
}

/// It waits for its next turn: in whose queue, and which task does, if one does.
#[derive(Debug)]
pub(super) struct ParkedTurn {
    pub(super) queue: Rc<ClientTurns>,
    pub(super) waker: Option<Waker>,
}

impl<P: ServedPod> ConnectionData<P> {
    pub(super) fn new(
        now: Moment,
        key: ConnectionKey,
        socket: ClientSocket,
        peer: SocketAddr,
        dialects: Rc<ActiveDialects<P>>,
        who: ConnectionClient<P>,
    ) -> Self {
        Self {
            is_suspended: Cell::new(false),
            has_buffered_request: Cell::new(false),
            state: TimedState::new(now),
            buffered: RefCell::default(),
            client: RefCell::new(who),
            parked: RefCell::default(),
            task: RefCell::default(),
            received_at: Cell::new(None),
            socket,
            key,
            dialects,
            peer,
        }
    }

    /// Whether bytes are kept.
    pub(super) fn has_buffered(&self) -> bool {
        self.buffered.borrow().is_some()
    }

    /// What was kept counts for whom it counts for now. False where that caller may not hold so much.
    pub(super) fn transfer_buffer_charge(&self) -> bool {
        let share = &self.client.borrow().tenant.buffers;
        self.buffered.borrow_mut().as_mut().is_none_or(|kept| kept.transfer_to(share))
    }

    /// Whether its pod is gone.
    pub(super) fn is_pod_gone(&self) -> bool {
        self.client.borrow().identity.is_pod_gone()
    }

    /// Holds what the socket did not take. Nothing where the caller may not hold so much.
    pub(super) fn buffer_unsent(&self, rest: &[u8]) -> Option<BufferedBytes> {
        let mut unsent = self.client.borrow().tenant.buffers.new_empty_buffer();
        unsent.replace_unsent(rest, MAX_UNREAD_BYTES).then_some(unsent)
    }
}

/// Keeps these bytes instead of what was kept. False, and nothing is kept, if that is too much for the caller.
pub(super) fn store_buffered<P>(
    kept: &mut Option<Box<BufferedBytes>>,
    tenant: &Tenant<P>,
    bytes: &[u8],
) -> bool {
    if bytes.is_empty() {
        *kept = None;
        return true;
    }
    let mut held = kept.take().unwrap_or_else(|| Box::new(tenant.buffers.new_empty_buffer()));
    let is_held = held.replace(bytes);
    *kept = is_held.then_some(held);
    is_held
}

impl<P: ServedPod> TableEntry for Rc<ConnectionData<P>> {
    fn state(&self) -> &TimedState {
        &self.state
    }

    fn end(&self) -> bool {
        let task = self.task.borrow();
        task.as_ref().inspect(|task| task.abort()).is_some()
    }
}

impl<P: ServedPod> Drop for ConnectionData<P> {
    /// A pod that is gone is not answered any more, by the kernel neither: what was written and not acknowledged it would
    /// send to the pod's address again and again, where the next pod may be by then, and that one could read it from
    /// the wire (container runtimes grant CAP_NET_RAW by default). A reset throws it away.
    fn drop(&mut self) {
        if self.is_pod_gone() {
            self.socket.reset_at_end();
        }
        if let Some(parked) = self.parked.take() {
            parked.queue.remove(self.key);
        }
    }
}

impl<P: ServedPod> fmt::Debug for ConnectionData<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.key)
    }
}
