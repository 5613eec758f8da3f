//! The target of trials: a session of the load engine, or a simulated target.

use std::time::Duration;

use crate::observation::TrialObservation;
use crate::search::{RateSearch, SearchStep};
use crate::trial_spec::TrialSpec;

/// A target that runs trials, one at a time.
pub trait SearchTarget {
    /// Runs a trial and returns its observation. After each complete block, it asks [`TrialSpec::is_enough`] whether to stop sending. Then
    /// it waits for outstanding requests for [`TrialSpec::drain`] and closes them.
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation;

    /// Sends nothing for this time; returns `false` if the user interrupted the pause.
    fn rest(&mut self, time: Duration) -> bool;
}

/// Runs a search to its end.
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
