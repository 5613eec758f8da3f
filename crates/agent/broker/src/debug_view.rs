//! What operators may see of a principal.

use std::time::Duration;

use seawall_core::Moment;

use crate::cache_entry::CacheEntry;
use crate::exchange::TokenExchange;
use crate::failure::ExchangeError;

/// One principal as `/debug/pods` and the metrics see it; never its credential.
#[derive(Clone, Debug)]
pub struct PrincipalView<P> {
    /// Who.
    pub principal: P,
    /// Issued, expiry, and when renewal is due; `None` while nothing is held.
    pub times: Option<(Moment, Moment, Moment)>,
    /// When it was last asked for.
    pub last_used: Moment,
    /// Whether a call is in the air.
    pub is_fetching: bool,
    /// What the last call failed with, if it failed.
    pub failure: Option<ExchangeError>,
    /// When the first call failed since one succeeded.
    pub failing_since: Option<Moment>,
    /// The least life of an answer while the cloud answers.
    pub floor: Duration,
}

impl<P: Clone> PrincipalView<P> {
    pub(crate) fn of<X: TokenExchange<Principal = P>>(slot: &CacheEntry<X>) -> Self {
        let (is_fetching, failure, failing_since) = slot.entry_status();
        Self {
            principal: slot.principal.clone(),
            times: slot.lease().map(|lease| (lease.issued, lease.expires, lease.refresh_at)),
            last_used: slot.last_used(),
            is_fetching,
            failure,
            failing_since,
            floor: slot.floor,
        }
    }

    /// Life left at `now`, if anything is held.
    pub fn remaining(&self, now: Moment) -> Option<Duration> {
        self.times.map(|(_, expires, _)| expires.since(now))
    }
}
