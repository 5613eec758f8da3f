//! The interface to a cloud. Each cloud's module implements this interface.
//!
//! A cloud's module defines a [`Principal`] (the cache key of credentials), a credential type, and the call that gets the
//! credential of a principal. The broker reads no field of either type.

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
    /// The credential. If responses to pods state the expiry as a date, the credential contains the date that the cloud stated.
    /// The agent does not compute the date from the lease. A lease uses a monotonic clock, so a computed date would include the
    /// error of the node's wall clock.
    pub credential: C,
    /// The credential's lifetime, counted from the start of the call. It is at most the lifetime that the cloud states.
    pub lifetime: Duration,
    /// The requested lifetime, if the cloud refused this lifetime in this exchange and then granted a shorter lifetime. Later
    /// exchanges request the shorter lifetime from the start and leave this field empty. So the log does not report the limit at
    /// each renewal.
    pub shortened_from: Option<Duration>,
}

impl<C> IssuedCredential<C> {
    /// Returns a credential for which the cloud did not shorten the requested lifetime.
    pub fn new(credential: C, lifetime: Duration) -> Self {
        Self { credential, lifetime, shortened_from: None }
    }
}

/// The future of an exchange. The future is boxed, so a queued call reserves no memory for the exchange.
pub type ExchangeFuture<'a, C> =
    Pin<Box<dyn Future<Output = Result<IssuedCredential<C>, ExchangeError>> + Send + 'a>>;

/// Exchanges a pod's Kubernetes token for a principal's credential.
pub trait TokenExchange: Send + Sync + fmt::Debug + 'static {
    /// The cloud's name in logs and metrics.
    const CLOUD: &'static str;
    /// The cache key of this cloud's credentials.
    type Principal: Principal;
    /// The type of this cloud's credentials. Responses to pods contain parts of a credential. Its `Debug` output contains no
    /// secret.
    type Credential: Send + Sync + fmt::Debug + 'static;

    /// Gets a credential by one or more successive calls to the cloud. The broker adds the deadline, the limiter and the cache.
    /// `subject` can belong to any pod with this principal, because all these pods share the credential.
    ///
    /// # Errors
    /// The pod's token is unavailable, the cloud refused a call, or the connection to the cloud failed.
    fn issue<'a>(
        &'a self,
        principal: &'a Self::Principal,
        subject: &'a dyn SubjectTokens,
    ) -> ExchangeFuture<'a, Self::Credential>;
}

/// The request type of the cloud `X`. A request names the credential that a pod wants.
pub type RequestOf<'a, X> = <<X as TokenExchange>::Principal as Principal>::Want<'a>;

/// The entitlement type of the cloud `X`. It defines which credentials a pod may get.
pub type EntitlementOf<X> = <<X as TokenExchange>::Principal as Principal>::Entitlement;
