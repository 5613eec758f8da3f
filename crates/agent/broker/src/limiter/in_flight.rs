//! Limits the number of calls in flight. Pods share this capacity by dynamic thresholds ([`fair_share`]).

use std::collections::HashMap;

use seawall_core::fair_share;

use super::queue::RequesterId;

#[derive(Debug)]
pub(super) struct InFlightCalls {
    places: u64,
    pub(super) total: u64,
    /// The number of calls in flight for which no request waits.
    ahead: u64,
    pub(super) per_requester: HashMap<RequesterId, u64>,
}

impl InFlightCalls {
    /// Returns an empty set of calls. Its capacity is `places` calls, but at least one call.
    pub(super) fn with_max_calls(places: usize) -> Self {
        let places = u64::try_from(places.max(1)).unwrap_or(u64::MAX);
        Self { places, total: 0, ahead: 0, per_requester: HashMap::new() }
    }

    pub(super) fn count_for_requester(&self, holder: RequesterId) -> u64 {
        self.per_requester.get(&holder).copied().unwrap_or(0)
    }

    /// True if a call of this pod can start now. Calls without a waiting request use at most half of the capacity.
    /// Otherwise slow renewals of many pods could leave no capacity for a pod without a credential.
    pub(super) fn has_room(&self, holder: RequesterId, is_waited_for: bool) -> bool {
        let may_fly = is_waited_for || self.ahead < (self.places / 2).max(1);
        may_fly
            && fair_share::may_take(self.count_for_requester(holder), self.places.saturating_sub(self.total))
    }

    pub(super) fn add(&mut self, holder: RequesterId, is_waited_for: bool) {
        self.total += 1;
        self.ahead += u64::from(!is_waited_for);
        *self.per_requester.entry(holder).or_default() += 1;
    }

    pub(super) fn remove(&mut self, holder: RequesterId, is_waited_for: bool) {
        self.total -= 1;
        self.ahead -= u64::from(!is_waited_for);
        if let Some(own) = self.per_requester.get_mut(&holder) {
            *own -= 1;
            if *own == 0 {
                self.per_requester.remove(&holder);
            }
        }
    }
}
