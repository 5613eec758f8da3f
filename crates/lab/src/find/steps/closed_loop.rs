//! The steps of a search for a number of clients, within the same budget.

use std::time::Duration;

use seawall_search::closed_loop::{ClosedSearch, ClosedStep as Wanted, ClosedTarget, ClosedTrialSpec};
use seawall_search::trial_spec::TrialPurpose;

use super::StepRunner;
use crate::find::closed_loop::{build_report, build_reported_trial, stop_reason};
use crate::find::find_report::FindStopReason;
use crate::find::progress::{FindStep, FindWatcher};

/// The shortest useful trial after the settling time.
const SHORTEST: Duration = Duration::from_secs(1);

impl<W: FindWatcher> StepRunner<'_, W> {
    /// Searches to the end, or to the end of the budget. Returns the reason if the search ended early.
    pub(in crate::find) fn run_client_search(
        &mut self,
        target: &mut (impl ClosedTarget + ?Sized),
        search: &mut ClosedSearch,
    ) -> Option<FindStopReason> {
        loop {
            let left = self.remaining_budget().unwrap_or(Duration::MAX);
            match search.next_step() {
                Wanted::Finished => return stop_reason(search),
                Wanted::Pause(time) if time > left => return Some(FindStopReason::Budget),
                Wanted::Pause(time) => {
                    let goes_on = self.step(FindStep::Pause(time), || target.rest(time), |_| time);
                    search.record_pause(time, goes_on);
                }
                Wanted::RunTrial(offer) => match fitted(&offer, left) {
                    None => return Some(FindStopReason::Budget),
                    Some(fitted) => self.offer_clients(target, search, fitted),
                },
            }
        }
    }

    fn offer_clients(
        &mut self,
        target: &mut (impl ClosedTarget + ?Sized),
        search: &mut ClosedSearch,
        offer: ClosedTrialSpec,
    ) {
        self.watcher.step_started(&FindStep::ClosedLoopTrial(&offer), self.time());
        let seen = target.carry_out(&offer);
        self.spent += seen.took;
        search.record_trial(&offer, seen);
        let came = search.report().trials.last().map(build_reported_trial);
        self.watcher.step_finished(&FindStep::ClosedLoopTrial(&offer), came.as_ref(), self.time());
        self.watcher.report_changed(&|| build_report(self.plan, &search.report(), None, false));
    }
}

/// Returns the trial, shortened to the available time; none if the time is too short.
fn fitted(offer: &ClosedTrialSpec, left: Duration) -> Option<ClosedTrialSpec> {
    let left = left.saturating_sub(offer.drain);
    let shortest = Duration::from_secs_f64(offer.criteria.settle) + SHORTEST;
    let needed = match offer.purpose {
        // An overload is useless without time for the next trial.
        TrialPurpose::BurstDrain => offer.max_duration + offer.drain + shortest,
        _ => shortest.min(offer.max_duration),
    };
    (needed <= left).then(|| ClosedTrialSpec { max_duration: offer.max_duration.min(left), ..*offer })
}
