//! The admin port: `/metrics`, `/healthz`, `/readyz`, `/debug/pods`.
//!
//! The admin port runs on the control thread, so that a slow scrape never delays a response to a pod. The HTTP library hyper
//! serves the port, because correctness matters here and speed does not. One client cannot prevent the responses to other
//! clients:
//!
//! - The agent accepts every new connection ([`connection_limit`]).
//! - The agent creates a costly page once for all waiting clients ([`single_flight`]).
//! - `/healthz` is cheap: it only reads two numbers.
//!
//! The port refuses requests that web pages cause ([`rebinding_guard`]). Its pages contain no credentials; `/debug/pods` shows
//! pods, accounts and times. An operator can open the port to a Prometheus server, and a pod of any tenant may then reach it. So
//! `/debug/pods` is only for clients on the node itself.

mod connection_limit;
mod listener;
mod rebinding_guard;
mod single_flight;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use seawall_core::shutdown::StopSignal;
use seawall_core::{Clock, Gcra};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::readiness::ReadinessChecker;
use connection_limit::{AdminConnectionLimit, AdminPermit};
pub use listener::AdminListeners;
use listener::{AdminClient, AdminListener};
use rebinding_guard::BrowserAttack;
use single_flight::SingleFlight;

/// The time limit for a request head, and for the idle time between two requests of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum age of a connection. After this time, a scraper must open a new connection.
const CONNECTION_LIFE: Duration = Duration::from_secs(60);

/// The time limit for the last response after [`CONNECTION_LIFE`].
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// The maximum number of clients that read `/debug/pods` at once. The page grows with the pods' leases, and each slow client
/// keeps a copy.
const DEBUG_READERS: usize = 2;

/// The maximum number of connections that the agent accepts per second. [`ACCEPTED_AT_ONCE`] is the size of a burst.
///
/// An evicted client can reconnect at once. In a measurement, an evicted client reconnected 22,000 times per second and used up
/// the CPU quota that requests of pods need. At the limit of 2,000, the kernel's accept queue (1,024 connections) drains in half
/// a second, which a kubelet's probe tolerates.
const ACCEPTED_PER_SECOND: u32 = 2000;
const ACCEPTED_AT_ONCE: u32 = 64;

/// The data that the admin port serves.
pub struct AdminSources {
    /// The metrics that a scrape writes.
    pub registry: Registry,
    /// The check that shows whether the listeners serve requests of pods.
    pub readiness_checker: ReadinessChecker,
    /// Returns the reason why only a restart can make the agent serve again.
    pub dead_reason: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Returns the reason why the agent is not ready although its listeners respond.
    pub unready_reason: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Returns the reason why pods do not reach this agent although the agent could serve them.
    pub unreachable_reason: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Returns warnings for the operator that do not make the agent unready.
    pub warnings: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Returns each pod's leases for `/debug/pods`, as JSON.
    pub pods_json: Box<dyn Fn() -> String + Send + Sync>,
}

/// The admin port.
pub struct AdminServer {
    sources: AdminSources,
    clock: Clock,
    metrics: SingleFlight<Option<Bytes>>,
    pods: SingleFlight<Option<Bytes>>,
    debug_readers: Arc<Semaphore>,
    ready: SingleFlight<ReadyReport>,
}

/// The result of `/readyz`.
#[derive(Clone)]
struct ReadyReport {
    verdict: Result<(), String>,
    /// The listeners' addresses and the warnings, one per line.
    details: String,
}

/// A page of `/debug/pods`. The page keeps a reader's permit until the client has read the page.
struct DebugPage {
    text: String,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for DebugPage {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl AdminServer {
    /// Creates a server for this data.
    pub fn new(sources: AdminSources, clock: Clock) -> Self {
        Self {
            sources,
            metrics: SingleFlight::new(clock.clone()),
            pods: SingleFlight::new(clock.clone()),
            debug_readers: Arc::new(Semaphore::new(DEBUG_READERS)),
            ready: SingleFlight::new(clock.clone()),
            clock,
        }
    }

    /// Serves at all of these listeners until shutdown begins, on the current runtime.
    pub fn serve_at(self: &Arc<Self>, doors: AdminListeners, stop: &StopSignal) {
        let (unix, tcp) = doors.into_listeners();
        if let Some(unix) = unix {
            tokio::spawn(self.clone().serve(unix, stop.clone()));
        }
        let (admin, mut stop) = (self.clone(), stop.clone());
        tokio::spawn(async move {
            let tcp = tokio::select! {
                tcp = tcp => tcp,
                () = stop.wait() => return,
            };
            admin.serve(tcp, stop).await;
        });
    }

    /// Serves one listener until shutdown begins.
    async fn serve(self: Arc<Self>, door: impl AdminListener, mut stop: StopSignal) {
        let places = AdminConnectionLimit::new(self.clock.clone());
        let pace = Gcra::new(ACCEPTED_PER_SECOND, ACCEPTED_AT_ONCE);
        loop {
            let accepted = tokio::select! {
                accepted = door.accept() => accepted,
                () = stop.wait() => return,
            };
            match accepted {
                Ok((stream, client)) => self.clone().take(stream, client, &places),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection at the admin address");
                    // Usually the process has no free file descriptor. Evicting a connection frees a descriptor.
                    places.evict_one();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            // The new connection's task runs before the next accept. Otherwise a flood could evict a probe's connection before
            // the agent reads the probe's request.
            tokio::task::yield_now().await;
            while let Err(wait) = pace.take(self.clock.now()) {
                tokio::time::sleep(wait).await;
            }
        }
    }

    fn take<S>(self: Arc<Self>, stream: S, client: AdminClient, places: &AdminConnectionLimit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let place = Arc::new(places.take_or_evict(client.address));
        // Each connection has its own task, so the end of one connection does not affect the others.
        tokio::spawn(async move {
            let ended = place.clone();
            tokio::select! {
                () = self.connection(stream, place, client.is_on_node) => {}
                () = ended.wait_for_eviction() => {}
            }
        });
    }

    /// Serves until the client closes the connection, or until the last response after [`CONNECTION_LIFE`].
    async fn connection<S>(self: Arc<Self>, stream: S, place: Arc<AdminPermit>, is_on_node: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let clock = self.clock.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (admin, place) = (self.clone(), place.clone());
            async move {
                place.set_busy(true);
                let mut response = admin.answer(&request, is_on_node).await;
                place.set_busy(false);
                if place.is_crowded() {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(8 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = clock.sleep(CONNECTION_LIFE) => connection.as_mut().graceful_shutdown(),
        }
        let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
    }

    /// Responds to a request. `/healthz` and `/readyz` accept any Host header, because a kubelet sends the Host that the probe in
    /// the pod's manifest names.
    async fn answer(&self, request: &Request<Incoming>, is_on_node: bool) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "the admin port accepts GET and HEAD only\n");
        }
        let checked = BrowserAttack::check(request);
        match (request.uri().path(), checked) {
            ("/healthz", _) => self.health(),
            ("/readyz", checked) => self.ready(checked.is_ok()).await,
            (_, Err(trick)) => refused(trick),
            ("/metrics", Ok(())) => self.metrics().await,
            ("/debug/pods", Ok(())) if !is_on_node => text(
                StatusCode::FORBIDDEN,
                "this page is only for clients on the node itself; run `seawall-agent status` in the agent's pod\n",
            ),
            ("/debug/pods", Ok(())) => self.pods().await,
            _ => text(
                StatusCode::NOT_FOUND,
                "no such page; the pages are /metrics, /healthz, /readyz and /debug/pods\n",
            ),
        }
    }

    /// Returns 503 if only a restart can help. The kubelet then restarts the agent. The reason names no pod.
    fn health(&self) -> Response<Full<Bytes>> {
        match (self.sources.dead_reason)() {
            None => text(StatusCode::OK, "ok\n"),
            Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{reason}\n")),
        }
    }

    async fn metrics(&self) -> Response<Full<Bytes>> {
        let page = async {
            let mut out = String::new();
            let written = prometheus_client::encoding::text::encode(&mut out, &self.sources.registry);
            written.ok().map(|()| Bytes::from(out))
        };
        match self.metrics.run(page).await {
            Some(page) => {
                typed(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", page)
            }
            None => text(StatusCode::INTERNAL_SERVER_ERROR, "cannot write the metrics\n"),
        }
    }

    async fn pods(&self) -> Response<Full<Bytes>> {
        let page = async {
            let permit = self.debug_readers.clone().try_acquire_owned().ok()?;
            Some(Bytes::from_owner(DebugPage { text: (self.sources.pods_json)(), _permit: permit }))
        };
        match self.pods.run(page).await {
            Some(page) => typed(StatusCode::OK, "application/json", page),
            None => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "other clients are still reading this page; try again shortly\n",
            ),
        }
    }

    /// Checks that the agent could serve a pod now and that pods reach the agent.
    async fn is_ready(&self) -> Result<(), String> {
        self.check_can_serve_pods().await?;
        (self.sources.unreachable_reason)().map_or(Ok(()), Err)
    }

    /// Checks that the agent could serve a pod that sends a request now.
    ///
    /// # Errors
    /// The error is the reason why the agent could not serve the pod.
    pub async fn check_can_serve_pods(&self) -> Result<(), String> {
        match (self.sources.unready_reason)() {
            Some(obstacle) => Err(obstacle),
            None => self.sources.readiness_checker.check().await,
        }
    }

    /// Returns the result of `/readyz`. If the request cannot come from a web page (`for_operators`), the response also contains
    /// the reason, the listeners' addresses and the warnings.
    async fn ready(&self, for_operators: bool) -> Response<Full<Bytes>> {
        let look = async {
            let addresses: Vec<_> =
                self.sources.readiness_checker.addresses().map(|at| at.to_string()).collect();
            let addresses = format!("listening at {}\n", addresses.join(" and "));
            let warnings = (self.sources.warnings)().into_iter().map(|line| format!("warning: {line}\n"));
            ReadyReport {
                details: std::iter::once(addresses).chain(warnings).collect(),
                verdict: self.is_ready().await,
            }
        };
        let ReadyReport { verdict, details } = self.ready.run(look).await;
        match verdict {
            Ok(()) if for_operators => text(StatusCode::OK, &format!("ready\n{details}")),
            Err(reason) if for_operators => {
                text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {reason}\n{details}"))
            }
            Ok(()) => text(StatusCode::OK, "ready\n"),
            Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        }
    }
}

/// Refuses a request that a web page could have caused. Status 421 means that this server is not the host in the request (RFC
/// 9110 section 15.5.20).
fn refused(trick: BrowserAttack) -> Response<Full<Bytes>> {
    match trick {
        BrowserAttack::DnsRebinding => {
            text(StatusCode::MISDIRECTED_REQUEST, "the Host header must be an IP address or localhost\n")
        }
        BrowserAttack::CrossSite => text(
            StatusCode::FORBIDDEN,
            "the admin port does not answer requests from web pages of other sites\n",
        ),
    }
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", Bytes::copy_from_slice(body.as_bytes()))
}

fn typed(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
