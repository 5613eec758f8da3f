//! Runs one load to its end and watches the machine meanwhile; the result is a judgement.
//!
//! The tool runs an attack with this module, and [`crate::rig`] runs the trials of a search, so both are judged alike. The caller
//! handles the intervals and decides when sending ends.

use std::time::Duration;

use seawall_load::clock::RunClock;
use seawall_load::control::Control;
use seawall_load::interval::IntervalStats;
use seawall_load::run_outcome::RunOutcome;
use seawall_load::stats_collector::NextIntervalResult;
use seawall_load::summary::Summary;
use seawall_load::trial::LoadTrial;

use crate::generator_machine::{MachineMonitor, TrialStartAndWarmUp};
use crate::objective::Objectives;
use crate::trial_judgement::Judgement;
use seawall_probe::LocalFiles;

/// A running load. Dropping it aborts the load.
pub struct RunningTrial<'s> {
    trial: LoadTrial<'s>,
    clock: RunClock,
    machine: MachineMonitor<LocalFiles>,
}

/// The result of waiting for a running trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialProgress {
    /// A further interval has ended: see [`RunningTrial::interval`].
    Interval,
    /// No further interval has ended yet.
    Pending,
    /// All intervals were returned.
    Finished,
}

/// The result of a trial.
#[derive(Debug)]
pub struct TrialResult {
    /// The outcome of the trial.
    pub outcome: RunOutcome,
    /// The figures that were computed from the outcome.
    pub summary: Summary,
    /// The judgement on these figures.
    pub judgement: Judgement,
}

impl<'s> RunningTrial<'s> {
    /// Wraps a trial that has just started. Requests that are due in the warm-up do not count.
    #[must_use]
    pub fn new(trial: LoadTrial<'s>, warm_up: Duration) -> Self {
        let clock = RunClock::start();
        let times = TrialStartAndWarmUp { start: begins(&trial, clock), warm_up };
        let machine = MachineMonitor::watch(LocalFiles, now(clock), times);
        Self { trial, clock, machine }
    }

    /// Returns the controller of the load.
    #[must_use]
    pub fn control(&self) -> Control {
        self.trial.control()
    }

    /// Returns the start of the trial's schedule, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn began_unix_ns(&self) -> i64 {
        self.trial.began_unix_ns()
    }

    /// Waits at most this long for the next interval, and samples the machine when that is due.
    pub fn wait(&mut self, patience: Duration) -> TrialProgress {
        match self.trial.next_interval(patience.min(self.machine.next_interval_timeout(now(self.clock)))) {
            NextIntervalResult::Interval(_) => {
                self.machine.sample(
                    self.trial.last_interval(),
                    self.trial.busy_poll_times(),
                    now(self.clock),
                );
                TrialProgress::Interval
            }
            NextIntervalResult::Timeout => {
                self.machine.restart_at_first_look_if_due(now(self.clock));
                TrialProgress::Pending
            }
            NextIntervalResult::Ended => {
                self.machine.on_sending_ended(now(self.clock));
                TrialProgress::Finished
            }
        }
    }

    /// Runs the load to its end and passes each interval to `each`.
    pub fn run_to_end(&mut self, mut each: impl FnMut(&IntervalStats)) {
        loop {
            match self.wait(Duration::MAX) {
                TrialProgress::Interval => each(self.trial.last_interval()),
                TrialProgress::Pending => {}
                TrialProgress::Finished => return,
            }
        }
    }

    /// Returns the last interval; an empty one before the first.
    #[must_use]
    pub fn interval(&self) -> &IntervalStats {
        self.trial.last_interval()
    }

    /// Waits for the end and judges the trial.
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
