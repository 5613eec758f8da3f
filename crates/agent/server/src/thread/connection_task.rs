//! Handles one connection on its thread: takes turns, reads, and writes.
//!
//! [`mod@super::request`] and the dialect interpret the bytes. [`mod@super::deferred_response`] handles answers that are not
//! ready yet. A separate module defines the state of a connection ([`mod@super::connection_state`]), because the thread owns the
//! states.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};

use rustix::event::epoll::EventFlags;
use seawall_core::Moment;

use super::connection_state::{ConnectionClient, ConnectionData, WaitingForTurn, store_buffered};
use super::request::{NextAction, RequestOrigin};
use super::socket::ReadOutcome;
use super::{READ, Scratch, ThreadPhase, TrafficThread};
use crate::connection_client::ServedPod;
use crate::connection_table::ConnectionState;
use crate::fairness::buffer_budget::BufferedBytes;
use crate::fairness::scheduler::ClientTurns;
use crate::memory_levels::MemoryLevel;
use crate::watchdog::ThreadActivity;

/// The number of additional pipelined requests that cost as much as one turn. Pipelined requests are cheap, because they share
/// one read and one write.
const PIPELINED: u32 = 4;

/// A connection and its thread.
pub(super) struct ConnectionOnThread<P: ServedPod> {
    pub(super) thread: Rc<TrafficThread<P>>,
    pub(super) connection: Rc<ConnectionData<P>>,
}

impl<P: ServedPod> Clone for ConnectionOnThread<P> {
    fn clone(&self) -> Self {
        Self { thread: self.thread.clone(), connection: self.connection.clone() }
    }
}

impl<P: ServedPod> Deref for ConnectionOnThread<P> {
    type Target = ConnectionData<P>;

    fn deref(&self) -> &ConnectionData<P> {
        &self.connection
    }
}

/// The outcome of a turn.
enum TurnOutcome {
    /// The socket had no bytes to read.
    NothingToRead,
    /// The connection has ended.
    Over,
    /// The thread answered requests. The values are the bytes that the socket did not accept, and the next action.
    Answered(Option<BufferedBytes>, NextAction),
}

impl<P: ServedPod> ConnectionOnThread<P> {
    /// Handles the connection for at most one turn. `told` contains the poller's events for the socket.
    pub(super) fn run_turn(&self, told: Option<EventFlags>) {
        if let Some(flags) = told {
            self.socket.on_event(flags);
        }
        // Here the connection waits for a turn or has a task. If the task waits for the socket, `on_event` has woken the task.
        if self.is_parked_or_has_task.get() {
            return;
        }
        // A connection that has nothing to read gets no turn.
        if !self.has_buffered_request.get() && !self.socket.may_read() {
            return self.wait_for_client();
        }
        if self.is_admitted(None) {
            self.take_turn();
        }
    }

    fn take_turn(&self) {
        // A panic in one request ends only the request's connection, not the whole thread.
        match catch_unwind(AssertUnwindSafe(|| self.turn())) {
            Ok(TurnOutcome::Answered(None, NextAction::Read)) => self.go_back(false),
            Ok(TurnOutcome::Answered(None, NextAction::ReadBuffered)) => self.go_back(true),
            Ok(TurnOutcome::Answered(None, NextAction::Close) | TurnOutcome::Over) | Err(_) => self.leave(),
            Ok(TurnOutcome::Answered(unsent, after)) => self.wait_for(unsent, after),
            Ok(TurnOutcome::NothingToRead) => self.go_back(false),
        }
    }

    /// Puts the connection back into the ready queue, or waits for the connection's client.
    fn go_back(&self, looks: bool) {
        self.has_buffered_request.set(looks);
        if looks || self.socket.may_read() {
            self.thread.ready_queue.push(self.key);
        } else {
            self.wait_for_client();
        }
    }

    /// Waits for the next bytes of the client. During a drain, closes an idle connection, unless the client may still send one
    /// more request.
    fn wait_for_client(&self) {
        let may_wait = match self.thread.phase.get() {
            ThreadPhase::Serving | ThreadPhase::LastRequests => true,
            ThreadPhase::FirstRequests => self.connection_state.is_awaiting_first_byte(),
            ThreadPhase::Ending => false,
        };
        if !may_wait && self.connection_state.is_idle() {
            return self.leave();
        }
        if let Err(error) = self.socket.watch(&self.thread.ready_queue.poller, self.key) {
            tracing::debug!(%error, "cannot watch a connection; the agent closes the connection");
            self.leave();
        }
    }

    /// Starts a task that waits for an event of the connection. When the task ends, the connection continues or closes.
    fn wait_for(&self, unsent: Option<BufferedBytes>, after: NextAction) {
        let waiting = ConnectionTask(Some(self.clone()));
        let task = tokio::task::spawn_local(waiting.until_over(unsent, after));
        self.task_abort_handle.replace(Some(task.abort_handle()));
        self.is_parked_or_has_task.set(true);
    }

    /// Removes the connection from the table, and closes its socket once the client has acknowledged the last bytes.
    fn leave(&self) {
        self.thread.connections.borrow_mut().remove(self.key);
        self.thread.close(self.connection.clone());
    }

    /// True if the client has a turn left in this round. Otherwise the connection waits for a later round. The later round then
    /// wakes `waker`, if the caller passed one.
    fn is_admitted(&self, waker: Option<&Waker>) -> bool {
        let who = self.client.borrow();
        let (turns, of) = (&self.thread.scheduler, &who.tenant.turns);
        let is_admitted = !turns.has_used_turns(of);
        if !is_admitted {
            let parked = WaitingForTurn { queue: of.clone(), waker: waker.cloned() };
            let before = self.parked_turn.replace(Some(parked));
            self.is_parked_or_has_task.set(true);
            // A connection is in a queue only once, even if its task wakes several times.
            if before.is_none_or(|before| !Rc::ptr_eq(&before.queue, of)) {
                turns.enqueue(of, self.key, self.is_guest.get());
            }
        }
        is_admitted
    }

    /// Returns ready when the client has a turn left. Only the connection's task calls this function.
    pub(super) fn poll_turn_left(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_admitted(Some(context.waker())) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Resumes the connection if it waits for a turn in this queue. Returns true if the connection waited in this queue.
    pub(super) fn resume_if_waiting_for_turn(&self, of: &Rc<ClientTurns>) -> bool {
        let parked = self.parked_turn.borrow_mut().take_if(|parked| Rc::ptr_eq(&parked.queue, of));
        let Some(parked) = parked else { return false };
        match parked.waker {
            Some(waker) => waker.wake(),
            None => {
                self.is_parked_or_has_task.set(false);
                self.thread.ready_queue.push(self.key);
            }
        }
        true
    }

    /// Checks an idle connection during a drain. The connection continues if another request has arrived, and ends otherwise.
    pub(super) fn close_unless_request_arrived(&self) {
        self.socket.mark_readable();
        self.thread.ready_queue.push(self.key);
    }

    pub(super) fn now(&self) -> Moment {
        self.thread.shared.clock.now()
    }

    /// Performs one turn: reads once or uses the buffered bytes, then answers all complete requests, then writes once.
    /// The turn borrows the scratch buffers only while it runs.
    fn turn(&self) -> TurnOutcome {
        self.thread.heartbeat.set_activity(ThreadActivity::Answer);
        let mut scratch = self.thread.scratch.borrow_mut();
        let Scratch { read: buffer, write: out } = &mut *scratch;
        let mut kept = self.buffered_bytes.borrow_mut();
        let kept_bytes = kept.as_deref().map_or(&[][..], |kept| kept);
        let mut filled = kept_bytes.len().min(buffer.len());
        if !self.has_buffered_request.get() {
            let end = buffer.len().min(filled + READ);
            match self.socket.read(&mut buffer[filled..end]) {
                ReadOutcome::Bytes(n) => filled += n,
                ReadOutcome::WouldBlock => {
                    // This read also costs a turn, because a client can cause such reads as often as it wants.
                    self.thread.scheduler.record_turn(&self.client.borrow().tenant.turns);
                    return TurnOutcome::NothingToRead;
                }
                ReadOutcome::Closed => return TurnOutcome::Over,
            }
        }
        let who = self.client.borrow();
        self.thread.scheduler.record_turn(&who.tenant.turns);
        if self.hoards_answers() {
            return TurnOutcome::Over;
        }
        buffer[..kept_bytes.len()].copy_from_slice(kept_bytes);
        self.answer(&who, &buffer[..filled], &mut kept, out).unwrap_or(TurnOutcome::Over)
    }

    /// True if memory is short and the client sends requests although it does not read the answers.
    /// Unread answers stay in the kernel's buffers, up to 16 KiB for each connection. The unread answers of 1,500 connections would fill
    /// the whole memory limit. The thread then resets the connection, because a normal close would keep the unread answers in
    /// memory. If a client reads each answer before it sends its next request, the socket never has unsent bytes.
    fn hoards_answers(&self) -> bool {
        let is_short = self.thread.memory_level.get() >= MemoryLevel::Scarce;
        let hoards = is_short && self.socket.has_unsent_bytes();
        if hoards {
            self.socket.reset_on_close();
            self.thread.metrics.connection_metrics.evicted_idle.fetch_add(1, Ordering::Relaxed);
        }
        hoards
    }

    /// Answers the requests in `bytes`. Returns `None` if the connection has ended.
    fn answer(
        &self,
        who: &ConnectionClient<P>,
        bytes: &[u8],
        kept: &mut Option<Box<BufferedBytes>>,
        out: &mut Vec<u8>,
    ) -> Option<TurnOutcome> {
        out.clear();
        let now = self.now();
        let ConnectionClient { identity: caller, tenant } = who;
        let came = self.waiting_request_received_at.take().unwrap_or(now);
        let dialects = &*self.dialects.current();
        let asker = RequestOrigin {
            dialects,
            client: caller,
            tenant,
            peer_ip: self.peer.ip(),
            received_at: came,
            is_guest: self.is_guest.get(),
        };
        let mut batch = self.thread.answer_requests(asker, bytes, now, out);
        self.thread.scheduler.charge_turns(&tenant.turns, batch.request_count.saturating_sub(1) / PIPELINED);
        // After an answer that closes the connection, the thread ignores all further bytes.
        let closes = matches!(batch.next_action, NextAction::Close | NextAction::Linger);
        let rest = if closes { &[] } else { &bytes[batch.consumed_bytes..] };
        if !store_buffered(kept, tenant, rest) {
            batch.next_action = self.thread.refuse_unbufferable_head(dialects, &batch.next_action, out)?;
        }
        if batch.consumed_bytes > 0 && kept.is_some() {
            // The client has sent complete requests, so the timeout for the next head starts again at zero.
            self.connection_state.set_state(ConnectionState::Idle, now);
        }
        self.connection_state.set_state(batch.next_action.connection_state(kept.is_some()), now);
        let sent = self.socket.send(out)?;
        self.thread.record_answered(sent);
        if sent == out.len() {
            return Some(TurnOutcome::Answered(None, batch.next_action));
        }
        // Change the state immediately, because the table can evict an idle connection to make room for another connection.
        self.connection_state.set_state(ConnectionState::Writing, now);
        Some(TurnOutcome::Answered(Some(self.buffer_unsent(&out[sent..])?), batch.next_action))
    }
}

/// A connection that a separate task handles. Dropping this value ends the connection, unless the task has returned the
/// connection to the event loop.
pub(super) struct ConnectionTask<P: ServedPod>(Option<ConnectionOnThread<P>>);

impl<P: ServedPod> ConnectionTask<P> {
    async fn until_over(mut self, unsent: Option<BufferedBytes>, after: NextAction) {
        let Some(connection) = self.0.clone() else { return };
        if let Some(looks) = connection.perform_next_action(unsent, after).await {
            self.0 = None;
            connection.task_abort_handle.replace(None);
            // Drop the waker, because the task's memory stays allocated while a waker exists.
            connection.socket.forget_waker();
            connection.is_parked_or_has_task.set(false);
            connection.go_back(looks);
        }
    }
}

impl<P: ServedPod> Drop for ConnectionTask<P> {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.leave();
        }
    }
}

/// Returns ready when the socket has bytes to read and the client has a turn left. Only the connection's task calls this
/// function.
pub(super) fn poll_turn_to_read<P: ServedPod>(
    connection: &ConnectionOnThread<P>,
    context: &mut Context<'_>,
) -> Poll<std::io::Result<()>> {
    ready!(connection.socket.poll_readable(context, &connection.thread.ready_queue.poller, connection.key))?;
    connection.poll_turn_left(context).map(Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakePod;

    /// Returns the size of the return type of a function that takes the two parts of a connection.
    fn size_of_returned<A, B, C, R>(_: impl Fn(A, B, C) -> R) -> usize {
        size_of::<R>()
    }

    /// Connections and their tasks stay small, because a node may have ten thousand idle connections or long polls.
    /// An idle connection costs one `ConnectionData`, and a long poll also costs a task. Rarely used parts of a task are boxed.
    #[test]
    fn a_connection_that_waits_stays_small() {
        let (waits, takes_time) =
            (size_of::<ConnectionData<FakePod>>(), size_of_returned(ConnectionTask::<FakePod>::until_over));
        assert!(waits <= 256, "{waits} bytes");
        assert!(takes_time <= 384, "{takes_time} bytes");
    }
}
