//! The cache key of credentials: the interface that the broker needs, for any cloud.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use seawall_core::{Floor, ServiceAccount};

use crate::lease_error::LeaseError;
use crate::throttle_key::ThrottleKey;

/// All fields that decide which credential of one cloud is the right one.
///
/// Two requests share credentials only if their principals are equal, so every field that decides counts in `Eq`. The Kubernetes
/// ServiceAccount always is such a field: a cloud decides per ServiceAccount what it allows, so a response for one ServiceAccount
/// must never serve another.
pub trait Principal: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// The credential that a request asks for. It borrows from the request, so a cache lookup copies nothing.
    type Want<'a>: Copy + Send;
    /// The credentials that a pod may get from the cloud. The operator decides it, never a request.
    type Entitlement: fmt::Debug + Send + Sync + 'static;

    /// Returns the principal for the request `want` of a pod with this ServiceAccount and entitlement.
    ///
    /// # Errors
    /// [`LeaseError::NotEntitled`]: the pod has no such credential, so the cloud need not be asked.
    fn of(
        workload: &ServiceAccount,
        entitlement: &Self::Entitlement,
        want: Self::Want<'_>,
    ) -> Result<Self, LeaseError>;

    /// True if the request `want` of this principal's own pod means this principal. Runs on every request, so it must not allocate.
    fn is_for(&self, want: Self::Want<'_>) -> bool;

    /// Returns the request by which this principal's own pod asks for it: [`Self::is_for`] is true for it.
    fn request(&self) -> Self::Want<'_>;

    /// The Kubernetes identity that proves itself.
    fn workload(&self) -> &ServiceAccount;

    /// The party to which the cloud counts calls for this principal. The default is the Kubernetes identity.
    fn throttle_key(&self) -> ThrottleKey {
        ThrottleKey::Workload(self.workload().clone())
    }

    /// The least remaining life of responses of this kind while the cloud responds; `floor` is the cloud's.
    fn min_lifetime(&self, floor: Floor) -> Duration {
        floor.hard
    }

    /// The age up to which a credential of this kind and lifetime is served from memory; `None` means while it is valid. The age
    /// counts from the issue. After it, a request triggers a new fetch, and gets the old credential if the fetch fails or is late.
    fn max_cache_age(&self, _lifetime: Duration) -> Option<Duration> {
        None
    }
}
