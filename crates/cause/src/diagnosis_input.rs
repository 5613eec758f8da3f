//! The input of a diagnosis: the results of the search and all experiments so far. It finds experiments by name. All signs and sizes read
//! it.

use crate::experiment::{Experiment, ExperimentLoad};
use crate::experiment_selection::SearchFindings;
use crate::experiment_stats::{ExperimentStats, SortedSamples};
use crate::observed_requests::{ObservedOutcome, ObservedRequest};
use crate::report::ExperimentRecord;

/// The results of the search and the experiments so far.
#[derive(Debug, Clone, Copy)]
pub struct DiagnosisInput<'a> {
    /// The results of the search.
    pub search_findings: &'a SearchFindings,
    /// The experiments in order.
    pub experiments: &'a [ExperimentRecord],
}

/// The time that a machine itself adds to a response, in seconds.
const MACHINE: f64 = 0.000_2;

/// A valid experiment that sent requests.
#[derive(Debug, Clone, Copy)]
pub struct ValidExperiment<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The statistics of its requests.
    pub stats: ExperimentStats<'a>,
}

impl ValidExperiment<'_> {
    /// Returns the intended requests per second; 0 for loads without a rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self.experiment.load {
            ExperimentLoad::Rate { rate, .. } => rate,
            _ => 0.0,
        }
    }
}

/// Returns whether the target went down during an experiment that was not an overload. Such an experiment is ignored. Recovery
/// checks are never ignored.
fn is_abandoned(tried: &ExperimentRecord, known: &SearchFindings) -> bool {
    let gentle = match tried.experiment.load {
        ExperimentLoad::Rate { rate, .. } => {
            rate <= known.limit_rate && tried.experiment.variation.held_idle_connections == 0
        }
        ExperimentLoad::Clients { clients, .. } => clients <= 2,
        ExperimentLoad::Bursts { .. } => false,
    };
    gentle
        && tried.experiment.name != "recovery check"
        && ExperimentStats::new(&tried.observation).is_down_at_end()
}

impl<'a> DiagnosisInput<'a> {
    /// Returns all valid experiments with this name, in order.
    pub fn experiments_named(
        &self,
        name: &'static str,
    ) -> impl Iterator<Item = ValidExperiment<'a>> + use<'a> {
        let tried = self.experiments.iter().filter(move |tried| tried.experiment.name == name);
        let valid = tried.filter(|tried| {
            tried.observation.invalid_reason.is_none() && !tried.observation.requests.is_empty()
        });
        let known = self.search_findings;
        let valid = valid.filter(move |tried| !is_abandoned(tried, known));
        valid.map(|tried| ValidExperiment {
            experiment: &tried.experiment,
            stats: ExperimentStats::new(&tried.observation),
        })
    }

    /// Returns the last valid experiment with this name.
    #[must_use]
    pub fn last_experiment_named(&self, name: &'static str) -> Option<ValidExperiment<'a>> {
        self.experiments_named(name).last()
    }

    /// Returns the index of the last experiment with a good response, if the target is down. The target counts as down after two
    /// failed recovery checks with a pause in between. A target that never answered gives none.
    #[must_use]
    pub fn last_experiment_index_before_outage(&self) -> Option<usize> {
        let view = |tried: &'a ExperimentRecord| {
            tried.observation.invalid_reason.is_none().then(|| ExperimentStats::new(&tried.observation))
        };
        let looks =
            self.experiments.iter().rev().filter_map(|tried| Some((tried.experiment.name, view(tried)?)));
        let deserted = looks.take_while(|(name, view)| *name == "recovery check" && view.is_down()).count();
        let answered = |tried: &ExperimentRecord| {
            tried.observation.requests.iter().any(|hit| hit.outcome == ObservedOutcome::Good)
        };
        (deserted > 1).then(|| self.experiments.iter().rposition(answered)).flatten()
    }

    /// Returns the last experiment at half the limit.
    #[must_use]
    pub fn half_limit_experiment(&self) -> Option<ValidExperiment<'a>> {
        self.last_experiment_named("half the limit")
    }

    /// Returns the strongest overload experiment.
    #[must_use]
    pub fn strongest_overload(&self) -> Option<ValidExperiment<'a>> {
        self.last_experiment_named("250 % of the limit")
            .or_else(|| self.last_experiment_named("150 % of the limit"))
    }

    /// Returns the number of attempts at an experiment.
    #[must_use]
    pub fn times_attempted(&self, name: &str) -> usize {
        self.experiments.iter().filter(|tried| tried.experiment.name == name).count()
    }

    /// Returns the number of attempts at an experiment, without one that this machine disturbed: that one may be repeated.
    #[must_use]
    pub fn attempts_toward_max_times(&self, name: &str) -> usize {
        let named = self.experiments.iter().filter(|tried| tried.experiment.name == name);
        let is_disturbed = named.clone().any(|tried| tried.observation.invalid_reason.is_some());
        named.count() - usize::from(is_disturbed)
    }

    /// Returns the reason why an experiment was impossible.
    #[must_use]
    pub fn why_impossible(&self, name: &str) -> Option<&'a str> {
        let mut tried = self.experiments.iter().filter(|tried| tried.experiment.name == name);
        tried.find_map(|tried| tried.observation.impossible_reason.as_deref())
    }

    /// Returns the response times of good responses at half the limit.
    #[must_use]
    pub fn half_limit_response_times(&self) -> SortedSamples {
        self.half_limit_experiment()
            .map_or(SortedSamples::of(std::iter::empty()), |base| base.stats.response_times())
    }

    /// Returns the response time at very low load, in seconds.
    ///
    /// It is the mean, but at most 1.45 medians, which is the mean of an exponential distribution. So a disturbed trial, a long tail or a
    /// queue of clients does not make one core look like a pool.
    #[must_use]
    pub fn service_time(&self) -> f64 {
        // The time counts from sending the request, because lookups and connects keep no worker busy.
        let times = |done: ValidExperiment<'_>| {
            SortedSamples::of(done.stats.good_requests().map(ObservedRequest::service_time))
        };
        let base = self.half_limit_experiment().map_or(SortedSamples::of(std::iter::empty()), times);
        if base.count() == 0 {
            return self.search_findings.service_time;
        }
        let alone = self.last_experiment_named("one client").map(times).filter(|times| times.count() >= 5);
        let alone = alone.map_or(f64::INFINITY, |times| times.mean());
        base.mean().min(1.45 * base.median()).min(alone)
    }

    /// Returns the service time without the network round trip and the machine's overhead, in seconds.
    ///
    /// A connect takes one round trip. The 25 % quantile of the connects counts, because the first connects may wake sleeping parts.
    #[must_use]
    pub fn work_time(&self) -> f64 {
        let trip = self.half_limit_experiment().map_or(0.0, |base| {
            SortedSamples::of(base.stats.opened_connections().map(|one| one.connect)).quantile(0.25)
        });
        let service = self.service_time();
        (service - trip - MACHINE).max(service / 2.0)
    }

    /// Returns the mean number of requests in flight at the limit without a queue: rate times response time (Little's law).
    #[must_use]
    pub fn in_flight_at_limit(&self) -> f64 {
        self.search_findings.limit_rate * self.service_time()
    }
}
