//! What credentials are held under: what the broker must know of it, whichever cloud's it is.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use seawall_core::{Floor, ServiceAccount};

use crate::lease_error::LeaseError;
use crate::throttle_key::ThrottleKey;

/// Everything that decides which credential of one cloud is the right one.
///
/// Two requests share credentials only if their principals are equal, so every field that decides counts in `Eq`. The Kubernetes
/// ServiceAccount always is one: what a cloud allows is decided per ServiceAccount, so an answer for one must never
/// serve another.
pub trait Principal: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// What a request asks for. It borrows from the request, so that looking for what is held copies nothing.
    type Want<'a>: Copy + Send;
    /// What a pod may have of the cloud, whatever it asks for: decided by the operator, never by a request.
    type Entitlement: fmt::Debug + Send + Sync + 'static;

    /// What a pod of this ServiceAccount and entitlement asks for by `want`.
    ///
    /// # Errors
    /// [`LeaseError::NotEntitled`]: there is no such credential for it, and the cloud need not be asked.
    fn of(
        workload: &ServiceAccount,
        entitlement: &Self::Entitlement,
        want: Self::Want<'_>,
    ) -> Result<Self, LeaseError>;

    /// Whether this is what its own pod asks for by `want`. On every request's way: no allocation.
    fn is_for(&self, want: Self::Want<'_>) -> bool;

    /// What its own pod asks for by it: that of which [`Self::is_for`] is true.
    fn request(&self) -> Self::Want<'_>;

    /// The Kubernetes identity that proves itself.
    fn workload(&self) -> &ServiceAccount;

    /// Whom the cloud counts its calls to: if nothing else is said, the Kubernetes identity.
    fn throttle_key(&self) -> ThrottleKey {
        ThrottleKey::Workload(self.workload().clone())
    }

    /// The least life that answers of this kind carry while the cloud answers; `floor` is the cloud's.
    fn min_lifetime(&self, floor: Floor) -> Duration {
        floor.hard
    }

    /// How long from its issue on a credential of this kind and lifetime is answered with from memory. `None` is while it is
    /// valid. After that a request has a new one fetched, and falls back to the old.
    fn max_cache_age(&self, _lifetime: Duration) -> Option<Duration> {
        None
    }
}
