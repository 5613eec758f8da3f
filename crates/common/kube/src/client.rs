//! Calls the API server. Each call has a time limit, and each response has a size limit.
//!
//! A [`KubeConnector`] reads the server's address and the sources of the credentials once. Each thread that calls the API server
//! creates its own [`KubeClient`] from the connector, with its own connections. This module retries only after a 401, with a
//! new token ([`crate::transport`]). The code that uses a client decides on all other retries.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use rustls::crypto::CryptoProvider;
use seawall_core::Clock;
use serde::de::DeserializeOwned;

use crate::client_config::endpoint::KubeEndpoint;
use crate::client_config::{ClientConfigError, ClientConfigSource};
use crate::failure::{KubeError, KubeStatus};
use crate::line_reader::{LineReader, MAX_RESPONSE_BYTES};
use crate::request::BuildRequestResult;
use crate::timeouts::KubeTimeouts;
use crate::transport::{ApiServerTransport, PooledTransport, ResponseBody};

/// The maximum size of a refusal's body, in bytes. A `Status` object takes a few hundred bytes.
const LARGEST_REFUSAL: usize = 64 * 1024;

/// Bundles a client with its clock and its time limits. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct TimedKubeClient {
    /// The client that sends the requests.
    pub client: KubeClient,
    /// The clock that measures the time limits.
    pub clock: Clock,
    /// The time limits and the maximum delays between retries.
    pub timeouts: KubeTimeouts,
}

/// Sends requests to the API server, with a time limit for each call. Cloning is cheap.
#[derive(Clone)]
pub struct KubeClient {
    carrier: Arc<dyn ApiServerTransport>,
    clock: Clock,
}

impl std::fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Creates a [`KubeClient`] for each thread.
#[derive(Clone, Debug)]
pub struct KubeConnector {
    access: ClientConfigSource,
    endpoint: KubeEndpoint,
    provider: Arc<CryptoProvider>,
}

impl KubeConnector {
    /// Reads the address and the sources of the credentials, without sending a request.
    ///
    /// # Errors
    /// A part of the access is missing, invalid or not supported; the error names this part.
    pub fn read(
        access: ClientConfigSource,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, ClientConfigError> {
        let endpoint = KubeEndpoint::from_config_source(&access)
            .map_err(|reason| ClientConfigError::new(&access, reason))?;
        Ok(Self { access, endpoint, provider })
    }

    /// Creates a client. Use the client on one runtime only, because hyper drives a connection on the runtime that opened the
    /// connection.
    ///
    /// # Errors
    /// A file of the credentials cannot be used.
    pub fn new_client(&self, patience: &KubeTimeouts, clock: Clock) -> Result<KubeClient, ClientConfigError> {
        let server = PooledTransport::new(
            self.endpoint.clone(),
            self.provider.clone(),
            patience.connect,
            clock.clone(),
        )
        .map_err(|reason| ClientConfigError::new(&self.access, reason))?;
        Ok(KubeClient::with_transport(Arc::new(server), clock))
    }
}

impl KubeClient {
    /// Creates a client that sends its requests through this transport.
    pub fn with_transport(carrier: Arc<dyn ApiServerTransport>, clock: Clock) -> Self {
        Self { carrier, clock }
    }

    /// Sends a request and parses the response as JSON.
    ///
    /// # Errors
    /// The request cannot be built, fails, is refused or exceeds `limit`, or the response is too large or cannot be parsed.
    pub async fn call<T: DeserializeOwned>(
        &self,
        request: BuildRequestResult,
        limit: Duration,
    ) -> Result<T, KubeError> {
        Ok(serde_json::from_slice(&self.call_raw(request, limit).await?)?)
    }

    /// Sends a request and returns the unparsed response body.
    ///
    /// # Errors
    /// The request cannot be built, fails, is refused or exceeds `limit`, or the response is too large.
    pub async fn call_raw(&self, request: BuildRequestResult, limit: Duration) -> Result<Bytes, KubeError> {
        let request = request?;
        let answer = async { read_body(self.open(request).await?, MAX_RESPONSE_BYTES).await };
        self.run_with_timeout(limit, answer).await?
    }

    /// Opens a watch. `limit` applies only to the head of the response.
    ///
    /// # Errors
    /// The request cannot be built, fails, is refused, or its response head exceeds `limit`.
    pub async fn watch(&self, request: BuildRequestResult, limit: Duration) -> Result<LineReader, KubeError> {
        Ok(LineReader::new(self.run_with_timeout(limit, self.open(request?)).await??))
    }

    /// Sends a request and returns the body of a successful response.
    async fn open(&self, request: Request<Bytes>) -> Result<ResponseBody, KubeError> {
        let (head, body) = self.carrier.send_request(request).await?.into_parts();
        if head.status.is_success() { Ok(body) } else { Err(read_error(head.status, body).await) }
    }

    /// Waits for `work`, for at most `limit` on this client's clock.
    ///
    /// # Errors
    /// The work exceeds `limit`: [`KubeError::TimedOut`].
    pub async fn run_with_timeout<F: Future>(
        &self,
        limit: Duration,
        work: F,
    ) -> Result<F::Output, KubeError> {
        run_with_timeout(&self.clock, limit, work).await
    }
}

/// Waits for `work`, for at most `limit` on `clock`.
///
/// # Errors
/// The work exceeds `limit`: [`KubeError::TimedOut`].
pub async fn run_with_timeout<F: Future>(
    clock: &Clock,
    limit: Duration,
    work: F,
) -> Result<F::Output, KubeError> {
    let work = std::pin::pin!(work);
    let alarm = std::pin::pin!(clock.sleep(limit));
    match select(work, alarm).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right(((), _)) => Err(KubeError::TimedOut(limit)),
    }
}

/// Reads the error from the response to a refused request. Uses the HTTP status, not the code in the body, because a proxy can have written the
/// body.
pub async fn read_error(code: StatusCode, body: ResponseBody) -> KubeError {
    let told = read_body(body, LARGEST_REFUSAL).await.ok();
    let status = told.and_then(|text| serde_json::from_slice::<KubeStatus>(&text).ok()).unwrap_or_default();
    KubeError::from_status(&KubeStatus { code: code.as_u16(), ..status })
}

/// Reads a whole body.
///
/// # Errors
/// The body is larger than `largest` bytes, or the connection breaks.
pub async fn read_body(body: ResponseBody, largest: usize) -> Result<Bytes, KubeError> {
    match Limited::new(body, largest).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        // The only other possible error is that the body exceeds the size limit.
        Err(error) => Err(error.downcast().map_or(KubeError::TooLarge(largest), |failure| *failure)),
    }
}
