//! Awaits a response that is not ready yet, and then writes the response. Meanwhile, the thread serves all other connections.

use std::future::poll_fn;
use std::task::Context;

use seawall_http::ResponseContext;

use super::connection_task::ConnectionOnThread;
use super::request::PendingResponse;
use super::socket::ReadOutcome;
use crate::connection_client::ServedPod;
use crate::connection_table::ConnectionState;
use crate::response::{WriteContext, WriteOutcome};

impl<P: ServedPod> ConnectionOnThread<P> {
    /// Waits for an answer, and then writes the answer. Returns false if the connection has ended.
    pub(super) async fn send_deferred(&self, pending: PendingResponse) -> bool {
        let PendingResponse { response: later, version, keep_alive, head_only, handling_started: since } =
            pending;
        self.connection_state.set_state(ConnectionState::Busy, since);
        let (route, is_poll) = (later.route, later.is_long_poll);
        let reply = tokio::select! {
            reply = later.reply => reply,
            () = self.client_gone(), if later.is_long_poll => return false,
        };
        if is_poll {
            self.socket.mark_readable();
        }
        // The pod may have been deleted during the wait, and another pod may now have the same address. The next sweep would also
        // end this connection, but perhaps only after the thread has sent the answer.
        if self.is_pod_gone() {
            return false;
        }
        let thread = &*self.thread;
        // A shutdown can end the wait before this thread has changed its phase, so this code checks the stop signal itself.
        let keep_alive = keep_alive && !thread.stop.has_begun();
        let now = self.now();
        let mut out = Vec::new();
        let WriteOutcome { status, remaining_body: rest } = {
            let mut date = thread.date.borrow_mut();
            let frame =
                ResponseContext { date: date.at(&thread.shared.clock, now), version, keep_alive, head_only };
            reply.write(&WriteContext { response_context: &frame, now }, &mut out)
        };
        thread.metrics.record_response(route, status, now.since(since));
        // The count of fetches shows clients that fetch too often. A long poll does not count, because it returns each credential only
        // once.
        if status == 200 && route.is_credential() && !is_poll {
            thread.count_credential_for_pod(&self.client.borrow().identity, route, None);
        }
        let is_written = self.write_answer(out).await;
        let goes_on = match rest {
            Some((rest, length)) if is_written => self.stream_body(*rest, length).await && keep_alive,
            _ => is_written && keep_alive,
        };
        self.connection_state.set_state(ConnectionState::Idle, self.now());
        goes_on
    }

    /// Returns when the client has closed its sending side, even if the client sent more bytes before.
    async fn client_gone(&self) {
        loop {
            let poll = |context: &mut Context<'_>| {
                self.socket.poll_readable(context, &self.thread.ready_queue.poller, self.key)
            };
            match poll_fn(poll).await.map(|()| self.socket.peek()) {
                Ok(ReadOutcome::WouldBlock) => {}
                Ok(ReadOutcome::Bytes(_)) if !self.socket.has_ended() => self.socket.defer_reading(),
                Ok(_) | Err(_) => return,
            }
        }
    }
}
