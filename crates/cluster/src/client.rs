//! The connection to the API server: no call without a limit.
//!
//! Credentials are read once, into an [`Endpoint`]; a [`Client`] with connections of its own is made of it on each thread that
//! speaks to the API server, one for asking and one for hearing (`hearing`).
//!
//! Assembled here and not by kube's default stack for three reasons: that one retries 429 and 503 by itself up to
//! fifteen times (our callers decide when to try again), it has no TCP keep-alive (a vanished control-plane machine would
//! be noticed only by a watch's silence), and it logs each request as a span.

use std::future::Future;
use std::time::Duration;

use futures_util::future::{Either, select};
use http::Request;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use seawall_core::Clock;
use serde::de::DeserializeOwned;
use tower::{BoxError, ServiceExt};
use zeroize::Zeroizing;

use crate::StartError;
use crate::config::{Access, Patience};
use crate::failure::Failure;

/// Whom to ask, and how patiently. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) patience: Patience,
}

/// A client whose every call has a limit. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    kube: kube::Client,
    clock: Clock,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// An established connection is probed after this long without traffic, then this often, and given up after so many
/// probes: 25 s until a machine that vanished is noticed.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

/// Idle connections that are kept, and for how long; the watches hold theirs.
const IDLE: (usize, Duration) = (1, Duration::from_secs(30));

/// Bytes that are read at once. Left to itself, hyper's buffer grows to 408 KiB while much comes, for each connection, and what the
/// allocator got for it stays: a tenth of what the agent weighs. Larger bodies are read in pieces; the longest head fits.
const READ: usize = 16 * 1024;

/// Whom to reach, and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    access: Access,
    config: kube::Config,
}

impl Endpoint {
    /// Reads the credentials; asks nobody.
    pub(crate) async fn read(access: Access) -> Result<Self, StartError> {
        let config = match &access {
            Access::InCluster => {
                kube::Config::incluster().map_err(|error| StartError::new(&access, &error))?
            }
            Access::Kubeconfig(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| StartError::new(&access, &error))?;
                kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                    .await
                    .map_err(|error| StartError::new(&access, &error))?
            }
        };
        Ok(Self { access, config })
    }

    /// A client whose connections are of the runtime that this is called on: hyper drives a connection where it was opened,
    /// and kube's queue in front of it starts here.
    pub(crate) fn client(&self, patience: &Patience, clock: Clock) -> Result<Client, StartError> {
        let kube = build(&self.config, patience).map_err(|error| StartError::new(&self.access, &error))?;
        Ok(Client::over(kube, clock))
    }
}

impl Client {
    /// A client over whatever carries its requests.
    pub(crate) fn over(kube: kube::Client, clock: Clock) -> Self {
        Self { kube, clock }
    }

    /// Sends a request and reads the answer as JSON.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
        limit: Duration,
    ) -> Result<T, Failure> {
        let request = request.map_err(|error| Failure::Unreadable(error.to_string()))?;
        // Not `kube::Client::request`: that one logs an answer which it cannot read, and an answer may hold a token.
        let text = self.within(limit, self.kube.request_text(request)).await??;
        Ok(serde_json::from_str(&Zeroizing::new(text))?)
    }

    /// The client for watches, whose limit is per event.
    pub(crate) fn kube(&self) -> &kube::Client {
        &self.kube
    }

    /// Waits for `work`, at most `limit`.
    pub(crate) async fn within<F: Future>(&self, limit: Duration, work: F) -> Result<F::Output, Failure> {
        let work = std::pin::pin!(work);
        let alarm = std::pin::pin!(self.clock.sleep(limit));
        match select(work, alarm).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right(((), _)) => Err(Failure::TimedOut(limit)),
        }
    }
}

fn build(config: &kube::Config, patience: &Patience) -> Result<kube::Client, kube::Error> {
    let connector = config.rustls_https_connector_with_connector(tcp(patience))?;
    let http = HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE.0)
        .pool_idle_timeout(IDLE.1)
        .http1_max_buf_size(READ)
        .build(connector);
    // kube's authorisation layer wants the erased error type.
    let http = http.map_err(BoxError::from);
    let stack =
        ClientBuilder::new(http, &config.default_namespace).with_layer(&config.extra_headers_layer()?);
    Ok(match config.auth_layer()? {
        Some(auth) => stack.with_layer(&auth).with_layer(&config.base_uri_layer()).build(),
        None => stack.with_layer(&config.base_uri_layer()).build(),
    })
}

fn tcp(patience: &Patience) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // The connector above speaks TLS; this one must not insist on http://.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(patience.connect));
    let (idle, interval, probes) = KEEPALIVE;
    tcp.set_keepalive(Some(idle));
    tcp.set_keepalive_interval(Some(interval));
    tcp.set_keepalive_retries(Some(probes));
    tcp.set_tcp_user_timeout(Some(idle + interval * probes));
    tcp
}
