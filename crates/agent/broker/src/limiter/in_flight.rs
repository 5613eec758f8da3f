//! The places for calls that are under way at once, and whose they are: shares by dynamic thresholds.

use std::collections::HashMap;

use seawall_core::fair_share;

use super::queue::HolderId;

/// Who has which part of the places in the air.
#[derive(Debug)]
pub(super) struct Air {
    places: u64,
    pub(super) taken: u64,
    /// Of them, those that nobody waits for.
    ahead: u64,
    pub(super) own: HashMap<HolderId, u64>,
}

impl Air {
    /// One place at least.
    pub(super) fn of(places: usize) -> Self {
        let places = u64::try_from(places.max(1)).unwrap_or(u64::MAX);
        Self { places, taken: 0, ahead: 0, own: HashMap::new() }
    }

    pub(super) fn own(&self, holder: HolderId) -> u64 {
        self.own.get(&holder).copied().unwrap_or(0)
    }

    /// What nobody waits for has half of the places at most: many pods' slow renewals, one each, must leave room for a
    /// pod that has nothing yet.
    pub(super) fn has_room(&self, holder: HolderId, is_waited_for: bool) -> bool {
        let may_fly = is_waited_for || self.ahead < (self.places / 2).max(1);
        may_fly && fair_share::may_take(self.own(holder), self.places.saturating_sub(self.taken))
    }

    pub(super) fn entered(&mut self, holder: HolderId, is_waited_for: bool) {
        self.taken += 1;
        self.ahead += u64::from(!is_waited_for);
        *self.own.entry(holder).or_default() += 1;
    }

    pub(super) fn left(&mut self, holder: HolderId, is_waited_for: bool) {
        self.taken -= 1;
        self.ahead -= u64::from(!is_waited_for);
        if let Some(own) = self.own.get_mut(&holder) {
            *own -= 1;
            if *own == 0 {
                self.own.remove(&holder);
            }
        }
    }
}
