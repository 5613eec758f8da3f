//! The interface to a cloud, which each cloud's module implements.
//!
//! A cloud's module brings its own [`Principal`] (the cache key of credentials), its own credential type, and the call that
//! exchanges one for the other. The broker reads no field of either.

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
    /// The credential. If a cloud's responses state the expiry as a date, the credential itself carries that date. Leases are
    /// counted on a clock that is never set. A date computed from that clock would pass on the error of the node's clock.
    pub credential: C,
    /// The credential's lifetime, counted from before the call: at most the lifetime that the upstream means.
    pub lifetime: Duration,
    /// The requested lifetime, if the cloud granted less. Set only on the response from which the cloud's module learnt the limit,
    /// so that the log says it once and not at each renewal.
    pub shortened_from: Option<Duration>,
}

impl<C> IssuedCredential<C> {
    /// Returns a credential whose lifetime was not shortened.
    pub fn new(credential: C, lifetime: Duration) -> Self {
        Self { credential, lifetime, shortened_from: None }
    }
}

/// The future of an exchange. Boxed, so that a call that waits in the queue does not carry the future's size.
pub type ExchangeFuture<'a, C> =
    Pin<Box<dyn Future<Output = Result<IssuedCredential<C>, ExchangeError>> + Send + 'a>>;

/// Turns a pod's Kubernetes token into a principal's credential.
pub trait TokenExchange: Send + Sync + fmt::Debug + 'static {
    /// The cloud's name, in the log and in metrics.
    const CLOUD: &'static str;
    /// The cache key of this cloud's credentials.
    type Principal: Principal;
    /// The credential that responses to pods are built from. Its `Debug` shows no secret.
    type Credential: Send + Sync + fmt::Debug + 'static;

    /// Asks the cloud once. The broker adds the deadline, the limiter and the cache. The exchange does not learn which pod proves
    /// the principal, because every pod with this principal shares the credential.
    ///
    /// # Errors
    /// The error of the cloud, or of the connection to it.
    fn issue<'a>(
        &'a self,
        principal: &'a Self::Principal,
        subject: &'a dyn SubjectTokens,
    ) -> ExchangeFuture<'a, Self::Credential>;
}

/// The request type of the cloud `X`: names the credential that a pod asks for.
pub type RequestOf<'a, X> = <<X as TokenExchange>::Principal as Principal>::Want<'a>;

/// The entitlement type of the cloud `X`: defines what one pod may get.
pub type EntitlementOf<X> = <<X as TokenExchange>::Principal as Principal>::Entitlement;
