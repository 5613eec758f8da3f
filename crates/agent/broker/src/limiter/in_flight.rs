//! The places for calls that are under way at once, and whose they are: shares by dynamic thresholds.

use std::collections::HashMap;

use seawall_core::fair_share;

use super::queue::RequesterId;

/// Who has which part of the places in the air.
#[derive(Debug)]
pub(super) struct InFlightCalls {
    places: u64,
    pub(super) total: u64,
    /// Of them, those that nobody waits for.
    ahead: u64,
    pub(super) per_requester: HashMap<RequesterId, u64>,
}

impl InFlightCalls {
    /// One place at least.
    pub(super) fn of(places: usize) -> Self {
        let places = u64::try_from(places.max(1)).unwrap_or(u64::MAX);
        Self { places, total: 0, ahead: 0, per_requester: HashMap::new() }
    }

    pub(super) fn count_of(&self, holder: RequesterId) -> u64 {
        self.per_requester.get(&holder).copied().unwrap_or(0)
    }

    /// What nobody waits for has half of the places at most: many pods' slow renewals, one each, must leave room for a
    /// pod that has nothing yet.
    pub(super) fn has_room(&self, holder: RequesterId, is_waited_for: bool) -> bool {
        let may_fly = is_waited_for || self.ahead < (self.places / 2).max(1);
        may_fly && fair_share::may_take(self.count_of(holder), self.places.saturating_sub(self.total))
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
