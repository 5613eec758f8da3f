//! The interface of cache keys. With this interface, the broker handles credentials of any cloud.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use seawall_core::{LifetimeFloor, ServiceAccount};

use crate::lease_error::LeaseError;
use crate::throttle_key::ThrottledAccountOrWorkload;

/// The fields that determine a credential of one cloud.
///
/// Two requests share a credential only if their principals are equal, so `Eq` must compare every field that determines the
/// credential. The Kubernetes ServiceAccount is always such a field. A cloud decides separately for each ServiceAccount, so a
/// credential for one ServiceAccount must never go to another ServiceAccount.
pub trait Principal: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// The type that names the requested credential. A value borrows from the client's request, so a cache lookup copies nothing.
    type Want<'a>: Copy + Send;
    /// The credentials that a pod can get from the cloud. The operator's configuration determines the entitlement; a request
    /// cannot change it.
    type Entitlement: fmt::Debug + Send + Sync + 'static;

    /// Returns the principal for the request `want` of a pod with this ServiceAccount and entitlement.
    ///
    /// # Errors
    /// [`LeaseError::NotEntitled`]: the pod is not entitled to this credential. The broker then does not call the cloud.
    fn of(
        workload: &ServiceAccount,
        entitlement: &Self::Entitlement,
        want: Self::Want<'_>,
    ) -> Result<Self, LeaseError>;

    /// True if `want`, a request from this principal's pod, asks for this principal's credential. The agent calls this method on
    /// every request, so the method must not allocate memory.
    fn matches_request(&self, want: Self::Want<'_>) -> bool;

    /// Returns the request for this principal's credential. [`Self::matches_request`] is true for that request.
    fn request(&self) -> Self::Want<'_>;

    /// Returns the ServiceAccount that authenticates at the cloud.
    fn workload(&self) -> &ServiceAccount;

    /// Returns the account whose quota limits this principal's calls. The default is the ServiceAccount.
    fn throttle_key(&self) -> ThrottledAccountOrWorkload {
        ThrottledAccountOrWorkload::Workload(self.workload().clone())
    }

    /// Returns the least remaining lifetime of this credential in responses while the cloud is available. `floor` is the cloud's
    /// floor.
    fn min_lifetime(&self, floor: LifetimeFloor) -> Duration {
        floor.min_remaining
    }

    /// Returns the age up to which the agent answers with a cached credential of this lifetime.
    /// `None` means: at any age, while the credential is valid. The age counts from the issue of the credential. For an older
    /// credential, a request triggers a new fetch. The request gets the old credential if the fetch fails or is late.
    fn max_cache_age(&self, _lifetime: Duration) -> Option<Duration> {
        None
    }
}
