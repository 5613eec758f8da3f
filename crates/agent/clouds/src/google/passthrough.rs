//! The way to Google's real metadata server, through the filter: everybody's in `conceal`, else that of those whom the
//! configuration lets through.
//!
//! What goes upstream was built anew by the dialect from what it understood: a canonical path and query, one header of
//! ours, no byte of the client's. So the two servers cannot read one request differently, which is how filters are got around.

use std::time::Duration;

use http::Method;
use seawall_http::{Frame, Length, Refusal, RequestHead};
use seawall_protocols::google::{self, Server};
use seawall_server::client::ClientShares;
use seawall_server::response::{Later, Reply, Writing, Written};
use seawall_server::upstream::{Forward, Forwarded, Forwarder};

use super::routes;

/// The filter and what is behind it.
#[derive(Debug)]
pub(super) struct Passthrough {
    forwarder: Forwarder,
    server: Server,
}

/// How long the real server may take: longer than Google's libraries give one try (3 s those for Python and Node), so that it is never us
/// who give up first.
const PATIENCE: Duration = Duration::from_secs(10);

impl Passthrough {
    /// To the real server behind `forwarder`; refusals are written as `server`'s.
    pub(super) fn new(forwarder: Forwarder, server: Server) -> Self {
        Self { forwarder, server }
    }

    /// The answer that will come, if the request may go upstream at all.
    ///
    /// # Errors
    /// The rule of the dialect that forbids it, or too many long polls.
    pub(super) fn forward(
        &self,
        shares: ClientShares<'_>,
        head: &RequestHead<'_, '_>,
    ) -> Result<Later, Refusal> {
        let admitted = google::admit(head)?;
        let forward = Forward {
            target: &admitted.target,
            // GET for HEAD, too: the answer's length is then known, and its body is left out by the frame.
            method: Method::GET,
            headers: &[("metadata-flavor", "Google")],
            patience: PATIENCE,
            hold: admitted.hold.as_ref().map(|hold| hold.timeout),
        };
        let (is_poll, answer) = self.forwarder.forward(shares, &forward)?;
        let server = self.server;
        Ok(Later::new(&routes::FORWARD, is_poll, async move {
            Box::new(Passed { server, answer: answer.await }) as Box<dyn Reply>
        }))
    }
}

/// What the real server answered, or why it did not.
#[derive(Debug)]
struct Passed {
    server: Server,
    answer: Result<Forwarded, Refusal>,
}

impl Reply for Passed {
    fn write(self: Box<Self>, writing: &Writing<'_>, out: &mut Vec<u8>) -> Written {
        match self.answer {
            Ok(answer) => passed_on(self.server, answer, writing.frame, out),
            Err(refusal) => {
                self.server.refusal(out, writing.frame, &refusal, writing.request);
                Written::whole(refusal.status)
            }
        }
    }
}

fn passed_on(server: Server, answer: Forwarded, frame: &Frame<'_>, out: &mut Vec<u8>) -> Written {
    let Forwarded { status, headers, body, rest } = answer;
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let Some(rest) = rest else {
        server.forwarded(out, frame, status, headers, &body);
        return Written::whole(status);
    };
    let length = Length::of(rest.length, frame.version);
    let keep_alive = frame.keep_alive && length != Length::UntilClose;
    server.forwarded_head(out, &Frame { keep_alive, ..*frame }, status, headers, length);
    if frame.head_only {
        return Written::whole(status);
    }
    length.part(out, &body);
    Written { status, rest: Some((rest, length)) }
}
