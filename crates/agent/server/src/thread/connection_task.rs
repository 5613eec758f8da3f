//! A connection in the hands of its thread: it reads, has its turns, writes.
//!
//! What the bytes mean is [`mod@super::request`]'s and the dialect's business, and what takes time is [`mod@super::pending`]'s. The state of
//! a connection stands apart from this ([`mod@super::connection_state`]), so that the thread, which has the states, is not part of them.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use rustix::event::epoll::EventFlags;
use seawall_core::Moment;

use super::connection_state::{ConnectionClient, ConnectionData, ParkedTurn, store_buffered};
use super::request::{NextAction, RequestOrigin};
use super::socket::ReadOutcome;
use super::{READ, Scratch, TrafficThread};
use crate::client::ServedPod;
use crate::connection_table::ConnectionState;
use crate::fairness::buffer_budget::BufferedBytes;
use crate::fairness::scheduler::ClientTurns;

/// Requests behind the first that cost as much as a turn: what they save is the read and the write.
const PIPELINED: u32 = 4;

/// A connection and its thread.
pub(super) struct ActiveConnection<P: ServedPod> {
    pub(super) thread: Rc<TrafficThread<P>>,
    pub(super) connection: Rc<ConnectionData<P>>,
}

impl<P: ServedPod> Clone for ActiveConnection<P> {
    fn clone(&self) -> Self {
        Self { thread: self.thread.clone(), connection: self.connection.clone() }
    }
}

impl<P: ServedPod> Deref for ActiveConnection<P> {
    type Target = ConnectionData<P>;

    fn deref(&self) -> &ConnectionData<P> {
        &self.connection
    }
}

/// What came of a turn.
enum TurnOutcome {
    /// There was nothing to read.
    NotYet,
    /// The client is gone.
    Over,
    /// Requests were answered: what the socket did not take of that, and what comes next.
    Answered(Option<BufferedBytes>, NextAction),
}

impl<P: ServedPod> ActiveConnection<P> {
    /// As far as one turn brings it. `told` is what the poller says of its socket.
    pub(super) fn proceed(&self, told: Option<EventFlags>) {
        if let Some(flags) = told {
            self.socket.on_event(flags);
        }
        // Its task was told by the socket, and its turn comes.
        if self.is_suspended.get() {
            return;
        }
        // A turn is not given to who has no use for it.
        if !self.has_buffered_request.get() && !self.socket.may_read() {
            return self.wait_for_client();
        }
        if self.is_admitted(None) {
            self.take_turn();
        }
    }

    fn take_turn(&self) {
        // A fault in one request ends its connection and not the thread, on which everybody's are.
        match catch_unwind(AssertUnwindSafe(|| self.turn())) {
            Ok(TurnOutcome::Answered(None, NextAction::Read)) => self.go_back(false),
            Ok(TurnOutcome::Answered(None, NextAction::ReadBuffered)) => self.go_back(true),
            Ok(TurnOutcome::Answered(None, NextAction::Close) | TurnOutcome::Over) | Err(_) => self.leave(),
            Ok(TurnOutcome::Answered(unsent, after)) => self.wait_for(unsent, after),
            Ok(TurnOutcome::NotYet) => self.go_back(false),
        }
    }

    /// To its next turn, as soon as it has something to do.
    fn go_back(&self, looks: bool) {
        self.has_buffered_request.set(looks);
        if looks || self.socket.may_read() {
            self.thread.ready_queue.push(self.key);
        } else {
            self.wait_for_client();
        }
    }

    /// Between two requests nothing more is waited for in a drain, unless it may ask once more.
    fn wait_for_client(&self) {
        let ends = self.thread.draining.get() && !self.thread.is_patient.get();
        if ends && self.state.is_idle() {
            return self.leave();
        }
        if let Err(error) = self.socket.watch(&self.thread.ready_queue.poller, self.key) {
            tracing::debug!(%error, "a connection cannot be watched, so it ends");
            self.leave();
        }
    }

    /// Has a task do what takes time, and goes on after it.
    fn wait_for(&self, unsent: Option<BufferedBytes>, after: NextAction) {
        let waiting = ConnectionTask(Some(self.clone()));
        let task = tokio::task::spawn_local(waiting.until_over(unsent, after));
        self.task.replace(Some(task.abort_handle()));
        self.is_suspended.set(true);
    }

    /// Ends it: its place in the table is free, and the socket is closed once nobody has it in hand.
    fn leave(&self) {
        self.thread.connections.borrow_mut().remove(self.key);
    }

    /// Whether its caller has a turn left in this round; else it waits for one of the next, and `waker` is woken then.
    fn is_admitted(&self, waker: Option<&Waker>) -> bool {
        let who = self.client.borrow();
        let (turns, of) = (&self.thread.scheduler, &who.tenant.turns);
        let is_admitted = !turns.is_spent(of);
        if !is_admitted {
            let parked = ParkedTurn { queue: of.clone(), waker: waker.cloned() };
            let before = self.parked.replace(Some(parked));
            self.is_suspended.set(true);
            // Once in a queue, however often its task is woken meanwhile.
            if before.is_none_or(|before| !Rc::ptr_eq(&before.queue, of)) {
                turns.wait(of, self.key);
            }
        }
        is_admitted
    }

    /// Ready when its caller has a turn left, for the task that has it.
    pub(super) fn poll_admitted(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_admitted(Some(context.waker())) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Goes on if it waits for a turn in this queue. False if it does not.
    pub(super) fn unpark(&self, of: &Rc<ClientTurns>) -> bool {
        let parked = self.parked.borrow_mut().take_if(|parked| Rc::ptr_eq(&parked.queue, of));
        let Some(parked) = parked else { return false };
        match parked.waker {
            Some(waker) => waker.wake(),
            None => {
                self.is_suspended.set(false);
                self.thread.ready_queue.push(self.key);
            }
        }
        true
    }

    /// Between two requests in a drain: it goes on if another has come already, and ends if not.
    pub(super) fn poll_or_close(&self) {
        self.socket.mark_readable();
        self.thread.ready_queue.push(self.key);
    }

    pub(super) fn now(&self) -> Moment {
        self.thread.shared.clock.now()
    }

    /// Reads once (or looks at what was kept), answers whole requests, writes once. The scratch buffers are borrowed inside a turn
    /// only.
    fn turn(&self) -> TurnOutcome {
        let mut scratch = self.thread.scratch.borrow_mut();
        let Scratch { read: buffer, write: out } = &mut *scratch;
        let mut kept = self.buffered.borrow_mut();
        let kept_bytes = kept.as_deref().map_or(&[][..], |kept| kept);
        let mut filled = kept_bytes.len().min(buffer.len());
        if !self.has_buffered_request.get() {
            let end = buffer.len().min(filled + READ);
            match self.socket.read(&mut buffer[filled..end]) {
                ReadOutcome::Bytes(n) => filled += n,
                ReadOutcome::WouldBlock => {
                    // A look costs, too, and a client can bring it about as often as it likes.
                    self.thread.scheduler.record_turn(&self.client.borrow().tenant.turns);
                    return TurnOutcome::NotYet;
                }
                ReadOutcome::Closed => return TurnOutcome::Over,
            }
        }
        let who = self.client.borrow();
        self.thread.scheduler.record_turn(&who.tenant.turns);
        buffer[..kept_bytes.len()].copy_from_slice(kept_bytes);
        self.answer(&who, &buffer[..filled], &mut kept, out).unwrap_or(TurnOutcome::Over)
    }

    /// Nothing where the connection is over.
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
        let came = self.received_at.take().unwrap_or(now);
        let dialects = &*self.dialects.current();
        let asker =
            RequestOrigin { dialects, client: caller, tenant, peer: self.peer.ip(), received_at: came };
        let mut batch = self.thread.answer_all(asker, bytes, now, out);
        self.thread.scheduler.charge(&tenant.turns, batch.requests.saturating_sub(1) / PIPELINED);
        // Behind an answer that closes nothing is looked at any more.
        let closes = matches!(batch.next, NextAction::Close | NextAction::Linger);
        let rest = if closes { &[] } else { &bytes[batch.consumed..] };
        if !store_buffered(kept, tenant, rest) {
            batch.next = self.thread.refuse_if_buffer_full(dialects, &batch.next, out)?;
        }
        if batch.consumed > 0 && kept.is_some() {
            // Whole requests came, so the head behind them is another one and has a time of its own.
            self.state.set(ConnectionState::Idle, now);
        }
        self.state.set(batch.next.state(kept.is_some()), now);
        let sent = self.socket.send(out)?;
        if sent == out.len() {
            return Some(TurnOutcome::Answered(None, batch.next));
        }
        // At once: between two requests it could be ended by whoever needs room.
        self.state.set(ConnectionState::Write, now);
        Some(TurnOutcome::Answered(Some(self.buffer_unsent(&out[sent..])?), batch.next))
    }
}

/// A connection in the hands of its task; given up when that ends, however it ends.
pub(super) struct ConnectionTask<P: ServedPod>(Option<ActiveConnection<P>>);

impl<P: ServedPod> ConnectionTask<P> {
    async fn until_over(mut self, unsent: Option<BufferedBytes>, after: NextAction) {
        let Some(connection) = self.0.clone() else { return };
        if let Some(looks) = connection.wait(unsent, after).await {
            self.0 = None;
            connection.task.replace(None);
            // What is left of a task stays in memory as long as somebody could wake it.
            connection.socket.forget_waker();
            connection.is_suspended.set(false);
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

/// Ready when there is something to read and a turn to do it in, for the task that has it.
pub(super) fn poll_turn_to_read<P: ServedPod>(
    connection: &ActiveConnection<P>,
    context: &mut Context<'_>,
) -> Poll<std::io::Result<()>> {
    ready!(connection.socket.poll_readable(context, &connection.thread.ready_queue.poller, connection.key))?;
    connection.poll_admitted(context).map(Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakePod;

    /// What a function of a connection's two parts returns.
    fn size_of_returned<A, B, C, R>(_: impl Fn(A, B, C) -> R) -> usize {
        size_of::<R>()
    }

    /// Ten thousand connections that wait for their clients are ten thousand of these, and ten thousand long polls as many tasks;
    /// what a task seldom comes to is in a box.
    #[test]
    fn a_connection_that_waits_stays_small() {
        let (waits, takes_time) =
            (size_of::<ConnectionData<FakePod>>(), size_of_returned(ConnectionTask::<FakePod>::until_over));
        assert!(waits <= 256, "{waits} bytes");
        assert!(takes_time <= 384, "{takes_time} bytes");
    }
}
