//! Forwards requests to a cloud's real metadata server. The dialect decides which requests the agent forwards.
//!
//! Each traffic thread has a separate pool of upstream connections. Long polls use separate permits, so they cannot block short
//! requests.
//!
//! The agent buffers at most [`WINDOW`] bytes of an answer. It forwards a larger answer in parts, as fast as the client reads.
//! During this time, the request holds its permit. Therefore the number of permits limits the memory of all unfinished answers.
//! The clients share the permits ([`permits`]).

pub mod long_poll_limit;
pub mod permits;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use seawall_http::Refusal;

use self::long_poll_limit::{LongPollLimit, LongPollPermit};
use self::permits::{UpstreamPermit, UpstreamPermits};
use super::connection_client::{ClientId, UpstreamChargedClient};

/// The time limit for the next bytes of an answer that the real server has begun to send.
const GO_ON: Duration = Duration::from_secs(10);

/// The time limit to open a TCP connection to the real server.
/// The server is on the network of this node, so a connect attempt succeeds within microseconds or fails.
const CONNECT: Duration = Duration::from_secs(1);

/// The maximum number of bytes of an answer that the agent buffers.
/// Nearly every real answer is smaller. The largest answer is a recursive read of a service-account subtree, with a few KiB. With
/// a smaller window, more simultaneous requests fit into the same memory. The agent needs many simultaneous requests if the real
/// server is slow. For example, if 13 pods each send 20 requests per second and the server answers in 100 ms, the pods need 26
/// permits. Uneven arrivals need a few more permits.
const WINDOW: usize = 8 * 1024;

/// The time to wait for more bytes after the first bytes of a window have arrived.
/// Without this wait, a server that sends single bytes would cost one system call per byte.
const GATHER: Duration = Duration::from_millis(20);

/// The size in bytes of the kernel's receive buffer for an upstream connection.
const RECEIVE_BUFFER: usize = WINDOW;

/// The largest body that the agent forwards, in bytes.
const BODY: u64 = 1024 * 1024;

const UNREACHABLE: Refusal = Refusal::new(
    503,
    "upstream_unreachable",
    "The agent cannot reach the real metadata server; try again shortly.",
);
/// The refusal for a request that the real server did not answer in time.
pub const TIMED_OUT: Refusal = Refusal::new(
    503,
    "upstream_timeout",
    "The real metadata server did not answer in time; try again shortly.",
);
const SHUTTING_DOWN: Refusal =
    Refusal::new(503, "shutting_down", "The agent is shutting down; try again shortly.");
const TOO_LARGE: Refusal = Refusal::new(
    502,
    "upstream_too_large",
    "The real metadata server's answer is larger than the agent forwards.",
);

/// A request to the real metadata server.
#[derive(Clone, Debug)]
pub struct UpstreamRequest<'a> {
    /// The path and query of the request. The dialect has built both.
    pub target: &'a str,
    /// The method of the request.
    pub method: Method,
    /// The headers to send. The dialect sets all these headers. The agent does not forward the client's headers.
    pub headers: &'a [(&'static str, &'a str)],
    /// The time limit for the answer, including the wait for a permit. The limit depends on the usual timeout of the dialect's
    /// clients.
    pub timeout: Duration,
    /// The time for which the real server may delay the answer to a long poll, in addition to `timeout`.
    /// For other requests, the value is `None`.
    pub long_poll_wait: Option<Duration>,
}

/// The answer of the real metadata server.
#[derive(Debug)]
pub struct UpstreamResponse {
    /// The HTTP status code.
    pub status: u16,
    /// All headers of the answer.
    pub headers: HeaderMap,
    /// The whole body, or the first part of a large body.
    pub body: Vec<u8>,
    /// The stream of the remaining body, if `body` is only the first part.
    pub remaining_body: Option<Box<BodyStream>>,
}

/// The remaining part of the body of a large answer. The agent forwards this part as fast as the client reads.
#[derive(Debug)]
pub struct BodyStream {
    /// The length of the whole body, if the real server announced the length.
    pub total_length: Option<u64>,
    /// The maximum number of bytes that may still arrive.
    left: u64,
    body: Incoming,
    _place: Option<UpstreamPermit>,
    _poll: Option<LongPollPermit>,
}

/// One part of a large answer.
#[derive(Debug)]
pub struct BodyChunk {
    /// The bytes of this part.
    pub bytes: Vec<u8>,
    /// The number of pieces in which this part arrived. More pieces cost more CPU time.
    pub piece_count: u32,
    /// True if this part is the last part of the answer.
    pub is_last: bool,
}

impl BodyStream {
    /// Returns the next part. Returns `None` if the real server aborted the answer, paused longer than [`GO_ON`], or exceeded the
    /// size limit.
    pub async fn next(&mut self) -> Option<BodyChunk> {
        let part = tokio::time::timeout(GO_ON, gather(&mut self.body)).await.ok()?.ok()?;
        self.left = self.left.checked_sub(part.bytes.len() as u64)?;
        Some(part)
    }
}

/// Reads until a window is full, the body has ended, or [`GATHER`] has passed since the first bytes.
async fn gather(body: &mut Incoming) -> hyper::Result<BodyChunk> {
    let mut part = BodyChunk { bytes: Vec::new(), piece_count: 0, is_last: false };
    take(body, &mut part).await?;
    let more = async {
        while !part.is_last && part.bytes.len() < WINDOW {
            take(body, &mut part).await?;
        }
        hyper::Result::Ok(())
    };
    tokio::time::timeout(GATHER, more).await.unwrap_or(Ok(()))?;
    Ok(part)
}

/// Reads the next piece and copies it. Without the copy, a piece of one byte would keep the whole read buffer in memory.
async fn take(body: &mut Incoming, part: &mut BodyChunk) -> hyper::Result<()> {
    match body.frame().await.transpose()? {
        Some(frame) => {
            part.bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
            part.piece_count += 1;
        }
        None => part.is_last = true,
    }
    Ok(())
}

/// One thread's HTTP client for the real metadata server. All threads share the permits. A clone of this value is cheap.
#[derive(Clone, Debug)]
pub struct Forwarder {
    client: Client<HttpConnector, Empty<Bytes>>,
    upstream: Arc<str>,
    places: Arc<UpstreamPermits>,
    long_polls: LongPollLimit,
}

impl Forwarder {
    /// Returns a client for `upstream` (`http://HOST[:PORT]`). The client keeps at most `idle` idle connections.
    /// Each short request takes one of the permits in `places`.
    pub fn new(upstream: &str, places: Arc<UpstreamPermits>, idle: usize, long_polls: LongPollLimit) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        connector.set_recv_buffer_size(Some(RECEIVE_BUFFER));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(idle)
            .http1_max_buf_size(WINDOW)
            .build(connector);
        Self { client, upstream: upstream.into(), places, long_polls }
    }

    /// Returns a flag and a future. The flag is true if the request is a long poll.
    /// The future sends the request and yields the answer or a refusal.
    ///
    /// # Errors
    /// Too many long polls are open, or the target does not form a valid request.
    pub fn forward(
        &self,
        shares: UpstreamChargedClient<'_>,
        forward: &UpstreamRequest<'_>,
    ) -> Result<(bool, impl Future<Output = Result<UpstreamResponse, Refusal>> + use<>), Refusal> {
        let poll = forward
            .long_poll_wait
            .map(|_| self.long_polls.try_acquire(shares.long_poll_counter))
            .transpose()?;
        Ok((poll.is_some(), self.asked(shares.client, poll, forward)?))
    }

    /// Returns a future that sends a request other than a long poll and yields the answer.
    /// The request uses an upstream permit of this client.
    ///
    /// # Errors
    /// The target does not form a valid request.
    pub fn forward_non_long_poll(
        &self,
        client: ClientId,
        forward: &UpstreamRequest<'_>,
    ) -> Result<impl Future<Output = Result<UpstreamResponse, Refusal>> + use<>, Refusal> {
        self.asked(client, None, forward)
    }

    fn asked(
        &self,
        client: ClientId,
        poll: Option<LongPollPermit>,
        forward: &UpstreamRequest<'_>,
    ) -> Result<impl Future<Output = Result<UpstreamResponse, Refusal>> + use<>, Refusal> {
        let deadline = forward.timeout + forward.long_poll_wait.unwrap_or_default();
        let request = self.request(forward)?;
        let is_poll = poll.is_some();
        let (server, places, mut stop) =
            (self.client.clone(), self.places.clone(), self.long_polls.stop_signal.clone());
        Ok(async move {
            let asked = async {
                let place = if is_poll { None } else { places.acquire(client).await };
                ask(&server, request).await?.whole_or_rest(place, poll).await
            };
            let asked = tokio::time::timeout(deadline, asked);
            tokio::select! {
                answered = asked => answered.unwrap_or(Err(TIMED_OUT)),
                () = stop.wait(), if is_poll => Err(SHUTTING_DOWN),
            }
        })
    }

    fn request(&self, forward: &UpstreamRequest<'_>) -> Result<Request<Empty<Bytes>>, Refusal> {
        let uri: Uri = format!("{}{}", self.upstream, forward.target).parse().map_err(|_| UNREACHABLE)?;
        let request = Request::builder().method(forward.method.clone()).uri(uri);
        let request =
            forward.headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(Empty::new()).map_err(|_| UNREACHABLE)
    }
}

async fn ask(
    client: &Client<HttpConnector, Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
) -> Result<StartedResponse, Refusal> {
    let response = client.request(request).await.map_err(|error| {
        tracing::debug!(%error, "cannot reach the real metadata server");
        UNREACHABLE
    })?;
    let (head, body) = response.into_parts();
    Ok(StartedResponse { status: head.status.as_u16(), headers: head.headers, body })
}

/// An answer whose head has arrived.
struct StartedResponse {
    status: u16,
    headers: HeaderMap,
    body: Incoming,
}

impl StartedResponse {
    /// If the answer fits into one window, returns the whole answer and releases the permit.
    /// Otherwise returns the first part of the answer, and the rest as a stream that keeps the permit.
    async fn whole_or_rest(
        self,
        place: Option<UpstreamPermit>,
        poll: Option<LongPollPermit>,
    ) -> Result<UpstreamResponse, Refusal> {
        let Self { status, headers, mut body } = self;
        let length = body.size_hint().exact();
        if length.is_some_and(|length| length > BODY) {
            return Err(TOO_LARGE);
        }
        let mut first = Vec::new();
        loop {
            let part = gather(&mut body).await.map_err(|_| UNREACHABLE)?;
            first.extend_from_slice(&part.bytes);
            if part.is_last {
                return Ok(UpstreamResponse { status, headers, body: first, remaining_body: None });
            }
            if first.len() >= WINDOW {
                let left = BODY - first.len() as u64;
                let rest = BodyStream { total_length: length, left, body, _place: place, _poll: poll };
                return Ok(UpstreamResponse {
                    status,
                    headers,
                    body: first,
                    remaining_body: Some(Box::new(rest)),
                });
            }
        }
    }
}
