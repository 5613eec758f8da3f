//! Waits for an event after a turn: a deferred response, the client's identity, or a client that reads slowly.
//!
//! A task of the connection awaits the event and then ends. Meanwhile the thread serves all other connections.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use super::READ;
use super::connection_task::{ConnectionOnThread, poll_turn_to_read};
use super::request::NextAction;
use super::socket::ReadOutcome;
use crate::connection_client::ServedPod;
use crate::connection_table::ConnectionState;
use crate::fairness::buffer_budget::BufferedBytes;

impl<P: ServedPod> ConnectionOnThread<P> {
    /// Waits for the event that the last turn requires. Returns true if the next turn parses buffered bytes, and false if the
    /// next turn reads from the socket. Returns `None` if the connection has ended.
    pub(super) async fn perform_next_action(
        &self,
        unsent: Option<BufferedBytes>,
        after: NextAction,
    ) -> Option<bool> {
        if let Some(unsent) = unsent {
            if !self.flush(&unsent).await {
                return None;
            }
            // The write is finished, so the connection now waits for the next event. The time limit of that wait starts now.
            self.connection_state.set_state(after.connection_state(self.has_buffered_bytes()), self.now());
        }
        match after {
            NextAction::Read => Some(false),
            NextAction::ReadBuffered => Some(true),
            // Box the futures of rare waits. Otherwise the task of every connection would reserve memory for these futures.
            NextAction::Deferred(pending) => {
                let goes_on = Box::pin(self.send_deferred(*pending)).await;
                goes_on.then(|| self.has_buffered_bytes())
            }
            NextAction::AwaitIdentity(cloud, patience) => {
                let caller = Box::pin(self.identify_client(cloud, patience)).await;
                self.client.borrow_mut().identity = caller;
                // Until now the buffered bytes counted toward the previous tenant, usually the tenant of unknown clients. If the
                // new tenant has no room for the bytes, the connection ends.
                self.transfer_buffer_charge().then_some(true)
            }
            NextAction::Close => None,
            NextAction::Linger => {
                Box::pin(self.linger()).await;
                None
            }
        }
    }

    /// Writes the bytes that the socket did not accept at first. Returns false if the client has disconnected.
    pub(super) async fn flush(&self, mut unsent: &[u8]) -> bool {
        while !unsent.is_empty() {
            self.connection_state.set_state(ConnectionState::Writing, self.now());
            if poll_fn(|context| self.poll_writable(context)).await.is_err() {
                return false;
            }
            match self.socket.send(unsent) {
                Some(n) => unsent = &unsent[n..],
                None => return false,
            }
        }
        true
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_writable(context, &self.thread.ready_queue.poller, self.key)
    }

    /// Writes an answer, and buffers the bytes that the socket does not accept at once.
    /// Returns false if the client has disconnected, or if the client's share has no room for these bytes.
    pub(super) async fn write_answer(&self, out: Vec<u8>) -> bool {
        let Some(sent) = self.socket.send(&out) else { return false };
        if sent == out.len() {
            return true;
        }
        let Some(unsent) = self.buffer_unsent(&out[sent..]) else { return false };
        drop(out);
        self.flush(&unsent).await
    }

    /// Closes the sending side and discards the client's further bytes, up to a limit. The head timeout also ends this wait.
    async fn linger(&self) {
        const MOST: usize = 256 * 1024;
        if self.socket.close_sending_side().is_err() {
            return;
        }
        let mut discarded = 0;
        while discarded < MOST {
            match poll_fn(|context| self.poll_discard(context)).await {
                0 => return,
                n => discarded += n,
            }
        }
    }

    /// Reads into the thread's buffer and discards the bytes. Returns 0 at the end of the stream or if the read failed.
    /// The function uses the thread's buffer, because a separate buffer would enlarge the task of every connection.
    fn poll_discard(&self, context: &mut Context<'_>) -> Poll<usize> {
        loop {
            if ready!(poll_turn_to_read(self, context)).is_err() {
                return Poll::Ready(0);
            }
            match self.socket.read(&mut self.thread.scratch.borrow_mut().read[..READ]) {
                ReadOutcome::Closed => return Poll::Ready(0),
                ReadOutcome::WouldBlock => {
                    self.thread.scheduler.record_turn(&self.client.borrow().tenant.turns);
                }
                ReadOutcome::Bytes(n) => {
                    self.thread.scheduler.record_turn(&self.client.borrow().tenant.turns);
                    return Poll::Ready(n);
                }
            }
        }
    }
}
