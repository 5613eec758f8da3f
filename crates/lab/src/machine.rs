//! This machine during one trial: joins [`crate::probe`], which knows no trials, with what the engine measured.
//!
//! Each trial has a [`Machine`] of its own, from its first request to its last answer, so that it is told what the machine
//! did then and nothing else. Asks nobody for the time. Called by whoever runs a trial.

use std::time::Duration;

use seawall_load::fault::Fault;
use seawall_load::interval::Interval;
use seawall_load::outcome::Outcome;

use crate::probe::{Files, Finding, Run, Watch};
use crate::selfcheck;

/// What the engine calls the threads that send.
const SENDERS: &str = "sender ";

/// Time between two looks at the machine, a little less than an interval's usual length.
const SPACING: Duration = Duration::from_millis(900);

/// Watches the machine during a trial.
#[derive(Debug)]
pub struct Machine<F> {
    /// When to look again.
    next: Duration,
    watch: Watch<F>,
}

impl<F: Files> Machine<F> {
    /// Begins at `at`, on a clock that goes on until the end. The sending threads must be there.
    #[must_use]
    pub fn watch(files: F, at: Duration) -> Self {
        Self { next: at, watch: Watch::start(files, SENDERS, at) }
    }

    /// Looks at the sending threads, unless they only wait for the last answers.
    pub fn sample(&mut self, interval: &Interval, at: Duration) {
        if interval.stats.sent > 0 && at >= self.next {
            self.watch.sample(at);
            // However short intervals are: a look costs as much as some hundred requests.
            self.next = at + SPACING;
        }
    }

    /// What was found, given what the trial came to.
    #[must_use]
    pub fn finish(self, outcome: &Outcome, at: Duration) -> Vec<Finding> {
        let run = Run {
            sending: Duration::from_nanos(outcome.scheduled_for),
            missed_sends: selfcheck::has_missed_sends(outcome),
            connections: outcome.total.connections,
            no_socket: outcome.total.fault(Fault::Local(std::io::ErrorKind::Other)),
            in_flight_peak: outcome.total.in_flight_peak,
            spun: Duration::from_nanos(outcome.total.spun / outcome.threads.max(1) as u64),
        };
        self.watch.finish(at, &run)
    }
}
