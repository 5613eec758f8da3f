//! What an experiment came to, as data: for the screen, the page, and files.

use seawall_isolate::center::LocationEstimate;
use seawall_isolate::finding::{MeasureResult, MeasureVerdict, VariantFinding};
use seawall_isolate::power::Forecast;
use seawall_isolate::segment::Design;
use seawall_isolate::slot::{Cell, CellStats};
use seawall_isolate::study::{Study, StudyEnd};
use seawall_load::clock::SECOND;
use seawall_load::stats::LatencyHistogram;
use serde::Serialize;

use super::counts::{FailureCount, RequestCounts};
use super::limits::CapacityReport;
use super::{IsolatePlan, IsolateStopReason, design_name};

/// Changes when a field goes or means something else.
const SCHEMA: u32 = 1;

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IsolateReport {
    /// What fields mean.
    pub schema: u32,
    /// How it ended.
    pub outcome: IsolateOutcome,
    /// Why it ended before it was decided and before its time was over.
    pub cut: Option<String>,
    /// Place of the way that most requests were left unanswered of, if that ended it; 0 is the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overloaded: Option<usize>,
    /// How the generator was the limit, where it was.
    pub generator: Vec<String>,
    /// What was asked.
    pub asked: IsolateConfig,
    /// Seconds that it took.
    pub took: f64,
    /// What variants are compared with.
    pub reference: VariantStats,
    /// Every other way, in the order in which it was asked for.
    pub variants: Vec<VariantResult>,
    /// What the ways that matter bear; none: nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub find: Option<CapacityReport>,
    /// Everything that was compared.
    pub cells: Vec<CellRow>,
}

/// How an experiment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolateOutcome {
    /// All is told.
    Decided,
    /// Some could not be told in the time that there was.
    Undecided,
    /// The generator was the limit of some, and nothing is said of them.
    GeneratorLimited,
    /// The target did not bear the rate.
    Overloaded,
    /// Somebody ended it.
    Interrupted,
    /// Nothing could be sent any more.
    Failed,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IsolateConfig {
    /// The target, without what may be a secret.
    pub target: String,
    /// Requests a second of all ways together.
    pub rate: f64,
    /// Ways that differ by no more than this share are equal.
    pub margin: f64,
    /// Tails were to be told, too.
    pub tail: bool,
    /// Seconds that it might take.
    pub budget: f64,
    /// Of everything random.
    pub seed: u64,
    /// Seconds that it would take, most likely, to find 5 % of the middle, or the margin where that is wider; of an ordinary path and before anything was sent.
    pub foretold: f64,
    /// The same of 10 % at the 99th percentile; none where there are too few answers for one.
    pub foretold_tail: Option<f64>,
}

/// A way, and what its requests took: all of them, whether or not their cells count.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VariantStats {
    /// What it is called.
    pub name: String,
    /// What it has different.
    pub what: String,
    /// Answers of which there are times.
    pub answers: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Of them without a good answer.
    pub failed: u64,
    /// Of them still without an answer when nobody waited any more, as the experiment or a part of it had ended.
    pub unanswered: u64,
    /// Of them sent again, whatever became of them: the connection that they were on had been closed.
    pub resent: u64,
    /// How those that failed did, the most frequent first.
    pub failures: Vec<FailureCount>,
    /// Percentiles, and seconds.
    pub times: Vec<(f64, f64)>,
}

/// Way and verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantResult {
    /// The way.
    #[serde(flatten)]
    pub way: VariantStats,
    /// How it took its turns.
    pub design: &'static str,
    /// What is said of it.
    pub verdict: VariantVerdict,
    /// Share of the reference's time that going this way saves: below zero it costs.
    pub gain: Option<ConfidenceInterval>,
    /// The same in seconds of the middle of the reference's times.
    pub gain_seconds: Option<ConfidenceInterval>,
    /// Share of requests that fail beyond those of the reference.
    pub failing: Option<ConfidenceInterval>,
    /// Cells that say it.
    pub cells: usize,
    /// Of so much or more, if there is no difference; adjusted for the number of variants. None before the first look.
    pub p_difference: Option<f64>,
    /// Of so little or less, if they are as far apart as the margin.
    pub p_equality: Option<f64>,
    /// Seconds until it was decided.
    pub decided_after: Option<f64>,
    /// Seconds that it would take beyond these, most likely, at this rate.
    pub more: Option<f64>,
    /// Share of its cells in which the generator was the limit, if that is why nothing is said.
    pub limited: Option<f64>,
    /// Of the 99th percentile.
    pub tail: TailResult,
}

/// What is said of a way's 99th percentile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TailResult {
    /// The word.
    pub verdict: VariantVerdict,
    /// Share of the reference's that it saves.
    pub gain: Option<ConfidenceInterval>,
    /// Seconds that it would take beyond these.
    pub more: Option<f64>,
}

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VariantVerdict {
    /// It takes less time than the reference: what it leaves out costs that.
    Faster,
    /// Fewer of its requests fail.
    FailsLess,
    /// More of its requests fail.
    FailsMore,
    /// It takes more time.
    Slower,
    /// The middle of its times is the same, and its 99th percentile lower.
    TailFaster,
    /// The middle of its times is the same, and its 99th percentile higher: some of its requests are slow.
    TailSlower,
    /// The same within the margin, and nothing is known against its tail: it is not the cause.
    Equal,
    /// Neither can be said.
    Undecided,
    /// The generator was the limit.
    Invalid,
}

/// An estimate with its ends, none where so few cells have none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ConfidenceInterval {
    /// Lower end.
    pub lower: Option<f64>,
    /// The estimate.
    pub point: f64,
    /// Upper end.
    pub upper: Option<f64>,
}

/// A cell of a way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellRow {
    /// Number of the cell among those of its design.
    pub cell: usize,
    /// The design.
    pub design: &'static str,
    /// Place of the way; 0 is the reference.
    pub way: usize,
    /// What was seen.
    pub requests: usize,
    /// Without a good answer.
    pub failed: usize,
    /// Seconds of the middle half.
    pub middle: Option<f64>,
    /// Seconds of the 99th percentile.
    pub p99: Option<f64>,
    /// The generator was the limit.
    pub limited: bool,
}

impl IsolateReport {
    pub(super) fn new(
        plan: &IsolatePlan,
        study: &Study,
        times: &[LatencyHistogram],
        counts: &[RequestCounts],
        cut: Option<&IsolateStopReason>,
    ) -> Self {
        let findings = study.findings();
        let cells: Vec<_> = study.cells().collect();
        let way = |at: usize| way(plan, at, times.get(at), counts.get(at));
        let reference = way(0);
        let usual = middle(&cells);
        let variants: Vec<_> = findings
            .iter()
            .enumerate()
            .map(|(at, finding)| VariantResult::of(way(at + 1), plan.config.designs[at], finding, usual))
            .collect();
        let outcome = outcome(study.end(), cut, &variants, plan.config.tail);
        let overloaded = match cut {
            Some(IsolateStopReason::Overloaded(way)) => Some(*way),
            _ => None,
        };
        let ways: Vec<_> =
            std::iter::once(&reference).chain(variants.iter().map(|variant| &variant.way)).collect();
        let cut = cut.map(|cut| in_words(cut, &ways));
        let took = study.spent().as_secs_f64();
        Self {
            schema: SCHEMA,
            outcome,
            cut,
            overloaded,
            generator: Vec::new(),
            asked: told(plan),
            took,
            reference,
            variants,
            find: None,
            cells: rows(&cells),
        }
    }

    /// The same with what its ways bear, if that was searched for.
    #[must_use]
    pub fn with_capacity_report(self, find: Option<CapacityReport>) -> Self {
        let is_cut = find.as_ref().is_some_and(CapacityReport::is_interrupted);
        let of_searches = is_cut.then(|| "ended by a signal while ways were searched".to_owned());
        Self { cut: self.cut.or(of_searches), find, ..self }
    }

    /// All ways, the reference first.
    pub fn variant_stats(&self) -> impl Iterator<Item = &VariantStats> {
        std::iter::once(&self.reference).chain(self.variants.iter().map(|variant| &variant.way))
    }

    /// The way that ended the experiment, as it left requests unanswered where the reference answered: it bears less, whatever the rate.
    #[must_use]
    pub fn overloaded_variant(&self) -> Option<&VariantResult> {
        let variant = self.variants.get(self.overloaded?.checked_sub(1)?)?;
        variant.way.leaves_more_than(&self.reference).then_some(variant)
    }

    /// Variants that differ, those whose going that way saves most first: failures, in whole percents of requests, before time. Of two that
    /// save as many, and beside a reference that hardly answers no time is saved, the faster one.
    #[must_use]
    pub fn ranked(&self) -> Vec<&VariantResult> {
        let mut ranked: Vec<_> =
            self.variants.iter().filter(|variant| variant.verdict.is_difference()).collect();
        ranked.sort_by(|one, other| {
            let spared =
                |variant: &VariantResult| variant.spared().map_or(0.0, |spared| (100.0 * spared).round());
            let gain = |variant: &VariantResult| variant.gain.map_or(f64::NEG_INFINITY, |gain| gain.point);
            let time = |variant: &VariantResult| variant.way.percentile(50.0).unwrap_or(f64::INFINITY);
            let by_failures = spared(other).total_cmp(&spared(one));
            by_failures.then(gain(other).total_cmp(&gain(one))).then(time(one).total_cmp(&time(other)))
        });
        ranked
    }

    /// Those of which this is said.
    pub fn variants_with_verdict(&self, word: VariantVerdict) -> impl Iterator<Item = &VariantResult> {
        self.variants.iter().filter(move |variant| variant.verdict == word)
    }
}

impl VariantVerdict {
    /// Each of them.
    pub const ALL: [Self; 9] = [
        Self::Faster,
        Self::FailsLess,
        Self::FailsMore,
        Self::Slower,
        Self::TailFaster,
        Self::TailSlower,
        Self::Equal,
        Self::Undecided,
        Self::Invalid,
    ];

    /// Whether it is failures in which the way differs.
    #[must_use]
    pub fn is_failure_difference(self) -> bool {
        matches!(self, Self::FailsMore | Self::FailsLess)
    }

    /// Whether the way differs from the reference.
    #[must_use]
    pub fn is_difference(self) -> bool {
        matches!(
            self,
            Self::Faster
                | Self::Slower
                | Self::FailsMore
                | Self::FailsLess
                | Self::TailFaster
                | Self::TailSlower
        )
    }
}

impl VariantStats {
    /// Whether any request had no good answer, or had to be sent again.
    #[must_use]
    pub fn has_failures_or_retries(&self) -> bool {
        self.failed + self.unanswered + self.resent > 0
    }

    /// Whether none had.
    #[must_use]
    pub fn all_failed(&self) -> bool {
        self.requests > 0 && self.failed + self.unanswered == self.requests
    }

    /// Whether it left that many more of its requests unanswered that the rate of both cannot be why.
    fn leaves_more_than(&self, reference: &Self) -> bool {
        let share = |way: &Self| way.unanswered as f64 / way.requests.max(1) as f64;
        share(self) > MORE * share(reference)
    }

    /// Seconds at a percentile, one of those that are told.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        self.times.iter().find(|(known, _)| *known == percent).map(|(_, seconds)| *seconds)
    }
}

impl VariantResult {
    /// Share of requests that fail the less for going this way, where that is what differs: below zero more of them fail.
    fn spared(&self) -> Option<f64> {
        self.failing.filter(|_| self.verdict.is_failure_difference()).map(|failing| -failing.point)
    }

    /// Whether this is said of its tail. Nothing is where good answers were too few for any time: who fails has none.
    fn tail_is(&self, word: VariantVerdict) -> bool {
        let only_fails = self.verdict.is_failure_difference() && self.gain.is_none();
        self.tail.verdict == word && !only_fails
    }

    fn of(way: VariantStats, design: Design, finding: &VariantFinding, usual: Option<f64>) -> Self {
        let VariantFinding { middle, tail, failing, .. } = finding;
        let verdict = word(finding);
        // What was waited in vain is no time of an answer.
        let is_timed = way.answers > 0 || verdict.is_difference();
        let gain = finding.gain().filter(|_| is_timed).and_then(ConfidenceInterval::of);
        let tail_gain = tail.gain().filter(|_| is_timed).and_then(ConfidenceInterval::of);
        // Before its first look nothing was tested: of no cells both are one.
        let looked = middle.p_difference < 1.0 || middle.p_equality < 1.0;
        let seconds = gain.zip(usual).map(|(gain, usual)| gain.times(usual));
        Self {
            way,
            design: design_name(design),
            verdict,
            gain,
            gain_seconds: seconds,
            failing: failing.and_then(ConfidenceInterval::of),
            cells: middle.cells,
            p_difference: looked.then_some(middle.p_difference),
            p_equality: looked.then_some(middle.p_equality),
            decided_after: middle.decided_after.map(|after| after.as_secs_f64()),
            more: more(middle),
            limited: match middle.verdict {
                MeasureVerdict::Invalid { limited } => Some(limited),
                _ => None,
            },
            tail: TailResult { verdict: by_ratio(tail), gain: tail_gain, more: more(tail) },
        }
    }
}

impl ConfidenceInterval {
    /// None of so few cells that they have no end.
    fn of(center: LocationEstimate) -> Option<Self> {
        let [lower, upper] = [center.lower, center.upper].map(|end| end.is_finite().then_some(end));
        (lower.is_some() || upper.is_some()).then_some(Self { lower, point: center.point, upper })
    }

    fn times(self, factor: f64) -> Self {
        let end = |end: Option<f64>| end.map(|end| end * factor);
        Self { lower: end(self.lower), point: self.point * factor, upper: end(self.upper) }
    }
}

fn word(finding: &VariantFinding) -> VariantVerdict {
    if !finding.differs_in_failing {
        return match (by_ratio(&finding.middle), by_ratio(&finding.tail)) {
            (VariantVerdict::Equal, VariantVerdict::Slower) => VariantVerdict::TailSlower,
            (VariantVerdict::Equal, VariantVerdict::Faster) => VariantVerdict::TailFaster,
            (middle, _) => middle,
        };
    }
    let more = finding.failing.is_some_and(|failing| failing.point > 0.0);
    if more { VariantVerdict::FailsMore } else { VariantVerdict::FailsLess }
}

fn by_ratio(measured: &MeasureResult) -> VariantVerdict {
    match measured.verdict {
        MeasureVerdict::Differs if measured.ratio.is_some_and(|ratio| ratio.point < 1.0) => {
            VariantVerdict::Faster
        }
        MeasureVerdict::Differs => VariantVerdict::Slower,
        MeasureVerdict::Equal => VariantVerdict::Equal,
        MeasureVerdict::Undecided { .. } => VariantVerdict::Undecided,
        MeasureVerdict::Invalid { .. } => VariantVerdict::Invalid,
    }
}

fn more(measured: &MeasureResult) -> Option<f64> {
    match measured.verdict {
        MeasureVerdict::Undecided { more } => more.map(|more| more.as_secs_f64()),
        _ => None,
    }
}

fn outcome(
    end: Option<StudyEnd>,
    cut: Option<&IsolateStopReason>,
    variants: &[VariantResult],
    with_tail: bool,
) -> IsolateOutcome {
    let any = |word| {
        let is_of_tail = |variant: &VariantResult| with_tail && variant.tail_is(word);
        variants.iter().any(|variant| variant.verdict == word || is_of_tail(variant))
    };
    match (cut, end) {
        (Some(IsolateStopReason::Stopped), _) => IsolateOutcome::Interrupted,
        (Some(IsolateStopReason::Overloaded(_)), _) => IsolateOutcome::Overloaded,
        (Some(IsolateStopReason::Failed(_)), _) => IsolateOutcome::Failed,
        _ if any(VariantVerdict::Invalid) => IsolateOutcome::GeneratorLimited,
        _ if any(VariantVerdict::Undecided) => IsolateOutcome::Undecided,
        _ => IsolateOutcome::Decided,
    }
}

/// More unanswered requests than so many times the reference's are the way's, and not the rate's that both have.
const MORE: f64 = 10.0;

/// Why it was cut, of these ways, the reference first.
fn in_words(cut: &IsolateStopReason, ways: &[&VariantStats]) -> String {
    match cut {
        IsolateStopReason::Stopped => "ended on request".to_owned(),
        IsolateStopReason::Overloaded(way) => match (ways.get(*way), ways.first()) {
            (Some(way), Some(reference)) if way.leaves_more_than(reference) => {
                let said = |way: &VariantStats| format!("{} of {} requests", way.unanswered, way.requests);
                let (name, other) = (&way.name, &reference.name);
                format!("{name:?} left {} unanswered, and {other:?} {}", said(way), said(reference))
            }
            (way, _) => {
                let name = way.map_or("?", |way| way.name.as_str());
                format!(
                    "more than two seconds' requests were left unanswered, most of all by {name:?}: the rate is more than it bears"
                )
            }
        },
        IsolateStopReason::Failed(why) => format!("nothing can be sent: {why}"),
    }
}

fn told(plan: &IsolatePlan) -> IsolateConfig {
    let asked = &plan.config;
    let Forecast { middle, tail, .. } = asked.forecast();
    IsolateConfig {
        target: plan.target.clone(),
        rate: asked.rate,
        margin: asked.margin,
        tail: asked.tail,
        budget: asked.budget.as_secs_f64(),
        seed: asked.seed,
        foretold: middle.as_secs_f64(),
        foretold_tail: tail.map(|tail| tail.as_secs_f64()),
    }
}

/// Percentiles that a way's times are told at: enough for its curve.
fn percentiles() -> impl Iterator<Item = f64> {
    let whole = (1..=99).map(f64::from);
    whole.chain([99.5, 99.7, 99.8, 99.9, 99.95, 99.99])
}

fn way(
    plan: &IsolatePlan,
    at: usize,
    times: Option<&LatencyHistogram>,
    counts: Option<&RequestCounts>,
) -> VariantStats {
    let counts = counts.cloned().unwrap_or_default();
    let seconds = |nanos: u64| nanos as f64 / SECOND as f64;
    let has = |times: &&LatencyHistogram| times.count() > 0;
    let curve = times.filter(has).map(|times| {
        let is_known = |percent: &f64| (100.0 - percent) / 100.0 * times.count() as f64 >= 1.0;
        let point = |percent: f64| (percent, seconds(times.quantile(percent / 100.0)));
        percentiles().filter(is_known).map(point).collect()
    });
    VariantStats {
        name: plan.variants[at].name.clone(),
        what: plan.variants[at].description.clone(),
        answers: times.map_or(0, LatencyHistogram::count),
        requests: counts.requests,
        failed: counts.failed,
        unanswered: counts.unanswered,
        resent: counts.resent,
        failures: counts.failures(),
        times: curve.unwrap_or_default(),
    }
}

/// The middle of the reference's times, in seconds: what a share of it is in time.
fn middle(cells: &[(Design, &Cell)]) -> Option<f64> {
    let of = |cell: &Cell| cell.first().copied().flatten().and_then(|slot: CellStats| slot.middle);
    let mut middles: Vec<_> = cells.iter().filter_map(|(_, cell)| of(cell)).collect();
    middles.sort_unstable_by(f64::total_cmp);
    seawall_isolate::center::median(&middles)
}

fn rows(cells: &[(Design, &Cell)]) -> Vec<CellRow> {
    let mut numbers = [0, 0];
    let mut rows = Vec::new();
    for (design, cell) in cells {
        let number = &mut numbers[usize::from(*design == Design::Blocks)];
        *number += 1;
        let slots = cell.iter().enumerate().filter_map(|(way, slot)| Some((way, (*slot)?)));
        rows.extend(slots.map(|(way, slot)| row(*number, *design, way, slot)));
    }
    rows
}

fn row(cell: usize, design: Design, way: usize, slot: CellStats) -> CellRow {
    let CellStats { requests, failed, middle, tail, limited } = slot;
    CellRow { cell, design: design_name(design), way, requests, failed, middle, p99: tail, limited }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(verdict: MeasureVerdict, ratio: f64) -> MeasureResult {
        let ratio = Some(LocationEstimate { lower: 0.98 * ratio, point: ratio, upper: 1.02 * ratio });
        MeasureResult { verdict, ratio, cells: 20, p_difference: 0.5, p_equality: 0.5, decided_after: None }
    }

    /// One of eight servers took ten times as long: the middle was the same, and the build that brought it was let through.
    #[test]
    fn a_way_whose_tail_differs_is_not_equal_because_its_middle_is() {
        let open = MeasureVerdict::Undecided { more: None };
        let said = |middle, (tail, ratio)| {
            word(&VariantFinding {
                middle: measured(middle, 1.0),
                tail: measured(tail, ratio),
                failing: None,
                differs_in_failing: false,
            })
        };
        assert_eq!(said(MeasureVerdict::Equal, (MeasureVerdict::Differs, 6.3)), VariantVerdict::TailSlower);
        assert_eq!(said(MeasureVerdict::Equal, (MeasureVerdict::Differs, 0.2)), VariantVerdict::TailFaster);
        assert_eq!(said(MeasureVerdict::Equal, (open, 6.3)), VariantVerdict::Equal);
        assert_eq!(said(open, (MeasureVerdict::Differs, 6.3)), VariantVerdict::Undecided);
        assert!(VariantVerdict::TailSlower.is_difference() && VariantVerdict::TailFaster.is_difference());
    }
}
