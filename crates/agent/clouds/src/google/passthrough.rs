//! Forwards requests through a filter to Google's real metadata server.
//!
//! In `conceal` mode the agent forwards the requests of all pods. In both modes it forwards the requests of pods with a
//! ServiceAccount in `realServer`.
//!
//! The agent builds each upstream request itself, from the parsed path and query, and adds one header, `Metadata-Flavor`. The
//! upstream request contains no raw bytes of the client. The agent and the real server therefore cannot interpret a request
//! differently. Attackers use such differences to bypass filters.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use seawall_core::cloud::CloudName;
use seawall_http::{Refusal, RequestHead, ResponseContext, ResponseFraming};
use seawall_protocols::google::{self, MetadataServerKind};
use seawall_server::connection_client::UpstreamChargedClient;
use seawall_server::response::{CompletedDeferredResponse, DeferredResponse, WriteContext, WriteOutcome};
use seawall_server::route;
use seawall_server::upstream::{Forwarder, UpstreamRequest, UpstreamResponse};

use super::{long_polls, request_kind_labels};
use crate::pod::PodEntry;

/// The filter and the forwarder behind it.
#[derive(Debug)]
pub(crate) struct GooglePassthrough {
    forwarder: Forwarder,
    server: MetadataServerKind,
}

/// The timeout of a request to the real server.
///
/// The timeout is longer than one try of Google's libraries (3 s for Python and Node), so the agent never gives up before its
/// client.
const PATIENCE: Duration = Duration::from_secs(10);

impl GooglePassthrough {
    /// Creates a passthrough over `forwarder`. Refusals have the format of `server`.
    pub(super) fn new(forwarder: Forwarder, server: MetadataServerKind) -> Self {
        Self { forwarder, server }
    }

    /// Forwards the request if the rules allow it, and returns the deferred response. `pod` is the client, if it is a known pod.
    ///
    /// # Errors
    /// A rule forbids the request, or too many long polls are open.
    pub(super) fn forward(
        &self,
        pod: Option<&Arc<PodEntry>>,
        shares: UpstreamChargedClient<'_>,
        head: &RequestHead<'_, '_>,
    ) -> Result<DeferredResponse, Refusal> {
        let admitted = google::admit_request(head)?;
        let forward = UpstreamRequest {
            target: &admitted.target,
            // The agent sends GET even for a HEAD request, to know the length of the response. `ResponseContext` then omits the
            // body.
            method: Method::GET,
            headers: &[("metadata-flavor", "Google")],
            timeout: PATIENCE,
            long_poll_wait: admitted.long_poll.as_ref().map(|hold| hold.timeout),
        };
        let (is_poll, answer) = self.forwarder.forward(shares, &forward)?;
        let server = self.server;
        let token_reader = pod.filter(|_| admitted.is_token_request).cloned();
        Ok(DeferredResponse::new(&request_kind_labels::FORWARD, is_poll, async move {
            let answer = answer.await;
            if let (Some(pod), Ok(UpstreamResponse { status: 200, .. })) = (token_reader, &answer) {
                pod.record_node_credentials(CloudName::Google);
            }
            Box::new(PassthroughResponse { server, answer }) as Box<dyn CompletedDeferredResponse>
        }))
    }
}

impl GooglePassthrough {
    /// Forwards the request of a pod in `realServer`, as [`Self::forward`] does. The request ends when the pod leaves the list.
    ///
    /// # Errors
    /// As for [`Self::forward`].
    pub(crate) fn forward_for_real_server_pod(
        &self,
        pod: &Arc<PodEntry>,
        shares: UpstreamChargedClient<'_>,
        head: &RequestHead<'_, '_>,
    ) -> Result<DeferredResponse, Refusal> {
        let response = self.forward(Some(pod), shares, head)?;
        let response = long_polls::end_on_revocation(pod, response, self.server);
        Ok(DeferredResponse { route: &route::REAL_SERVER, ..response })
    }
}

/// The response of the real server, or the refusal that replaces it.
#[derive(Debug)]
struct PassthroughResponse {
    server: MetadataServerKind,
    answer: Result<UpstreamResponse, Refusal>,
}

impl CompletedDeferredResponse for PassthroughResponse {
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome {
        match self.answer {
            Ok(answer) => passed_on(self.server, answer, writing.response_context, out),
            Err(refusal) => {
                self.server.write_refusal(out, writing.response_context, &refusal);
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
    let UpstreamResponse { status, headers, body, remaining_body: rest } = answer;
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let Some(rest) = rest else {
        server.write_forwarded(out, frame, status, headers, &body);
        return WriteOutcome::whole(status);
    };
    let length = ResponseFraming::choose(rest.total_length, frame.version);
    let keep_alive = frame.keep_alive && length != ResponseFraming::UntilClose;
    server.write_forwarded_head(out, &ResponseContext { keep_alive, ..*frame }, status, headers, length);
    if frame.head_only {
        return WriteOutcome::whole(status);
    }
    length.write_part(out, &body);
    WriteOutcome { status, remaining_body: Some((rest, length)) }
}
