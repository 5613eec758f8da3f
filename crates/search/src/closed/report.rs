//! What came of a search for a number of clients: data for whoever shows it.

use std::time::Duration;

use super::narrow::whole;
use super::offer::{ClosedEvidence, ClosedTrialSpec};
use super::{ClosedSearch, Phase};
use crate::evidence::Dispersion;
use crate::goal::SearchGoal;
use crate::report::SearchOutcome;
use crate::seen::TrialObservation;
use crate::vote::{FailureMode, TrialVerdict};

/// What is known of the greatest number of clients at which the goal holds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClientLimit {
    /// The credible bracket, both bounds included, and its middle; none where nothing broke. A lower bound of none is a limit below one.
    pub bracket: Option<[u32; 3]>,
    /// Most clients of a good trial below every bad one.
    pub highest_good: Option<u32>,
    /// Fewest clients of a bad trial.
    pub lowest_bad: Option<u32>,
}

/// The rate that more clients do not raise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SaturationPoint {
    /// The most good answers a second that numbers of clients within a factor of two got together.
    pub rate: f64,
    /// Its standard deviation, answers a second.
    pub deviation: f64,
    /// The fewest clients that were tested and got nineteen twentieths of it.
    pub enough: u32,
    /// The most clients below those that were tested and got less.
    pub below: Option<u32>,
    /// The rate times the response time of a single client (Little 1961): so many would be enough if nobody waited for another.
    pub littles_law_clients: f64,
    /// Whether twice as many as were enough were tested and got no more; if not, more clients may get more.
    pub reached: bool,
}

/// An offer and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedTrial {
    /// What was asked for.
    pub spec: ClosedTrialSpec,
    /// When it began, since the search did.
    pub began: Duration,
    /// What was seen.
    pub seen: TrialObservation,
    /// What that says, with the clients where a rate would be.
    pub finding: ClosedEvidence,
    /// Mean response time of good answers after the first third, in seconds.
    pub response: Option<f64>,
    /// Which way it points by itself.
    pub trial_verdict: TrialVerdict,
    /// How the target failed, where it did.
    pub failure_mode: Option<FailureMode>,
    /// Whether it counts.
    pub counts: bool,
}

/// Everything.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedReport {
    /// How it ended; none while it goes on. Found without a bracket: not one client is borne, or those that are too many hang.
    pub outcome: Option<SearchOutcome>,
    /// What was asked.
    pub goal: SearchGoal,
    /// Of the profile.
    pub profile: &'static str,
    /// Most clients that there might be.
    pub most: u32,
    /// Where the goal ceases to hold.
    pub limit: ClientLimit,
    /// How it fails above that.
    pub failure_mode: Option<FailureMode>,
    /// What more clients do not raise; none before any trial.
    pub saturation: Option<SaturationPoint>,
    /// Mean response time of a single client, in seconds.
    pub service: f64,
    /// All trials in order.
    pub trials: Vec<ClosedTrial>,
    /// Everything together, rests included.
    pub took: Duration,
}

/// Of the highest rate: what is as good as that.
const ENOUGH: f64 = 0.95;
/// Guess of the dispersion of answers, and how many half seconds it weighs: as for votes on rates.
const DISPERSION: (f64, f64) = (0.7, 5.0);

impl ClosedSearch {
    /// What is known, at any moment.
    #[must_use]
    pub fn report(&self) -> ClosedReport {
        ClosedReport {
            outcome: self.outcome.filter(|_| self.phase == Phase::Over),
            goal: self.goal,
            profile: self.profile.name,
            most: self.most,
            limit: self.limit(),
            failure_mode: self.kind,
            saturation: self.saturation(),
            service: self.service,
            trials: self.trials.clone(),
            took: self.elapsed,
        }
    }

    fn limit(&self) -> ClientLimit {
        let counting = || self.trials.iter().filter(|trial| trial.counts);
        let of = |vote| {
            counting().filter(move |trial| trial.trial_verdict == vote).map(|trial| trial.spec.clients)
        };
        let bad = of(TrialVerdict::Bad).min();
        let good = of(TrialVerdict::Good).filter(|clients| bad.is_none_or(|bad| *clients < bad)).max();
        let margin = self.profile.knee_margin;
        let bracket = self.bracket.map(|bracket| {
            let (lower, upper) = whole(&bracket.widened(margin));
            [lower, bracket.estimate as u32, upper]
        });
        ClientLimit { bracket, highest_good: good, lowest_bad: bad }
    }

    /// Trials of numbers within a factor of two are one: the best of single ones would be the luckiest.
    pub(super) fn saturation(&self) -> Option<SaturationPoint> {
        let all = || self.trials.iter().filter(|trial| trial.counts && trial.finding.evidence.seconds > 0.0);
        let octaves = (0..u32::BITS).filter_map(|octave| {
            PooledGoodput::of(all().filter(|trial| trial.spec.clients.checked_ilog2() == Some(octave)))
        });
        let best = octaves.max_by(|a, b| a.rate.total_cmp(&b.rate))?;
        let gets = |trial: &&ClosedTrial| trial.finding.evidence.goodput >= ENOUGH * best.rate;
        let enough = all().filter(gets).map(|trial| trial.spec.clients).min()?;
        let tested = all().map(|trial| trial.spec.clients);
        Some(SaturationPoint {
            rate: best.rate,
            deviation: best.deviation,
            enough,
            below: tested.clone().filter(|clients| *clients < enough).max(),
            littles_law_clients: best.rate * self.service,
            reached: tested.max().is_some_and(|most| most >= enough.saturating_mul(2)),
        })
    }
}

/// What trials got together.
struct PooledGoodput {
    rate: f64,
    deviation: f64,
}

impl PooledGoodput {
    /// None of no trial.
    fn of<'t>(trials: impl Iterator<Item = &'t ClosedTrial>) -> Option<Self> {
        let (good, seconds, answers) = trials.map(|trial| &trial.finding.evidence).fold(
            (0.0, 0.0, Dispersion::default()),
            |(good, seconds, answers), e| {
                (good + e.goodput * e.seconds, seconds + e.seconds, answers.combine(e.answers))
            },
        );
        let dispersion = answers.shrunk(DISPERSION.0, DISPERSION.1);
        (seconds > 0.0)
            .then(|| Self { rate: good / seconds, deviation: (dispersion * good).sqrt() / seconds })
    }
}
