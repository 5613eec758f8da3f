//! Forwards requests through a filter to Google's real metadata server.
//!
//! In `conceal` every request takes this path, otherwise only requests of the ServiceAccounts that the configuration lets through.
//!
//! The dialect builds each upstream request anew from what it parsed: a canonical path and query and one header of ours, with no byte
//! of the client's. So the two servers cannot read one request differently, which is how filters are bypassed.

use std::time::Duration;

use http::Method;
use seawall_http::{Refusal, RequestHead, ResponseContext, ResponseFraming};
use seawall_protocols::google::{self, MetadataServerKind};
use seawall_server::client::ClientShares;
use seawall_server::response::{DeferredResponse, ReadyResponse, WriteContext, WriteOutcome};
use seawall_server::upstream::{Forwarder, UpstreamRequest, UpstreamResponse};

use super::routes;

/// The filter and the forwarder behind it.
#[derive(Debug)]
pub(super) struct GooglePassthrough {
    forwarder: Forwarder,
    server: MetadataServerKind,
}

/// The timeout of a request to the real server.
///
/// It is longer than one try of Google's libraries (3 s for Python and Node), so the agent never gives up first.
const PATIENCE: Duration = Duration::from_secs(10);

impl GooglePassthrough {
    /// Forwards to the real server behind `forwarder`. Refusals have the format of `server`.
    pub(super) fn new(forwarder: Forwarder, server: MetadataServerKind) -> Self {
        Self { forwarder, server }
    }

    /// Forwards the request if it may go upstream, and returns its deferred response.
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
            // GET replaces HEAD too: then the length of the response is known, and the response context leaves out the body.
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

/// The real server's response, or the refusal that replaces it.
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
