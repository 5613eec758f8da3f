//! Forwards the body of a response from the real metadata server in parts, as fast as the client reads.

use std::future::poll_fn;
use std::time::Duration;

use seawall_http::ResponseFraming;

use super::connection_task::ConnectionOnThread;
use crate::connection_client::ServedPod;
use crate::connection_table::ConnectionState;
use crate::upstream::BodyStream;

/// The time limit for a client to read one part of a long answer. A part has at most 8 KiB.
const PART: Duration = Duration::from_secs(10);

/// The number of received pieces of a body that cost the client one turn. The real metadata server sends a body in pieces.
const PIECES: u32 = 32;

impl<P: ServedPod> ConnectionOnThread<P> {
    /// Forwards the rest of a body. Returns true if the connection can then serve another request.
    pub(super) async fn stream_body(&self, rest: BodyStream, length: ResponseFraming) -> bool {
        let goes_on = self.pass_parts_on(rest, length).await;
        if goes_on.is_none() {
            // Some bodies end with the close of the connection. For such a body, only a reset tells the client that the body is
            // incomplete.
            self.socket.reset_on_close();
        }
        goes_on.unwrap_or(false)
    }

    /// Forwards the rest of an answer in parts, as fast as the client reads.
    /// Each part costs the client one turn. A part that arrived in many pieces costs more turns. Returns whether the connection
    /// stays open, or `None` if the body is incomplete.
    async fn pass_parts_on(&self, mut rest: BodyStream, length: ResponseFraming) -> Option<bool> {
        let mut out = Vec::new();
        loop {
            self.connection_state.set_state(ConnectionState::Busy, self.now());
            poll_fn(|context| self.poll_turn_left(context)).await;
            let part = rest.next().await?;
            self.thread
                .scheduler
                .charge_turns(&self.client.borrow().tenant.turns, 1 + part.piece_count / PIECES);
            out.clear();
            length.write_part(&mut out, &part.bytes);
            if part.is_last {
                length.end_body(&mut out);
            }
            // During this write the request holds an upstream permit. Therefore the client must read the whole part within the
            // timeout.
            if !tokio::time::timeout(PART, self.flush(&out)).await.unwrap_or(false) {
                return None;
            }
            if part.is_last {
                return Some(length != ResponseFraming::UntilClose);
            }
        }
    }
}
