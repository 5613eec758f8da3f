//! Passes on the body of a response of the real server part by part, as its client reads it.

use std::future::poll_fn;
use std::time::Duration;

use seawall_http::ResponseFraming;

use super::connection_task::ActiveConnection;
use crate::client::ServedPod;
use crate::connection_table::ConnectionState;
use crate::upstream::BodyStream;

/// The time limit for a client to read one part of a long answer, at most 8 KiB.
const PART: Duration = Duration::from_secs(10);

/// The number of pieces of the real server's answer that cost as much as a turn.
const PIECES: u32 = 32;

impl<P: ServedPod> ActiveConnection<P> {
    /// Passes on the rest of a body. True if the connection can serve another request after it.
    pub(super) async fn stream_body(&self, rest: BodyStream, length: ResponseFraming) -> bool {
        let goes_on = self.pass_parts_on(rest, length).await;
        if goes_on.is_none() {
            // Where the end of the connection is the body's, only a reset tells that it is not.
            self.socket.reset_at_end();
        }
        goes_on.unwrap_or(false)
    }

    /// Passes on the rest of an answer, part by part, as the client reads it.
    /// Each part costs the client a turn, and more if it came in many pieces. True if the connection stays open after it; `None` if
    /// the answer broke off.
    async fn pass_parts_on(&self, mut rest: BodyStream, length: ResponseFraming) -> Option<bool> {
        let mut out = Vec::new();
        loop {
            self.connection_state.set_state(ConnectionState::Busy, self.now());
            poll_fn(|context| self.poll_admitted(context)).await;
            let part = rest.next().await?;
            self.thread.scheduler.charge(&self.client.borrow().tenant.turns, 1 + part.pieces / PIECES);
            out.clear();
            length.write_part(&mut out, &part.bytes);
            if part.is_last {
                length.end_body(&mut out);
            }
            // A place at the real server is held meanwhile, so the whole part has its time, and not each byte of it.
            if !tokio::time::timeout(PART, self.flush(&out)).await.unwrap_or(false) {
                return None;
            }
            if part.is_last {
                return Some(length != ResponseFraming::UntilClose);
            }
        }
    }
}
