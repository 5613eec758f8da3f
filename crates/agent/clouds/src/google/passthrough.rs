//! The way to Google's real metadata server, through the filter: everybody's in `conceal`, else that of those whom the
//! configuration lets through.
//!
//! What goes upstream was built anew by the dialect from what it understood: a canonical path and query, one header of
//! ours, no byte of the client's. So the two servers cannot read one request differently, which is how filters are got around.

use std::time::Duration;

use http::Method;
use seawall_http::{Refusal, RequestHead, ResponseContext, ResponseFraming};
use seawall_protocols::google::{self, MetadataServerKind};
use seawall_server::client::ClientShares;
use seawall_server::response::{DeferredResponse, ReadyResponse, WriteContext, WriteOutcome};
use seawall_server::upstream::{Forwarder, UpstreamRequest, UpstreamResponse};

use super::routes;

/// The filter and what is behind it.
#[derive(Debug)]
pub(super) struct GooglePassthrough {
    forwarder: Forwarder,
    server: MetadataServerKind,
}

/// How long the real server may take: longer than Google's libraries give one try (3 s those for Python and Node), so that it is never us
/// who give up first.
const PATIENCE: Duration = Duration::from_secs(10);

impl GooglePassthrough {
    /// To the real server behind `forwarder`; refusals are written as `server`'s.
    pub(super) fn new(forwarder: Forwarder, server: MetadataServerKind) -> Self {
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
    ) -> Result<DeferredResponse, Refusal> {
        let admitted = google::admit(head)?;
        let forward = UpstreamRequest {
            target: &admitted.target,
            // GET for HEAD, too: the answer's length is then known, and its body is left out by the frame.
            method: Method::GET,
            headers: &[("metadata-flavor", "Google")],
            timeout: PATIENCE,
            long_poll_wait: admitted.wait_for_change.as_ref().map(|hold| hold.timeout),
        };
        let (is_poll, answer) = self.forwarder.forward(shares, &forward)?;
        let server = self.server;
        Ok(DeferredResponse::new(&routes::FORWARD, is_poll, async move {
            Box::new(PassthroughResponse { server, answer: answer.await }) as Box<dyn ReadyResponse>
        }))
    }
}

/// What the real server answered, or why it did not.
#[derive(Debug)]
struct PassthroughResponse {
    server: MetadataServerKind,
    answer: Result<UpstreamResponse, Refusal>,
}

impl ReadyResponse for PassthroughResponse {
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome {
        match self.answer {
            Ok(answer) => passed_on(self.server, answer, writing.frame, out),
            Err(refusal) => {
                self.server.refusal(out, writing.frame, &refusal, writing.request_id);
                WriteOutcome::whole(refusal.status)
            }
        }
    }
}

fn passed_on(
    server: MetadataServerKind,
    answer: UpstreamResponse,
    frame: &ResponseContext<'_>,
    out: &mut Vec<u8>,
) -> WriteOutcome {
    let UpstreamResponse { status, headers, body, rest } = answer;
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let Some(rest) = rest else {
        server.forwarded(out, frame, status, headers, &body);
        return WriteOutcome::whole(status);
    };
    let length = ResponseFraming::of(rest.length, frame.version);
    let keep_alive = frame.keep_alive && length != ResponseFraming::UntilClose;
    server.forwarded_head(out, &ResponseContext { keep_alive, ..*frame }, status, headers, length);
    if frame.head_only {
        return WriteOutcome::whole(status);
    }
    length.write_part(out, &body);
    WriteOutcome { status, rest: Some((rest, length)) }
}
