//! The inquiry: what to try next, and what is known by now.

use std::time::Duration;

use crate::experiment::Experiment;
use crate::report::Report;
use crate::watched::Watched;

/// What the search has found out.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The rate at which it breaks, requests a second.
    pub limit: f64,
    /// Mean response time with next to nothing to do, in seconds.
    pub service: f64,
    /// How long an answer may take, in seconds.
    pub timeout: f64,
    /// Connections are used again.
    pub keep_alive: bool,
    /// Requests go over TLS.
    pub tls: bool,
    /// The target is a name, and no address.
    pub named: bool,
    /// Seconds of load that the inquiry may take, all together.
    pub budget: Duration,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Carry this out.
    Try(Experiment),
    /// Send nothing.
    Rest(Duration),
    /// Nothing: what can be told is told.
    Over,
}

/// An inquiry under way: asked what it wants next, told what came of it.
#[derive(Debug, Clone)]
pub struct Inquiry {
    known: Known,
    report: Report,
}

impl Inquiry {
    /// One that has not begun.
    #[must_use]
    pub fn new(known: Known) -> Self {
        Self { known, report: Report::default() }
    }

    /// What is known beforehand.
    #[must_use]
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// What is to be done next; the same again until it was told what came of it.
    pub fn next_step(&mut self) -> Step {
        Step::Over
    }

    /// An experiment was carried out.
    pub fn saw(&mut self, _experiment: &Experiment, _watched: Watched) {}

    /// Nothing was sent for that long; `goes_on` is false if somebody wants everything to end.
    pub fn rested(&mut self, _time: Duration, _goes_on: bool) {}

    /// What is known now.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }
}
