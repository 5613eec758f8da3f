//! The client of a cloud's real metadata server. The dialect decides which requests go there.
//!
//! Each traffic thread has its own pool of upstream connections. Long polls have permits of their own and cannot starve short
//! requests.
//!
//! The agent holds at most a [`WINDOW`] of an answer. It passes a larger answer on piece by piece, as fast as the client reads, and
//! holds the permit for that time. So the number of permits limits the memory of all answers on their way, and clients share the
//! permits ([`permits`]).

pub mod long_polls;
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

use self::long_polls::{LongPollLimit, LongPollPermit};
use self::permits::{UpstreamPermit, UpstreamPermits};
use super::client::{ClientId, ClientShares};

/// The time limit for the real server to continue an answer that it has begun.
const GO_ON: Duration = Duration::from_secs(10);

/// The time limit for a connection to the real server.
/// The server is on this node's own network: a connection takes microseconds or does not come.
const CONNECT: Duration = Duration::from_secs(1);

/// The bytes of an answer that are held at once.
/// Nearly every real answer is smaller (the largest, a service-account subtree read recursively, has a few KiB). A smaller window
/// allows more requests at the real server at once, which a slow server needs: 13 pods that send 20 requests a second need 26 permits
/// at 100 ms, and some for uneven arrivals.
const WINDOW: usize = 8 * 1024;

/// The time to wait for more bytes to fill a window once the first have come.
/// Without it a server that sends byte by byte would cost a system call for each byte.
const GATHER: Duration = Duration::from_millis(20);

/// The kernel's buffer for bytes that the real server has sent and that are not read yet.
const RECEIVE_BUFFER: usize = WINDOW;

/// The largest body that is passed on.
const BODY: u64 = 1024 * 1024;

const UNREACHABLE: Refusal = Refusal::new(
    503,
    "upstream_unreachable",
    "The agent cannot reach the real metadata server; try again shortly.",
);
/// The refusal of a request that the real server did not answer in time.
pub const TIMED_OUT: Refusal = Refusal::new(
    503,
    "upstream_timeout",
    "The real metadata server did not answer in time; try again shortly.",
);
const SHUTTING_DOWN: Refusal =
    Refusal::new(503, "shutting_down", "The agent is shutting down; try again shortly at the next agent.");
const TOO_LARGE: Refusal = Refusal::new(
    502,
    "upstream_too_large",
    "The real metadata server's answer is larger than the agent passes on.",
);

/// A request to the real server.
#[derive(Clone, Debug)]
pub struct UpstreamRequest<'a> {
    /// Path and query, built by the dialect.
    pub target: &'a str,
    /// The method of the request.
    pub method: Method,
    /// The headers that go along: the dialect's own, none of the client's.
    pub headers: &'a [(&'static str, &'a str)],
    /// The time limit for the real server, including the wait for a permit. It depends on how long the dialect's clients wait.
    pub timeout: Duration,
    /// The time for which the real server holds a long poll, in addition to `timeout`.
    pub long_poll_wait: Option<Duration>,
}

/// The answer of the real server.
#[derive(Debug)]
pub struct UpstreamResponse {
    /// The status.
    pub status: u16,
    /// All headers of the answer.
    pub headers: HeaderMap,
    /// The body, or its beginning.
    pub body: Vec<u8>,
    /// The part of the body after its beginning, if there is more.
    pub rest: Option<Box<BodyStream>>,
}

/// The part of an answer that is passed on as the client reads it.
#[derive(Debug)]
pub struct BodyStream {
    /// The length of the whole body, if the real server announced it.
    pub length: Option<u64>,
    /// The bytes that may still come.
    left: u64,
    body: Incoming,
    _place: Option<UpstreamPermit>,
    _poll: Option<LongPollPermit>,
}

/// A part of an answer.
#[derive(Debug)]
pub struct BodyChunk {
    /// The bytes of the part.
    pub bytes: Vec<u8>,
    /// The number of pieces in which the part came, which is a measure of the cost to read it.
    pub pieces: u32,
    /// True if the answer ends with this part.
    pub is_last: bool,
}

impl BodyStream {
    /// Returns the next part; `None` if the real server broke off, or exceeds the size limit.
    pub async fn next(&mut self) -> Option<BodyChunk> {
        let part = tokio::time::timeout(GO_ON, gather(&mut self.body)).await.ok()?.ok()?;
        self.left = self.left.checked_sub(part.bytes.len() as u64)?;
        Some(part)
    }
}

/// Reads until a window is full, the body has ended, or no bytes come for a moment.
async fn gather(body: &mut Incoming) -> hyper::Result<BodyChunk> {
    let mut part = BodyChunk { bytes: Vec::new(), pieces: 0, is_last: false };
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

/// Takes the next piece and copies it. A piece of one byte would otherwise keep the whole read buffer alive.
async fn take(body: &mut Incoming, part: &mut BodyChunk) -> hyper::Result<()> {
    match body.frame().await.transpose()? {
        Some(frame) => {
            part.bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
            part.pieces += 1;
        }
        None => part.is_last = true,
    }
    Ok(())
}

/// One thread's client of the real metadata server. All threads share the permits. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Forwarder {
    client: Client<HttpConnector, Empty<Bytes>>,
    upstream: Arc<str>,
    places: Arc<UpstreamPermits>,
    long_polls: LongPollLimit,
}

impl Forwarder {
    /// Returns a client for `upstream` (`http://HOST[:PORT]`) that keeps at most `idle` connections.
    /// Its short requests take one of `places` each.
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

    /// Sends a request. Returns whether it is a long poll, and a future of the answer or of the refusal.
    ///
    /// # Errors
    /// Too many long polls, or the target does not form a valid request.
    pub fn forward(
        &self,
        shares: ClientShares<'_>,
        forward: &UpstreamRequest<'_>,
    ) -> Result<(bool, impl Future<Output = Result<UpstreamResponse, Refusal>> + use<>), Refusal> {
        let poll = forward.long_poll_wait.map(|_| self.long_polls.acquire(shares.long_polls)).transpose()?;
        Ok((poll.is_some(), self.asked(shares.client, poll, forward)?))
    }

    /// Sends a request that is not a long poll, with this client's share. Returns a future of the answer.
    ///
    /// # Errors
    /// The target does not form a valid request.
    pub fn forward_short(
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
            (self.client.clone(), self.places.clone(), self.long_polls.stop.clone());
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

/// An answer whose head has come.
struct StartedResponse {
    status: u16,
    headers: HeaderMap,
    body: Incoming,
}

impl StartedResponse {
    /// Returns the whole answer and frees the permit if it fits a window; otherwise its beginning, and the rest as a stream.
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
                return Ok(UpstreamResponse { status, headers, body: first, rest: None });
            }
            if first.len() >= WINDOW {
                let left = BODY - first.len() as u64;
                let rest = BodyStream { length, left, body, _place: place, _poll: poll };
                return Ok(UpstreamResponse { status, headers, body: first, rest: Some(Box::new(rest)) });
            }
        }
    }
}
