//! How a cloud is asked: the interface that each cloud's room implements.
//!
//! A room brings its own [`Principal`] (what credentials are held under), its own credential and the call that makes one of
//! the other. The broker reads no field of either.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use seawall_core::pod::SubjectTokens;

use crate::failure::ExchangeError;
use crate::principal::Principal;

/// What an upstream issued.
#[derive(Debug)]
pub struct IssuedCredential<C> {
    /// The credential. Where a cloud's answers state the end as a date, the credential carries that date itself: leases are
    /// counted on a clock that nobody sets, and a date made from it would be the node's error, handed on.
    pub credential: C,
    /// How long it lives, counted from before the call: never longer than the upstream means it to.
    pub lifetime: Duration,
    /// The lifetime that was asked for, on the one answer from which the room learnt that this principal is granted less: it is
    /// said then, and not at each renewal.
    pub shortened_from: Option<Duration>,
}

impl<C> IssuedCredential<C> {
    /// What was issued as it was asked for.
    pub fn new(credential: C, lifetime: Duration) -> Self {
        Self { credential, lifetime, shortened_from: None }
    }
}

/// The future of an exchange. In a box, so that a call which waits for its turn weighs nothing of it.
pub type ExchangeFuture<'a, C> =
    Pin<Box<dyn Future<Output = Result<IssuedCredential<C>, ExchangeError>> + Send + 'a>>;

/// Turns a pod's Kubernetes token into a principal's credential.
pub trait TokenExchange: Send + Sync + fmt::Debug + 'static {
    /// The cloud's name, in the log and in metrics.
    const CLOUD: &'static str;
    /// What this cloud's credentials are held under.
    type Principal: Principal;
    /// What answers are made of. Its `Debug` shows no secret.
    type Credential: Send + Sync + fmt::Debug + 'static;

    /// Asks once. The broker adds the deadline, the limiter and the memory. It is not told which pod proves the principal: the
    /// answer is every pod's that shares it.
    ///
    /// # Errors
    /// What the cloud, or the way to it, said instead.
    fn issue<'a>(
        &'a self,
        principal: &'a Self::Principal,
        subject: &'a dyn SubjectTokens,
    ) -> ExchangeFuture<'a, Self::Credential>;
}

/// What a request asks of the cloud `X`.
pub type RequestOf<'a, X> = <<X as TokenExchange>::Principal as Principal>::Want<'a>;

/// What a pod may have of the cloud `X`.
pub type EntitlementOf<X> = <<X as TokenExchange>::Principal as Principal>::Entitlement;
