//! Takes the steps of a search and of an inquiry, one after the other, within a budget, and tells a watcher of each.
//!
//! A trial is shortened to what is left where a shorter one is worth as much a second; what would be worth nothing if it were cut, and
//! what follows of it, is not begun.

mod closed;

use std::time::Duration;

use seawall_cause::experiment::{Experiment, Load};
use seawall_cause::inquiry::{self, Inquiry};
use seawall_cause::subject::Subject;
use seawall_search::offer::{Offer, Purpose, Rule};
use seawall_search::search::{self, Search};
use seawall_search::target::Target;

use super::answer::{Answer, Cut};
use super::plan::Plan;
use super::progress::{Step, Time, Watcher};
use super::told;

/// Time that is counted, and whoever is told.
pub(super) struct Steps<'w, W> {
    plan: &'w Plan,
    spent: Duration,
    watcher: &'w mut W,
}

/// No trial of a rate is worth anything below this.
const SHORTEST: Duration = Duration::from_millis(2200);

/// Single requests before an inquiry, a second: as many as are few for any target, unless its limit is lower.
const SINGLE: f64 = 10.0;
/// How long they are sent at most.
const PATIENCE: Duration = Duration::from_secs(5);

impl<'w, W: Watcher> Steps<'w, W> {
    pub(super) fn new(plan: &'w Plan, watcher: &'w mut W) -> Self {
        Self { plan, spent: Duration::ZERO, watcher }
    }

    pub(super) fn spent(&self) -> Duration {
        self.spent
    }

    /// Of the budget; none: there is none.
    pub(super) fn left(&self) -> Option<Duration> {
        self.plan.budget.map(|budget| budget.saturating_sub(self.spent))
    }

    fn time(&self) -> Time {
        Time { spent: self.spent, left: self.left() }
    }

    /// One step of which there is no more to tell than that it is over.
    pub(super) fn step<T>(
        &mut self,
        step: Step<'_>,
        make: impl FnOnce() -> T,
        took: impl FnOnce(&T) -> Duration,
    ) -> T {
        self.watcher.begins(&step, self.time());
        let made = make();
        self.spent += took(&made);
        self.watcher.ended(&step, None, self.time());
        made
    }

    /// Searches to the end, or until so much more is spent; says what ended it before.
    pub(super) fn search(
        &mut self,
        target: &mut (impl Target + ?Sized),
        search: &mut Search,
        until: Option<Duration>,
    ) -> Option<Cut> {
        let end = until.map(|until| self.spent + until);
        loop {
            let left = end.map_or(Duration::MAX, |end| end.saturating_sub(self.spent));
            let cut = match search.next_step() {
                search::Step::Over => return told::ended_by(search),
                search::Step::Rest(time) if time > left => Some(Cut::Budget),
                search::Step::Rest(time) => {
                    let goes_on = self.step(Step::Rest(time), || target.rest(time), |_| time);
                    search.rested(time, goes_on);
                    None
                }
                search::Step::Offer(offer) => self.offer(target, search, offer, left),
            };
            if cut.is_some() {
                return cut;
            }
        }
    }

    fn offer(
        &mut self,
        target: &mut (impl Target + ?Sized),
        search: &mut Search,
        offer: Offer,
        left: Duration,
    ) -> Option<Cut> {
        let Some(fitted) = fitted(&offer, left) else { return Some(Cut::Budget) };
        self.watcher.begins(&Step::Offer(&fitted), self.time());
        let seen = target.carry_out(&fitted);
        self.spent += seen.took;
        // Whether the target had come to itself is not known of one that was not waited for as long as it was to be.
        let unfinished =
            fitted.purpose == Purpose::Probe && fitted.most < offer.most && seen.took >= fitted.most;
        if unfinished && !seen.interrupted {
            return Some(Cut::Budget);
        }
        search.saw(&fitted, seen);
        let came = search.last().map(told::trial);
        self.watcher.ended(&Step::Offer(&fitted), came.as_ref(), self.time());
        self.watcher.knows(&|| told::search(self.plan, &search.report(), None));
        None
    }

    /// Sends single requests to a target that breaks at such a rate until some are answered well, and for no longer than there is
    /// time for; says whether somebody wants everything to end.
    pub(super) fn wait_for_answers(&mut self, target: &mut (impl Target + ?Sized), limit: f64) -> bool {
        let (rate, most) = (SINGLE.min(limit / 2.0), PATIENCE);
        let offer = Offer {
            purpose: Purpose::Probe,
            rate,
            least: Duration::ZERO,
            most,
            rule: Rule::Calm(f64::INFINITY),
            most_in_flight: rate * most.as_secs_f64(),
            drain: Duration::ZERO,
        };
        if !rate.is_normal() || self.left().is_some_and(|left| most > left) {
            return false;
        }
        let step = Step::Experiment("until it answers");
        self.step(step, || target.carry_out(&offer), |seen| seen.took).interrupted
    }

    /// Inquires to the end, or to that of the budget, after a search that came to this; says what ended it before.
    pub(super) fn inquire(
        &mut self,
        subject: &mut (impl Subject + ?Sized),
        inquiry: &mut Inquiry,
        found: &Answer,
    ) -> Option<Cut> {
        loop {
            let left = self.left().unwrap_or(Duration::MAX);
            match inquiry.next_step() {
                inquiry::Step::Over => return None,
                inquiry::Step::Rest(time) if time > left => return Some(Cut::Budget),
                inquiry::Step::Rest(time) => {
                    let goes_on = self.step(Step::Rest(time), || subject.pause(time), |_| time);
                    inquiry.rested(time, goes_on);
                    if !goes_on {
                        return Some(Cut::Signal);
                    }
                }
                inquiry::Step::Try(experiment) if longest(&experiment) > left => return Some(Cut::Budget),
                inquiry::Step::Try(experiment) => {
                    let step = Step::Experiment(experiment.name);
                    let watched = self.step(step, || subject.watch(&experiment), |watched| watched.took);
                    let interrupted = watched.interrupted;
                    inquiry.saw(&experiment, watched);
                    self.watcher.knows(&|| told::tried(found.clone(), inquiry.report()));
                    if interrupted {
                        return Some(Cut::Signal);
                    }
                }
            }
        }
    }
}

/// The offer as far as there is time for it; none where there is not.
fn fitted(offer: &Offer, left: Duration) -> Option<Offer> {
    let left = left.saturating_sub(offer.drain);
    let needed = match offer.purpose {
        Purpose::Recovery | Purpose::Retest => offer.most,
        // Nobody is overloaded for a trial that there is no time for.
        Purpose::Arm => offer.most + SHORTEST,
        Purpose::Baseline | Purpose::Probe => offer.least,
        _ => SHORTEST.min(offer.most),
    };
    (needed <= left).then(|| Offer { most: offer.most.min(left), ..*offer })
}

/// The longest that an experiment takes.
fn longest(experiment: &Experiment) -> Duration {
    let lasts = match experiment.load {
        Load::Rate { lasts, .. } | Load::Clients { lasts, .. } => lasts,
        Load::Bursts { times, every, quiet, .. } => {
            quiet + every.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX))
        }
    };
    lasts + experiment.drain
}
