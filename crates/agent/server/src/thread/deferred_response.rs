//! A response that takes time: awaited, then written, while the thread serves everybody else.

use std::future::poll_fn;
use std::task::Context;

use seawall_http::Frame;

use super::connection_task::ActiveConnection;
use super::request::Pending;
use super::socket::Found;
use crate::client::ServedPod;
use crate::connection_table::State;
use crate::response::{Writing, Written};

impl<P: ServedPod> ActiveConnection<P> {
    /// Waits for a slow answer and writes it. False when the connection is over.
    pub(super) async fn answer_later(&self, pending: Pending) -> bool {
        let Pending { later, version, keep_alive, head_only, since, request } = pending;
        self.waits.note(State::Busy, since);
        let (route, is_poll) = (later.route, later.is_poll);
        let reply = tokio::select! {
            reply = later.reply => reply,
            () = self.client_gone(), if later.is_poll => return false,
        };
        if is_poll {
            self.socket.look_again();
        }
        // Its pod may have gone meanwhile, and another have its address: the sweep that ends its connections comes a moment later.
        if self.is_gone() {
            return false;
        }
        let thread = &*self.thread;
        // The stop itself may be what ended the wait, before this thread has turned to it.
        let keep_alive = keep_alive && !thread.stop.has_begun();
        let now = self.now();
        let mut out = Vec::new();
        let Written { status, rest } = {
            let mut date = thread.date.borrow_mut();
            let frame = Frame { date: date.at(&thread.shared.clock, now), version, keep_alive, head_only };
            reply.write(&Writing { frame: &frame, request, now }, &mut out)
        };
        thread.metrics.answered(route, status, now.since(since));
        // Who waits for a change is given each credential once.
        if status == 200 && route.is_credential() && !is_poll {
            thread.fetched(&self.who.borrow().caller, route, None);
        }
        let is_written = self.write(out).await;
        let goes_on = match rest {
            Some((rest, length)) if is_written => {
                let goes_on = self.stream_body(*rest, length).await;
                goes_on && keep_alive
            }
            _ => is_written && keep_alive,
        };
        self.waits.note(State::Idle, self.now());
        goes_on
    }

    /// Returns when the client has closed its side, though it has sent more before.
    async fn client_gone(&self) {
        loop {
            let poll = |context: &mut Context<'_>| {
                self.socket.poll_readable(context, &self.thread.work.poller, self.key)
            };
            match poll_fn(poll).await.map(|()| self.socket.peek()) {
                Ok(Found::Nothing) => {}
                Ok(Found::Bytes(_)) if !self.socket.has_ended() => self.socket.look_past(),
                Ok(_) | Err(_) => return,
            }
        }
    }
}
