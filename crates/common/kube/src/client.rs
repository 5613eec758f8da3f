//! Calls to the API server: none without a limit of time, no answer without a limit of size.
//!
//! Where to go is read once, into a [`Connector`]; a [`KubeClient`] with connections of its own is made of it on each thread that
//! speaks to the API server. Nothing is tried again here but what a new token mends ([`crate::transport`]): callers decide.

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

use crate::access::endpoint::KubeEndpoint;
use crate::access::{KubeAccess, KubeAccessError};
use crate::failure::{KubeError, KubeStatus};
use crate::line_reader::{LineReader, MAX_RESPONSE_BYTES};
use crate::request::BuildRequestResult;
use crate::timeouts::KubeTimeouts;
use crate::transport::{ApiServerTransport, PooledTransport, ResponseBody};

/// Largest body of a refusal that is read, in bytes; a Status takes some hundred.
const LARGEST_REFUSAL: usize = 64 * 1024;

/// Whom to ask, and how patiently. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TimedKubeClient {
    /// Whom to ask.
    pub client: KubeClient,
    /// By which limits are kept.
    pub clock: Clock,
    /// How patiently.
    pub timeouts: KubeTimeouts,
}

/// A client whose every call has a limit. Cheap to clone.
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

/// What makes clients.
#[derive(Clone, Debug)]
pub struct Connector {
    access: KubeAccess,
    endpoint: KubeEndpoint,
    provider: Arc<CryptoProvider>,
}

impl Connector {
    /// Reads the credentials; asks nobody.
    ///
    /// # Errors
    /// What of them is missing, wrong, or not supported.
    pub fn read(access: KubeAccess, provider: Arc<CryptoProvider>) -> Result<Self, KubeAccessError> {
        let endpoint = KubeEndpoint::of(&access).map_err(|reason| KubeAccessError::new(&access, reason))?;
        Ok(Self { access, endpoint, provider })
    }

    /// A client whose connections are of the runtime that it is used on: hyper drives a connection where it was opened.
    ///
    /// # Errors
    /// A file that the credentials name cannot be used.
    pub fn client(&self, patience: &KubeTimeouts, clock: Clock) -> Result<KubeClient, KubeAccessError> {
        let server = PooledTransport::new(
            self.endpoint.clone(),
            self.provider.clone(),
            patience.connect,
            clock.clone(),
        )
        .map_err(|reason| KubeAccessError::new(&self.access, reason))?;
        Ok(KubeClient::with_transport(Arc::new(server), clock))
    }
}

impl KubeClient {
    /// A client over whatever carries its requests.
    pub fn with_transport(carrier: Arc<dyn ApiServerTransport>, clock: Clock) -> Self {
        Self { carrier, clock }
    }

    /// Sends a request and reads the answer as JSON.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn call<T: DeserializeOwned>(
        &self,
        request: BuildRequestResult,
        limit: Duration,
    ) -> Result<T, KubeError> {
        Ok(serde_json::from_slice(&self.call_raw(request, limit).await?)?)
    }

    /// Sends a request and gives the answer as it is.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn call_raw(&self, request: BuildRequestResult, limit: Duration) -> Result<Bytes, KubeError> {
        let request = request?;
        let answer = async { read_body(self.open(request).await?, MAX_RESPONSE_BYTES).await };
        self.run_with_timeout(limit, answer).await?
    }

    /// Opens a watch; the limit is for the head of the answer.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn watch(&self, request: BuildRequestResult, limit: Duration) -> Result<LineReader, KubeError> {
        Ok(LineReader::new(self.run_with_timeout(limit, self.open(request?)).await??))
    }

    /// The body of a success.
    async fn open(&self, request: Request<Bytes>) -> Result<ResponseBody, KubeError> {
        let (head, body) = self.carrier.send_request(request).await?.into_parts();
        if head.status.is_success() { Ok(body) } else { Err(read_error(head.status, body).await) }
    }

    /// Waits for `work`, at most `limit`.
    ///
    /// # Errors
    /// [`KubeError::TimedOut`].
    pub async fn run_with_timeout<F: Future>(
        &self,
        limit: Duration,
        work: F,
    ) -> Result<F::Output, KubeError> {
        run_with_timeout(&self.clock, limit, work).await
    }
}

/// Waits for `work`, at most `limit`.
///
/// # Errors
/// [`KubeError::TimedOut`].
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

/// What a refusal says. The status of HTTP counts, whatever stands in a body that a proxy may have written.
pub async fn read_error(code: StatusCode, body: ResponseBody) -> KubeError {
    let told = read_body(body, LARGEST_REFUSAL).await.ok();
    let status = told.and_then(|text| serde_json::from_slice::<KubeStatus>(&text).ok()).unwrap_or_default();
    KubeError::from_status(&KubeStatus { code: code.as_u16(), ..status })
}

/// The whole of a body.
///
/// # Errors
/// It is larger than that, or breaks off.
pub async fn read_body(body: ResponseBody, largest: usize) -> Result<Bytes, KubeError> {
    match Limited::new(body, largest).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        // The only other error is that of the bound.
        Err(error) => Err(error.downcast().map_or(KubeError::TooLarge(largest), |failure| *failure)),
    }
}
