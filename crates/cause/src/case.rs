//! What lies on the table: what the search found out, and what was tried. Finds experiments by name; every sign and size reads it.

use crate::experiment::{Experiment, ExperimentLoad};
use crate::inquiry::SearchFindings;
use crate::report::ExperimentRecord;
use crate::view::{ExperimentStats, SortedSamples};
use crate::watched::{ObservedOutcome, ObservedRequest};

/// What is known, and what was tried.
#[derive(Debug, Clone, Copy)]
pub struct DiagnosisInput<'a> {
    /// What the search found out.
    pub known: &'a SearchFindings,
    /// What was tried, in order.
    pub tried: &'a [ExperimentRecord],
}

/// What a machine adds to an answer on its way, in seconds.
const MACHINE: f64 = 0.000_2;

/// An experiment that came to something.
#[derive(Debug, Clone, Copy)]
pub struct ValidExperiment<'a> {
    /// What was asked for.
    pub experiment: &'a Experiment,
    /// What was seen.
    pub view: ExperimentStats<'a>,
}

impl ValidExperiment<'_> {
    /// Requests a second that it was to send; 0 where it is no rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self.experiment.load {
            ExperimentLoad::Rate { rate, .. } => rate,
            _ => 0.0,
        }
    }
}

/// Whether the target went away during it, though it was not too much: what was seen then is the word of nobody. A look after it says whether
/// somebody is there again, and is read as it is.
fn is_abandoned(tried: &ExperimentRecord, known: &SearchFindings) -> bool {
    let gentle = match tried.experiment.load {
        ExperimentLoad::Rate { rate, .. } => rate <= known.limit && tried.experiment.variation.held == 0,
        ExperimentLoad::Clients { clients, .. } => clients <= 2,
        ExperimentLoad::Bursts { .. } => false,
    };
    gentle && tried.experiment.name != "again" && ExperimentStats::new(&tried.observation).is_down_at_end()
}

impl<'a> DiagnosisInput<'a> {
    /// All that came to something by this name, in order.
    pub fn experiments_named(
        &self,
        name: &'static str,
    ) -> impl Iterator<Item = ValidExperiment<'a>> + use<'a> {
        let tried = self.tried.iter().filter(move |tried| tried.experiment.name == name);
        let valid = tried
            .filter(|tried| tried.observation.invalid.is_none() && !tried.observation.requests.is_empty());
        let known = self.known;
        let valid = valid.filter(move |tried| !is_abandoned(tried, known));
        valid.map(|tried| ValidExperiment {
            experiment: &tried.experiment,
            view: ExperimentStats::new(&tried.observation),
        })
    }

    /// The last of them.
    #[must_use]
    pub fn last_named(&self, name: &'static str) -> Option<ValidExperiment<'a>> {
        self.experiments_named(name).last()
    }

    /// Which experiment was the last of which anything was answered well, where nobody is there any more: nobody was there after it, and a
    /// rest has not changed that. Nothing says so of a target that has never answered.
    #[must_use]
    pub fn last_answered(&self) -> Option<usize> {
        let view = |tried: &'a ExperimentRecord| {
            tried.observation.invalid.is_none().then(|| ExperimentStats::new(&tried.observation))
        };
        let looks = self.tried.iter().rev().filter_map(|tried| Some((tried.experiment.name, view(tried)?)));
        let deserted = looks.take_while(|(name, view)| *name == "again" && view.is_down()).count();
        let answered = |tried: &ExperimentRecord| {
            tried.observation.requests.iter().any(|hit| hit.outcome == ObservedOutcome::Good)
        };
        (deserted > 1).then(|| self.tried.iter().rposition(answered)).flatten()
    }

    /// Half the limit.
    #[must_use]
    pub fn base(&self) -> Option<ValidExperiment<'a>> {
        self.last_named("base")
    }

    /// The strongest overload that was tried.
    #[must_use]
    pub fn over(&self) -> Option<ValidExperiment<'a>> {
        self.last_named("far over").or_else(|| self.last_named("over"))
    }

    /// How often it was asked for.
    #[must_use]
    pub fn times_attempted(&self, name: &str) -> usize {
        self.tried.iter().filter(|tried| tried.experiment.name == name).count()
    }

    /// Why it could not be carried out.
    #[must_use]
    pub fn why_impossible(&self, name: &str) -> Option<&'a str> {
        let mut tried = self.tried.iter().filter(|tried| tried.experiment.name == name);
        tried.find_map(|tried| tried.observation.impossible.as_deref())
    }

    /// Response times of good answers at half the limit.
    #[must_use]
    pub fn base_response_times(&self) -> SortedSamples {
        self.base().map_or(SortedSamples::of(std::iter::empty()), |base| base.view.response_times())
    }

    /// Response time with next to nothing to do, in seconds: the mean, but what disturbed a trial or lies in a long tail must not
    /// make a core a pool (1.45 medians is the mean of an exponential service), nor must a queue of clients.
    #[must_use]
    pub fn service_time(&self) -> f64 {
        // From the instant when it was sent: looking up and connecting keep no worker busy.
        let times = |done: ValidExperiment<'_>| {
            SortedSamples::of(done.view.good().map(ObservedRequest::service_time))
        };
        let base = self.base().map_or(SortedSamples::of(std::iter::empty()), times);
        if base.count() == 0 {
            return self.known.service;
        }
        let alone = self.last_named("one client").map(times).filter(|times| times.count() >= 5);
        let alone = alone.map_or(f64::INFINITY, |times| times.mean());
        base.mean().min(1.45 * base.median()).min(alone)
    }

    /// That, without what the way to the server and the machine take: they keep no worker busy. A connect is a round trip;
    /// of the few that are opened where connections are kept, the first comes upon whatever still sleeps.
    #[must_use]
    pub fn work_time(&self) -> f64 {
        let trip = self.base().map_or(0.0, |base| {
            SortedSamples::of(base.view.opened_connections().map(|one| one.connect)).quantile(0.25)
        });
        let service = self.service_time();
        (service - trip - MACHINE).max(service / 2.0)
    }

    /// Requests that are under way at the limit without any queue: its rate by the response time (Little).
    #[must_use]
    pub fn in_flight_at_limit(&self) -> f64 {
        self.known.limit * self.service_time()
    }
}
