//! The interface of cache keys, by which the broker handles credentials of any cloud.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use seawall_core::{Floor, ServiceAccount};

use crate::lease_error::LeaseError;
use crate::throttle_key::ThrottleKey;

/// The fields that determine a credential of one cloud.
///
/// Two requests share a credential only if their principals are equal, so `Eq` must compare every deciding field. The Kubernetes
/// ServiceAccount is always such a field. A cloud decides for each ServiceAccount what it allows, so a response for one
/// ServiceAccount must never serve another.
pub trait Principal: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// The credential that a request names. It borrows from the request, so a cache lookup copies nothing.
    type Want<'a>: Copy + Send;
    /// The credentials that a pod may get from the cloud. The operator decides this, never a request.
    type Entitlement: fmt::Debug + Send + Sync + 'static;

    /// Returns the principal for the request `want` of a pod with this ServiceAccount and entitlement.
    ///
    /// # Errors
    /// [`LeaseError::NotEntitled`]: the pod may not have this credential, so the cloud is not asked.
    fn of(
        workload: &ServiceAccount,
        entitlement: &Self::Entitlement,
        want: Self::Want<'_>,
    ) -> Result<Self, LeaseError>;

    /// True if a request `want` of this principal's pod means this principal. It runs on every request, so it must not allocate.
    fn is_for(&self, want: Self::Want<'_>) -> bool;

    /// Returns the request by which a pod of this principal requests it. [`Self::is_for`] is true for that request.
    fn request(&self) -> Self::Want<'_>;

    /// Returns the Kubernetes identity that authenticates.
    fn workload(&self) -> &ServiceAccount;

    /// Returns the party to which the cloud counts calls for this principal. The default is the Kubernetes identity.
    fn throttle_key(&self) -> ThrottleKey {
        ThrottleKey::Workload(self.workload().clone())
    }

    /// Returns the least remaining lifetime of responses of this kind while the cloud is available. `floor` is the cloud's floor.
    fn min_lifetime(&self, floor: Floor) -> Duration {
        floor.hard
    }

    /// Returns the age up to which a credential of this kind and lifetime is answered from the cache, or `None` for its whole
    /// validity.
    /// The age counts from the issue. For an older credential, a request triggers a new fetch, and gets the old credential if the
    /// fetch fails or is late.
    fn max_cache_age(&self, _lifetime: Duration) -> Option<Duration> {
        None
    }
}
