//! One load carried out to its end: the trial, and the machine watched beside it, until there is a judgement.
//!
//! Whoever carries loads out does it with this, so that a trial of a search is judged as an attack is. What is done with an interval,
//! and when sending ends, is the caller's. Called by the tool and by [`crate::rig`].

use std::time::Duration;

use seawall_load::clock::RunClock;
use seawall_load::collector::CollectorEvent;
use seawall_load::control::Control;
use seawall_load::interval::IntervalStats;
use seawall_load::run_outcome::RunOutcome;
use seawall_load::summary::Summary;
use seawall_load::trial::LoadTrial;

use crate::judgement::Judgement;
use crate::machine::{MachineMonitor, TrialTimes};
use crate::objective::Objectives;
use seawall_probe::LocalFiles;

/// A load under way. Dropping it aborts it.
pub struct RunningTrial<'s> {
    trial: LoadTrial<'s>,
    clock: RunClock,
    machine: MachineMonitor<LocalFiles>,
}

/// The result of waiting for a running trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialProgress {
    /// There is another [`RunningTrial::interval`].
    Interval,
    /// There is none yet.
    Pending,
    /// All of it was told.
    Finished,
}

/// The result of a trial.
#[derive(Debug)]
pub struct TrialResult {
    /// The measured figures.
    pub outcome: RunOutcome,
    /// The figures made of it.
    pub summary: Summary,
    /// The judgement on these figures.
    pub judgement: Judgement,
}

impl<'s> RunningTrial<'s> {
    /// Of a trial that has just begun, of which what is due in the warm-up does not count.
    #[must_use]
    pub fn new(trial: LoadTrial<'s>, warm_up: Duration) -> Self {
        let clock = RunClock::start();
        let times = TrialTimes { start: begins(&trial, clock), warm_up };
        let machine = MachineMonitor::watch(LocalFiles, now(clock), times);
        Self { trial, clock, machine }
    }

    /// The hand on it.
    #[must_use]
    pub fn control(&self) -> Control {
        self.trial.control()
    }

    /// Returns the start of the trial's schedule, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn began_unix_ns(&self) -> i64 {
        self.trial.began_unix_ns()
    }

    /// Waits for the next interval, so long at most, and looks at the machine when it is time to.
    pub fn wait(&mut self, patience: Duration) -> TrialProgress {
        match self.trial.next_interval(patience.min(self.machine.next_interval_timeout(now(self.clock)))) {
            CollectorEvent::Interval(_) => {
                self.machine.sample(
                    self.trial.last_interval(),
                    self.trial.busy_poll_times(),
                    now(self.clock),
                );
                TrialProgress::Interval
            }
            CollectorEvent::Timeout => {
                self.machine.on_timeout(now(self.clock));
                TrialProgress::Pending
            }
            CollectorEvent::Ended => {
                self.machine.on_sending_ended(now(self.clock));
                TrialProgress::Finished
            }
        }
    }

    /// Sees it to its end, interval by interval.
    pub fn run_to_end(&mut self, mut each: impl FnMut(&IntervalStats)) {
        loop {
            match self.wait(Duration::MAX) {
                TrialProgress::Interval => each(self.trial.last_interval()),
                TrialProgress::Pending => {}
                TrialProgress::Finished => return,
            }
        }
    }

    /// The interval that was heard of last; an empty one before that.
    #[must_use]
    pub fn interval(&self) -> &IntervalStats {
        self.trial.last_interval()
    }

    /// Waits for the end, and judges.
    #[must_use]
    pub fn finish(self, objectives: Option<&Objectives>) -> TrialResult {
        let Self { trial, clock, machine } = self;
        let outcome = trial.finish();
        let findings = machine.finish(&outcome, now(clock));
        let summary = Summary::new(&outcome);
        let judgement = Judgement::new(&outcome, &summary, findings, objectives);
        TrialResult { outcome, summary, judgement }
    }
}

fn now(clock: RunClock) -> Duration {
    Duration::from_nanos(clock.now())
}

/// Returns the time until the first request is due.
fn begins(trial: &LoadTrial<'_>, clock: RunClock) -> Duration {
    let ahead = trial.began_unix_ns().saturating_sub(clock.unix_ns(0));
    Duration::from_nanos(u64::try_from(ahead).unwrap_or(0))
}
