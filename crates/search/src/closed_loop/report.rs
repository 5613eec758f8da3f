//! The report of a search for a number of clients, as data for its display.

use std::time::Duration;

use super::narrow::whole_client_bounds;
use super::trial_spec::{ClosedEvidence, ClosedTrialSpec};
use super::{ClosedSearch, Phase};
use crate::evidence::Dispersion;
use crate::goal::SearchGoal;
use crate::observation::TrialObservation;
use crate::report::SearchOutcome;
use crate::trial_verdict::{FailureMode, TrialVerdict};

/// An estimate of the largest number of clients at which the goal holds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClientLimit {
    /// The lower bound, the estimate and the upper bound; none if nothing broke. A lower bound of 0 means a limit below one client.
    pub lower_estimate_upper: Option<[u32; 3]>,
    /// The most clients of a good trial below all bad ones.
    pub highest_good: Option<u32>,
    /// The fewest clients of a bad trial.
    pub lowest_bad: Option<u32>,
}

/// The rate that more clients do not raise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SaturationPoint {
    /// The highest rate of good responses per second, over trials with numbers of clients within a factor of two.
    pub rate: f64,
    /// The standard deviation of the rate, in responses per second.
    pub deviation: f64,
    /// The fewest tested clients that reached 95 % of the rate.
    pub sufficient_clients: u32,
    /// The most tested clients below those, which reached less.
    pub insufficient_clients: Option<u32>,
    /// The rate times the response time of a single client (Little 1961). This many clients would be enough if none waited for another.
    pub littles_law_clients: f64,
    /// True if twice as many clients were tested and did not get more. If false, more clients may raise the rate.
    pub is_confirmed: bool,
}

/// A trial with its result.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedTrial {
    /// The specification of the trial.
    pub spec: ClosedTrialSpec,
    /// The start of the trial, since the start of the search.
    pub began: Duration,
    /// The observation.
    pub seen: TrialObservation,
    /// The evidence, with the number of clients in place of the rate.
    pub evidence: ClosedEvidence,
    /// The mean response time of good responses after the first third, in seconds.
    pub mean_response_time: Option<f64>,
    /// The verdict on this trial alone.
    pub trial_verdict: TrialVerdict,
    /// The failure mode of a bad trial.
    pub failure_mode: Option<FailureMode>,
    /// True if the trial counts for the limit.
    pub counts_for_limit: bool,
}

/// The report of a search for a number of clients.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedReport {
    /// The outcome; none while the search runs. `Found` without a bracket means that the target does not bear one client, or that excess
    /// clients hang.
    pub outcome: Option<SearchOutcome>,
    /// The goal of the search.
    pub goal: SearchGoal,
    /// The name of the profile.
    pub profile_name: &'static str,
    /// The most allowed clients.
    pub max_clients: u32,
    /// The limit of the goal.
    pub limit: ClientLimit,
    /// The failure mode above the limit.
    pub failure_mode: Option<FailureMode>,
    /// The saturation; none before the first trial.
    pub saturation: Option<SaturationPoint>,
    /// The mean response time of a single client, in seconds.
    pub service_time: f64,
    /// All trials in order.
    pub trials: Vec<ClosedTrial>,
    /// The duration of the search, including pauses.
    pub took: Duration,
}

/// The share of the highest rate that counts as reached.
const ENOUGH: f64 = 0.95;
/// The prior dispersion of responses, and its weight in half seconds, as for verdicts on rates.
const DISPERSION: (f64, f64) = (0.7, 5.0);

impl ClosedSearch {
    /// Returns the current result.
    #[must_use]
    pub fn report(&self) -> ClosedReport {
        ClosedReport {
            outcome: self.outcome.filter(|_| self.phase == Phase::Finished),
            goal: self.goal,
            profile_name: self.profile.name,
            max_clients: self.most,
            limit: self.limit(),
            failure_mode: self.kind,
            saturation: self.saturation(),
            service_time: self.service,
            trials: self.trials.clone(),
            took: self.elapsed,
        }
    }

    fn limit(&self) -> ClientLimit {
        let counting = || self.trials.iter().filter(|trial| trial.counts_for_limit);
        let of = |vote| {
            counting().filter(move |trial| trial.trial_verdict == vote).map(|trial| trial.spec.clients)
        };
        let bad = of(TrialVerdict::Bad).min();
        let good = of(TrialVerdict::Good).filter(|clients| bad.is_none_or(|bad| *clients < bad)).max();
        let margin = self.profile.knee_margin;
        let bracket = self.bracket.map(|bracket| {
            let (lower, upper) = whole_client_bounds(&bracket.widened_by_share(margin));
            [lower, bracket.estimate as u32, upper]
        });
        ClientLimit { lower_estimate_upper: bracket, highest_good: good, lowest_bad: bad }
    }

    /// Returns the saturation. Trials within a factor of two are pooled, because the best single trial would be the luckiest.
    pub(super) fn saturation(&self) -> Option<SaturationPoint> {
        let all = || {
            self.trials.iter().filter(|trial| {
                trial.counts_for_limit && trial.evidence.evidence.seconds_after_settling > 0.0
            })
        };
        let octaves = (0..u32::BITS).filter_map(|octave| {
            PooledGoodput::of(all().filter(|trial| trial.spec.clients.checked_ilog2() == Some(octave)))
        });
        let best = octaves.max_by(|a, b| a.rate.total_cmp(&b.rate))?;
        let gets = |trial: &&ClosedTrial| trial.evidence.evidence.goodput >= ENOUGH * best.rate;
        let enough = all().filter(gets).map(|trial| trial.spec.clients).min()?;
        let tested = all().map(|trial| trial.spec.clients);
        Some(SaturationPoint {
            rate: best.rate,
            deviation: best.deviation,
            sufficient_clients: enough,
            insufficient_clients: tested.clone().filter(|clients| *clients < enough).max(),
            littles_law_clients: best.rate * self.service,
            is_confirmed: tested.max().is_some_and(|most| most >= enough.saturating_mul(2)),
        })
    }
}

/// The goodput of several trials together.
struct PooledGoodput {
    rate: f64,
    deviation: f64,
}

impl PooledGoodput {
    /// Pools the trials; none without trials.
    fn of<'t>(trials: impl Iterator<Item = &'t ClosedTrial>) -> Option<Self> {
        let (good, seconds, answers) = trials.map(|trial| &trial.evidence.evidence).fold(
            (0.0, 0.0, Dispersion::default()),
            |(good, seconds, answers), e| {
                (
                    good + e.goodput * e.seconds_after_settling,
                    seconds + e.seconds_after_settling,
                    answers.combine(e.response_dispersion),
                )
            },
        );
        let dispersion = answers.variance_ratio_shrunk_toward(DISPERSION.0, DISPERSION.1);
        (seconds > 0.0)
            .then(|| Self { rate: good / seconds, deviation: (dispersion * good).sqrt() / seconds })
    }
}
