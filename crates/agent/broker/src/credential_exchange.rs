//! The interface to a cloud. Each cloud's module implements it.
//!
//! A cloud's module defines a [`Principal`] (the cache key of credentials), a credential type, and the call that exchanges one for
//! the other. The broker reads no field of either type.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use seawall_core::pod::SubjectTokens;

use crate::failure::ExchangeError;
use crate::principal::Principal;

/// A credential that the cloud issued, with its lifetime.
#[derive(Debug)]
pub struct IssuedCredential<C> {
    /// The credential. If the cloud's responses state the expiry as a date, the credential itself contains that date.
    /// A lease counts its time on a monotonic clock. A date computed from it would include the error of the node's wall clock.
    pub credential: C,
    /// The credential's lifetime, counted from before the call. It is at most the lifetime that the upstream states.
    pub lifetime: Duration,
    /// The requested lifetime, if the cloud granted less. It is set only in the response from which the module learnt the limit.
    /// So the log reports the limit once and not at each renewal.
    pub shortened_from: Option<Duration>,
}

impl<C> IssuedCredential<C> {
    /// Returns a credential whose lifetime was not shortened.
    pub fn new(credential: C, lifetime: Duration) -> Self {
        Self { credential, lifetime, shortened_from: None }
    }
}

/// The future of an exchange. It is boxed, so that a queued call does not reserve memory for it.
pub type ExchangeFuture<'a, C> =
    Pin<Box<dyn Future<Output = Result<IssuedCredential<C>, ExchangeError>> + Send + 'a>>;

/// Exchanges a pod's Kubernetes token for a principal's credential.
pub trait TokenExchange: Send + Sync + fmt::Debug + 'static {
    /// The cloud's name in logs and metrics.
    const CLOUD: &'static str;
    /// The cache key of this cloud's credentials.
    type Principal: Principal;
    /// The credential from which responses to pods are built. Its `Debug` output contains no secret.
    type Credential: Send + Sync + fmt::Debug + 'static;

    /// Calls the cloud once. The broker adds the deadline, the limiter and the cache.
    /// The exchange does not know which pod's token it gets, because all pods with this principal share the credential.
    ///
    /// # Errors
    /// The error of the cloud, or of the connection to it.
    fn issue<'a>(
        &'a self,
        principal: &'a Self::Principal,
        subject: &'a dyn SubjectTokens,
    ) -> ExchangeFuture<'a, Self::Credential>;
}

/// The request type of the cloud `X`. It identifies the credential that a pod requests.
pub type RequestOf<'a, X> = <<X as TokenExchange>::Principal as Principal>::Want<'a>;

/// The entitlement type of the cloud `X`. It defines which credentials a pod may get.
pub type EntitlementOf<X> = <<X as TokenExchange>::Principal as Principal>::Entitlement;
