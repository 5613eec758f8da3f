//! One load carried out to its end: the trial, and the machine watched beside it, until there is a judgement.
//!
//! Whoever carries loads out does it with this, so that a trial of a search is judged as an attack is. What is done with an interval,
//! and when sending ends, is the caller's. Called by the tool and by [`crate::rig`].

use std::time::Duration;

use seawall_load::clock::RunClock;
use seawall_load::collector::Heard;
use seawall_load::control::Control;
use seawall_load::interval::Interval;
use seawall_load::outcome::Outcome;
use seawall_load::summary::Summary;
use seawall_load::trial::Trial;

use crate::judgement::Judgement;
use crate::machine::{Machine, Times};
use crate::objective::Objectives;
use seawall_probe::System;

/// A load under way. Dropping it aborts it.
pub struct Carriage<'s> {
    trial: Trial<'s>,
    clock: RunClock,
    machine: Machine<System>,
}

/// What waiting came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is another [`Carriage::interval`].
    Interval,
    /// There is none yet.
    Nothing,
    /// All of it was told.
    Over,
}

/// What a load came to.
#[derive(Debug)]
pub struct Carried {
    /// What was measured.
    pub outcome: Outcome,
    /// The figures made of it.
    pub summary: Summary,
    /// What is to be thought of them.
    pub judgement: Judgement,
}

impl<'s> Carriage<'s> {
    /// Of a trial that has just begun, of which what is due in the warm-up does not count.
    #[must_use]
    pub fn new(trial: Trial<'s>, warm_up: Duration) -> Self {
        let clock = RunClock::start();
        let times = Times { begins: begins(&trial, clock), warm_up };
        let machine = Machine::watch(System, now(clock), times);
        Self { trial, clock, machine }
    }

    /// The hand on it.
    #[must_use]
    pub fn steer(&self) -> Control {
        self.trial.steer()
    }

    /// When its first instant is, in nanoseconds since the Unix epoch.
    #[must_use]
    pub fn began_unix_ns(&self) -> i64 {
        self.trial.began_unix_ns()
    }

    /// Waits for the next interval, so long at most, and looks at the machine when it is time to.
    pub fn wait(&mut self, patience: Duration) -> Step {
        match self.trial.next(patience.min(self.machine.patience(now(self.clock)))) {
            Heard::Interval(_) => {
                self.machine.sample(self.trial.interval(), self.trial.spun(), now(self.clock));
                Step::Interval
            }
            Heard::Nothing => {
                self.machine.waited(now(self.clock));
                Step::Nothing
            }
            Heard::Over => {
                self.machine.sent(now(self.clock));
                Step::Over
            }
        }
    }

    /// Sees it to its end, interval by interval.
    pub fn watch(&mut self, mut each: impl FnMut(&Interval)) {
        loop {
            match self.wait(Duration::MAX) {
                Step::Interval => each(self.trial.interval()),
                Step::Nothing => {}
                Step::Over => return,
            }
        }
    }

    /// The interval that was heard of last; an empty one before that.
    #[must_use]
    pub fn interval(&self) -> &Interval {
        self.trial.interval()
    }

    /// Waits for the end, and judges.
    #[must_use]
    pub fn finish(self, objectives: Option<&Objectives>) -> Carried {
        let Self { trial, clock, machine } = self;
        let outcome = trial.finish();
        let findings = machine.finish(&outcome, now(clock));
        let summary = Summary::new(&outcome);
        let judgement = Judgement::new(&outcome, &summary, findings, objectives);
        Carried { outcome, summary, judgement }
    }
}

fn now(clock: RunClock) -> Duration {
    Duration::from_nanos(clock.now())
}

/// When the first hit is due.
fn begins(trial: &Trial<'_>, clock: RunClock) -> Duration {
    let ahead = trial.began_unix_ns().saturating_sub(clock.unix_ns(0));
    Duration::from_nanos(u64::try_from(ahead).unwrap_or(0))
}
