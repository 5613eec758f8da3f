//! The way to the real metadata server, for `conceal`.
//!
//! What goes upstream was built anew by the dialect from what it understood: a canonical path and query, one header of
//! ours, no byte of the client's. So the two servers cannot read one request differently, which is how filters
//! are got around. Each traffic thread has its own pool of upstream connections. Long polls have places of their own and
//! cannot starve short requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use seawall_cloud::{Refusal, gce};
use seawall_wire::RequestHead;

use crate::callers::Caller;
use crate::connections::Cap;
use crate::later::{Later, LongPolls, Outcome};
use crate::metrics::Route;
use crate::places::Places;

/// How long the real server may take to answer a request that is no long poll, waiting for a place included.
const DEADLINE: Duration = Duration::from_secs(10);

/// The real server is on this node's own network: a connection takes microseconds or does not come.
const CONNECT: Duration = Duration::from_secs(1);

/// Largest body passed on. The largest real one (a service-account subtree, recursively) is a few KiB.
const BODY: usize = 1024 * 1024;

const UNREACHABLE: Refusal = Refusal::new(
    503,
    "upstream_unreachable",
    "The real metadata server could not be reached; try again shortly.",
);
const SLOW: Refusal =
    Refusal::new(503, "upstream_slow", "The real metadata server did not answer in time; try again shortly.");
const STOPPING: Refusal = Refusal::new(
    503,
    "stopping",
    "The agent is being stopped, and its successor will know of changes; try again shortly.",
);
const TOO_LARGE: Refusal =
    Refusal::new(502, "upstream_too_large", "The real metadata server's answer is larger than is passed on.");

/// What the real server answered.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// One thread's client of the real metadata server; the places are all threads'.
#[derive(Debug)]
pub(crate) struct Forwarder {
    client: Client<HttpConnector, Empty<Bytes>>,
    upstream: String,
    places: Arc<Places>,
    long_polls: LongPolls,
}

impl Forwarder {
    /// A client for `upstream` (`http://HOST[:PORT]`) whose short requests take one of `places` each, and which keeps at
    /// most `idle` connections.
    pub(crate) fn new(upstream: &str, places: Arc<Places>, idle: usize, long_polls: LongPolls) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(idle)
            .build(connector);
        Self { client, upstream: upstream.to_owned(), places, long_polls }
    }

    /// The answer that will come, if the request may go upstream at all.
    ///
    /// # Errors
    /// The rule of the dialect that forbids it, or too many long polls.
    pub(crate) fn forward(
        &self,
        caller: &Caller,
        share: &Arc<Cap>,
        head: &RequestHead<'_, '_>,
    ) -> Result<Later, Refusal> {
        let forward = gce::admit(head)?;
        let own_polls = match caller {
            Caller::Pod(pod) => Some(&pod.long_polls),
            _ => None,
        };
        let poll = forward.hold.as_ref().map(|_| self.long_polls.enter(own_polls)).transpose()?;
        let deadline = DEADLINE + forward.hold.as_ref().map_or(Duration::ZERO, |hold| hold.timeout);
        let request = self.request(&forward)?;
        let is_poll = poll.is_some();
        let (client, places, share, mut stop) =
            (self.client.clone(), self.places.clone(), share.clone(), self.long_polls.stop.clone());
        let outcome = async move {
            let _poll = poll;
            let asked = async {
                let _place = if is_poll { None } else { places.enter(&share).await };
                ask(&client, request).await
            };
            let asked = tokio::time::timeout(deadline, asked);
            let answered = tokio::select! {
                answered = asked => answered.unwrap_or(Err(SLOW)),
                () = stop.begun(), if is_poll => Err(STOPPING),
            };
            answered.map_or_else(Outcome::Refused, Outcome::Forwarded)
        };
        Ok(Later { route: Route::Forward, is_poll, outcome: Box::pin(outcome) })
    }

    fn request(&self, forward: &gce::Forward<'_>) -> Result<Request<Empty<Bytes>>, Refusal> {
        let uri: Uri = format!("{}{}", self.upstream, forward.target).parse().map_err(|_| UNREACHABLE)?;
        // GET for HEAD, too: the answer's length is then known, and its body is left out by the frame.
        let request = Request::get(uri).header("metadata-flavor", "Google");
        request.body(Empty::new()).map_err(|_| UNREACHABLE)
    }
}

async fn ask(
    client: &Client<HttpConnector, Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
) -> Result<Forwarded, Refusal> {
    let response = client.request(request).await.map_err(|error| {
        tracing::debug!(%error, "the real metadata server could not be reached");
        UNREACHABLE
    })?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, BODY).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() { TOO_LARGE } else { UNREACHABLE }
    })?;
    Ok(Forwarded { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() })
}
