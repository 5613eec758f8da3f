//! Calls to the API server: none without a limit of time, no answer without a limit of size.
//!
//! Where to go is read once, into a [`Connector`]; a [`Client`] with connections of its own is made of it on each thread that
//! speaks to the API server. Nothing is tried again here but what a new token mends ([`crate::server`]): callers decide.

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

use crate::access::endpoint::Endpoint;
use crate::access::{Access, StartError};
use crate::failure::{Failure, Status};
use crate::line_reader::{LARGEST, Lines};
use crate::request::Built;
use crate::server::{Body, Carrier, Server};
use crate::timeouts::Patience;

/// Largest body of a refusal that is read, in bytes; a Status takes some hundred.
const LARGEST_REFUSAL: usize = 64 * 1024;

/// Whom to ask, and how patiently. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Link {
    /// Whom to ask.
    pub client: Client,
    /// By which limits are kept.
    pub clock: Clock,
    /// How patiently.
    pub patience: Patience,
}

/// A client whose every call has a limit. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    carrier: Arc<dyn Carrier>,
    clock: Clock,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// What makes clients.
#[derive(Clone, Debug)]
pub struct Connector {
    access: Access,
    endpoint: Endpoint,
    provider: Arc<CryptoProvider>,
}

impl Connector {
    /// Reads the credentials; asks nobody.
    ///
    /// # Errors
    /// What of them is missing, wrong, or not supported.
    pub fn read(access: Access, provider: Arc<CryptoProvider>) -> Result<Self, StartError> {
        let endpoint = Endpoint::of(&access).map_err(|reason| StartError::new(&access, reason))?;
        Ok(Self { access, endpoint, provider })
    }

    /// A client whose connections are of the runtime that it is used on: hyper drives a connection where it was opened.
    ///
    /// # Errors
    /// A file that the credentials name cannot be used.
    pub fn client(&self, patience: &Patience, clock: Clock) -> Result<Client, StartError> {
        let server =
            Server::new(self.endpoint.clone(), self.provider.clone(), patience.connect, clock.clone())
                .map_err(|reason| StartError::new(&self.access, reason))?;
        Ok(Client::over(Arc::new(server), clock))
    }
}

impl Client {
    /// A client over whatever carries its requests.
    pub fn over(carrier: Arc<dyn Carrier>, clock: Clock) -> Self {
        Self { carrier, clock }
    }

    /// Sends a request and reads the answer as JSON.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn call<T: DeserializeOwned>(&self, request: Built, limit: Duration) -> Result<T, Failure> {
        Ok(serde_json::from_slice(&self.ask(request, limit).await?)?)
    }

    /// Sends a request and gives the answer as it is.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn ask(&self, request: Built, limit: Duration) -> Result<Bytes, Failure> {
        let request = request?;
        let answer = async { whole(self.open(request).await?, LARGEST).await };
        self.within(limit, answer).await?
    }

    /// Opens a watch; the limit is for the head of the answer.
    ///
    /// # Errors
    /// Why nothing was brought.
    pub async fn watch(&self, request: Built, limit: Duration) -> Result<Lines, Failure> {
        Ok(Lines::new(self.within(limit, self.open(request?)).await??))
    }

    /// The body of a success.
    async fn open(&self, request: Request<Bytes>) -> Result<Body, Failure> {
        let (head, body) = self.carrier.carry(request).await?.into_parts();
        if head.status.is_success() { Ok(body) } else { Err(refusal(head.status, body).await) }
    }

    /// Waits for `work`, at most `limit`.
    ///
    /// # Errors
    /// [`Failure::TimedOut`].
    pub async fn within<F: Future>(&self, limit: Duration, work: F) -> Result<F::Output, Failure> {
        within(&self.clock, limit, work).await
    }
}

/// Waits for `work`, at most `limit`.
///
/// # Errors
/// [`Failure::TimedOut`].
pub async fn within<F: Future>(clock: &Clock, limit: Duration, work: F) -> Result<F::Output, Failure> {
    let work = std::pin::pin!(work);
    let alarm = std::pin::pin!(clock.sleep(limit));
    match select(work, alarm).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right(((), _)) => Err(Failure::TimedOut(limit)),
    }
}

/// What a refusal says. The status of HTTP counts, whatever stands in a body that a proxy may have written.
pub async fn refusal(code: StatusCode, body: Body) -> Failure {
    let told = whole(body, LARGEST_REFUSAL).await.ok();
    let status = told.and_then(|text| serde_json::from_slice::<Status>(&text).ok()).unwrap_or_default();
    Failure::of_status(&Status { code: code.as_u16(), ..status })
}

/// The whole of a body.
///
/// # Errors
/// It is larger than that, or breaks off.
pub async fn whole(body: Body, largest: usize) -> Result<Bytes, Failure> {
    match Limited::new(body, largest).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        // The only other error is that of the bound.
        Err(error) => Err(error.downcast().map_or(Failure::TooLarge(largest), |failure| *failure)),
    }
}
