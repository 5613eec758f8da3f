//! Defines the state of one connection, from its accept to its end.
//!
//! This module contains only data: the socket and the state of the connection. [`mod@super::connection_task`] implements the
//! actions of a connection. A connection that waits for its client needs only this state and a row in the table. Such a
//! connection holds no buffer.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;

use seawall_core::Moment;
use tokio::task::AbortHandle;

use super::closing_connections::ClosingConnection;
use super::socket::ClientSocket;
use crate::admission::GuestPlace;
use crate::connection_client::{Client, ServedPod};
use crate::connection_table::{ConnectionKey, GuestPlaceDemand, TableEntry, TimedState};
use crate::fairness::buffer_budget::BufferedBytes;
use crate::fairness::scheduler::ClientTurns;
use crate::fairness::tenants::Tenant;
use crate::handler::ActiveDialects;
use crate::listen::MAX_SEND_BUFFER_BYTES;

/// One connection. It is always in one of these situations:
/// - The connection waits for its client.
/// - The connection is in the thread's ready queue.
/// - The connection waits for a turn (`parked_turn`).
/// - A separate task handles the connection (`task_abort_handle`). The task may also wait for a turn.
/// - The connection has ended, and its socket waits for the client ([`mod@super::closing_connections`]).
///
/// The order of the fields matters: every turn uses the first fields. With a small CPU quota, the kernel stops the process most of the
/// time. When the process continues, the CPU caches no longer contain its memory. Loading one cache line takes 1 % of the time of
/// a request.
#[repr(C)]
pub(super) struct ConnectionData<P: ServedPod> {
    pub(super) key: ConnectionKey,
    /// The dialects of the listener that accepted the connection.
    pub(super) dialects: Rc<ActiveDialects<P>>,
    /// True if the connection waits for a turn or has a task. In this state, a poller event does not start a turn.
    pub(super) is_parked_or_has_task: Cell<bool>,
    /// True if the buffered bytes may contain complete requests. The next turn then parses these bytes and does not read.
    pub(super) has_buffered_request: Cell<bool>,
    /// True if the connection ends after its next answer, because the client has reached its share of connections.
    pub(super) is_guest: Cell<bool>,
    pub(super) connection_state: TimedState,
    /// The bytes of a partial head, or of pipelined requests that wait because an earlier answer is not ready.
    pub(super) buffered_bytes: RefCell<Option<Box<BufferedBytes>>>,
    pub(super) client: RefCell<ConnectionClient<P>>,
    pub(super) socket: ClientSocket,
    /// The arrival time of the request that waits for the client's identity.
    pub(super) waiting_request_received_at: Cell<Option<Moment>>,
    pub(super) parked_turn: RefCell<Option<WaitingForTurn>>,
    pub(super) task_abort_handle: RefCell<Option<AbortHandle>>,
    pub(super) peer: SocketAddr,
    /// The place of a guest.
    guest_place: Cell<Option<GuestPlace>>,
}

/// The client of the connection, and the tenant whose shares the connection uses.
#[derive(Debug)]
pub(super) struct ConnectionClient<P> {
    pub(super) identity: Client<P>,
    pub(super) tenant: Rc<Tenant<P>>,
}

/// The queue in which a connection waits for its next turn, and the waker of the connection's task, if it has a task.
#[derive(Debug)]
pub(super) struct WaitingForTurn {
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
        guest: Option<GuestPlace>,
    ) -> Self {
        Self {
            is_guest: Cell::new(guest.is_some()),
            guest_place: Cell::new(guest),
            is_parked_or_has_task: Cell::new(false),
            has_buffered_request: Cell::new(false),
            connection_state: TimedState::new(now),
            buffered_bytes: RefCell::default(),
            client: RefCell::new(who),
            parked_turn: RefCell::default(),
            task_abort_handle: RefCell::default(),
            waiting_request_received_at: Cell::new(None),
            socket,
            key,
            dialects,
            peer,
        }
    }

    pub(super) fn has_buffered_bytes(&self) -> bool {
        self.buffered_bytes.borrow().is_some()
    }

    /// Charges the buffered bytes to the current tenant. Returns false if the tenant's share has no room for these bytes.
    pub(super) fn transfer_buffer_charge(&self) -> bool {
        let share = &self.client.borrow().tenant.buffer_share;
        self.buffered_bytes.borrow_mut().as_mut().is_none_or(|kept| kept.transfer_to(share))
    }

    /// Frees what a served connection holds: the place of a guest, buffered bytes, its place in the queue for turns, and its task.
    pub(super) fn free_shares(&self) {
        self.task_abort_handle.take();
        self.socket.forget_waker();
        self.guest_place.take();
        self.buffered_bytes.replace(None);
        if let Some(parked) = self.parked_turn.take() {
            parked.queue.remove(self.key);
        }
    }

    pub(super) fn is_pod_gone(&self) -> bool {
        self.client.borrow().identity.is_pod_gone()
    }

    /// Buffers the bytes that the socket did not accept. Returns `None` if the client's share has no room for these bytes.
    pub(super) fn buffer_unsent(&self, rest: &[u8]) -> Option<BufferedBytes> {
        let mut unsent = self.client.borrow().tenant.buffer_share.new_empty_buffer();
        unsent.hold_unsent_bytes(rest, MAX_SEND_BUFFER_BYTES).then_some(unsent)
    }
}

/// Replaces the buffered bytes with `bytes`. If the client's share has no room for `bytes`, keeps no bytes and returns false.
pub(super) fn store_buffered<P>(
    kept: &mut Option<Box<BufferedBytes>>,
    tenant: &Tenant<P>,
    bytes: &[u8],
) -> bool {
    if bytes.is_empty() {
        *kept = None;
        return true;
    }
    let mut held = kept.take().unwrap_or_else(|| Box::new(tenant.buffer_share.new_empty_buffer()));
    let is_held = held.replace_bytes(bytes);
    *kept = is_held.then_some(held);
    is_held
}

impl<P: ServedPod> TableEntry for Rc<ConnectionData<P>> {
    fn state(&self) -> &TimedState {
        &self.connection_state
    }

    fn guest_place_demand(&self, now: Moment) -> Option<GuestPlaceDemand> {
        let is_wanted = || {
            let place = self.guest_place.take();
            let is_wanted = place.as_ref().is_some_and(|place| place.is_wanted(now));
            self.guest_place.set(place);
            is_wanted
        };
        self.is_guest
            .get()
            .then(|| if is_wanted() { GuestPlaceDemand::Wanted } else { GuestPlaceDemand::Unwanted })
    }

    fn has_unread_bytes(&self) -> bool {
        self.socket.has_unread_bytes()
    }

    fn end(&self) -> bool {
        let task = self.task_abort_handle.borrow();
        task.as_ref().inspect(|task| task.abort()).is_some()
    }
}

impl<P: ServedPod> ClosingConnection for Rc<ConnectionData<P>> {
    /// True for the connection of a deleted pod, too: dropping it resets it.
    fn is_finished(&self) -> bool {
        self.is_pod_gone() || self.socket.is_over()
    }

    fn reset_on_drop(&self) {
        self.socket.reset_on_close();
    }
}

impl<P: ServedPod> Drop for ConnectionData<P> {
    /// Resets the connection of a deleted pod, so the kernel stops sending to the pod's address.
    /// Without the reset, the kernel would resend unacknowledged bytes to that address. By then another pod may have the address
    /// and could read the bytes, because container runtimes grant CAP_NET_RAW by default. A reset discards the bytes.
    fn drop(&mut self) {
        if self.is_pod_gone() {
            self.socket.reset_on_close();
        }
        self.free_shares();
    }
}

impl<P: ServedPod> fmt::Debug for ConnectionData<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.key)
    }
}
