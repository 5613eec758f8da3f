//! What carries offers out: a session of the load engine, or a simulated target.

use std::time::Duration;

use crate::offer::TrialSpec;
use crate::search::{RateSearch, SearchStep};
use crate::seen::TrialObservation;

/// Carries out what a search asks for, one thing after the other.
pub trait SearchTarget {
    /// Offers this load and says what was seen of it. Whenever a block of it is complete, [`TrialSpec::is_enough`] is asked whether to
    /// stop sending; then what is outstanding is waited for as long as [`TrialSpec::drain`] says, and closed.
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation;

    /// Sends nothing for that long; `false` if somebody wants the search to end.
    fn rest(&mut self, time: Duration) -> bool;
}

/// Searches to the end.
pub fn search(search: &mut RateSearch, target: &mut impl SearchTarget) {
    loop {
        match search.next_step() {
            SearchStep::RunTrial(offer) => {
                let seen = target.carry_out(&offer);
                search.record_trial(&offer, seen);
            }
            SearchStep::Pause(time) => {
                let goes_on = target.rest(time);
                search.record_pause(time, goes_on);
            }
            SearchStep::Finished => return,
        }
    }
}
