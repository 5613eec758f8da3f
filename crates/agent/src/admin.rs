//! The admin port: `/metrics`, `/healthz`, `/readyz`, `/debug/pods`.
//!
//! Runs on the control thread, so that a slow scrape never delays a pod's answer. hyper serves it: correctness
//! matters here and speed does not. Nothing it writes holds a credential; `/debug/pods` names pods, accounts and
//! times.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::lifecycle::Stop;
use crate::ready::Readiness;

/// Scrapers and probes are few; more than this at once is a mistake or an attack.
const CONNECTIONS: usize = 32;

const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest a connection may live: scrapers reconnect without harm.
const CONNECTION_LIFE: Duration = Duration::from_secs(60);

/// What the admin port can tell.
pub(crate) struct Admin {
    pub(crate) registry: Registry,
    pub(crate) readiness: Readiness,
    /// Why the agent is not ready although its listeners answer.
    pub(crate) obstacle: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Lines that do not make the agent unready but that an operator should see.
    pub(crate) remarks: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Who holds what, for `/debug/pods`.
    pub(crate) pods: Box<dyn Fn() -> serde_json::Value + Send + Sync>,
}

impl Admin {
    /// Serves until the stop has begun.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, mut stop: Stop) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.begun() => return,
            };
            match (accepted, places.clone().try_acquire_owned()) {
                (Ok((stream, _)), Ok(place)) => {
                    let connection = self.clone().connection(stream);
                    tokio::spawn(async move {
                        // The end of one connection, however it ends, concerns nobody else.
                        let _ = tokio::time::timeout(CONNECTION_LIFE, connection).await;
                        drop(place);
                    });
                }
                (Ok(_), Err(_)) => {}
                (Err(error), _) => {
                    tracing::warn!(%error, "the admin port could not accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) -> hyper::Result<()> {
        let service = service_fn(move |request: Request<Incoming>| {
            let admin = self.clone();
            async move { Ok::<_, Infallible>(admin.answer(&request).await) }
        });
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(8 * 1024)
            .serve_connection(TokioIo::new(stream), service)
            .await
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered here\n");
        }
        match request.uri().path() {
            "/metrics" => self.metrics(),
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" => self.ready().await,
            "/debug/pods" => typed(StatusCode::OK, "application/json", format!("{:#}\n", (self.pods)())),
            _ => text(StatusCode::NOT_FOUND, "there are /metrics, /healthz, /readyz and /debug/pods\n"),
        }
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        let mut out = String::new();
        match prometheus_client::encoding::text::encode(&mut out, &self.registry) {
            Ok(()) => {
                typed(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", out)
            }
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n"),
        }
    }

    /// Whether a pod would be served now.
    ///
    /// # Errors
    /// Why not.
    pub(crate) async fn is_ready(&self) -> Result<(), String> {
        match (self.obstacle)() {
            Some(obstacle) => Err(obstacle),
            None => self.readiness.ask().await,
        }
    }

    async fn ready(&self) -> Response<Full<Bytes>> {
        let remarks: String = (self.remarks)().into_iter().map(|line| format!("note: {line}\n")).collect();
        match self.is_ready().await {
            Ok(()) => text(StatusCode::OK, &format!("ready\n{remarks}")),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("not ready: {reason}\n{remarks}")),
        }
    }
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", body.to_owned())
}

fn typed(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}
