//! The state of a principal, as operators see it.

use std::time::Duration;

use seawall_core::Moment;

use crate::cache_entry::CacheEntry;
use crate::credential_exchange::TokenExchange;
use crate::failure::ExchangeError;

/// The state of one principal's lease, for `/debug/pods` and the metrics. It never contains the credential.
#[derive(Clone, Debug)]
pub struct PrincipalView<P> {
    /// The principal.
    pub principal: P,
    /// The times at which the lease was issued, expires and is due for renewal. `None` if no lease is cached.
    pub lease_times: Option<(Moment, Moment, Moment)>,
    /// The time of the last request for this principal's credential.
    pub last_used: Moment,
    /// True if a fetch is in flight.
    pub is_fetching: bool,
    /// The error of the last fetch, if that fetch failed.
    pub last_failure: Option<ExchangeError>,
    /// The time of the first failed call since the last success.
    pub failing_since: Option<Moment>,
    /// The least remaining lifetime of a response while the cloud is available.
    pub lifetime_floor: Duration,
}

impl<P: Clone> PrincipalView<P> {
    pub(crate) fn from_cache_entry<X: TokenExchange<Principal = P>>(slot: &CacheEntry<X>) -> Self {
        let (is_fetching, failure, failing_since) = slot.fetch_status();
        Self {
            principal: slot.principal.clone(),
            lease_times: slot.lease().map(|lease| (lease.issued, lease.expires, lease.refresh_at)),
            last_used: slot.last_used(),
            is_fetching,
            last_failure: failure,
            failing_since,
            lifetime_floor: slot.lifetime_floor,
        }
    }

    /// Returns the remaining lifetime at `now`, if a lease is cached.
    pub fn remaining_lifetime(&self, now: Moment) -> Option<Duration> {
        self.lease_times.map(|(_, expires, _)| expires.since(now))
    }
}
