//! The result of an experiment of `isolate` as plain data. The screen, the page and the JSON document show it.

use seawall_isolate::cell::{CellStats, CellStatsByVariant};
use seawall_isolate::center::LocationEstimate;
use seawall_isolate::finding::{MeasureResult, MeasureVerdict, VariantFinding};
use seawall_isolate::power::Forecast;
use seawall_isolate::segment::VariantOrder;
use seawall_isolate::study::{Study, StudyEnd};
use seawall_load::clock::SECOND;
use seawall_load::stats::LatencyHistogram;
use serde::Serialize;

use super::failure_counts::{FailureCount, RequestCounts};
use super::variant_capacity::CapacityReport;
use super::{IsolatePlan, IsolateStopReason, design_name};

/// The version of the document. It rises when a field is removed or changes its meaning.
const VERSION: u32 = 1;

/// The JSON document of `isolate`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IsolateReport {
    /// The kind of the document: `isolate`.
    pub kind: &'static str,
    /// The version of the document's form.
    pub version: u32,
    /// The outcome of the experiment.
    pub outcome: IsolateOutcome,
    /// The reason why the experiment stopped early. It is `None` if all variants were decided or the budget was used up.
    pub stop_reason: Option<ReportedStopReason>,
    /// The stop reason as a sentence.
    pub stop_detail: Option<String>,
    /// The index of the variant that left most requests unanswered, if that ended the experiment. Index 0 is the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overloaded_variant: Option<usize>,
    /// Sentences that say how the generator was the limit. The list is empty if it was not.
    pub generator_warnings: Vec<String>,
    /// The configuration of the experiment.
    pub config: IsolateConfig,
    /// The time that the comparison took.
    pub duration_seconds: f64,
    /// The reference, with which each variant is compared.
    pub reference: VariantStats,
    /// The variants in the order of the command line or the experiment file.
    pub variants: Vec<VariantResult>,
    /// The capacity of the reference and of the variants that differ. It is `None` without `--capacity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityReport>,
    /// All measurements that were compared: one entry per time bucket and variant.
    pub time_buckets: Vec<CellRow>,
}

/// The reason why an experiment stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedStopReason {
    /// A signal or the live page stopped the experiment, or one of the searches after it.
    Signal,
    /// Too many requests were unanswered at the same time.
    Overloaded,
    /// Too many requests were unanswered at the same time because the generator had sent them late.
    GeneratorLimited,
    /// The generator could not send requests any more.
    Failed,
}

/// The outcome of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolateOutcome {
    /// Each variant has a verdict.
    Decided,
    /// At least one variant is undecided after the budget was used up.
    Undecided,
    /// The generator was the limit of at least one variant, which has no verdict.
    GeneratorLimited,
    /// The target left too many requests unanswered at this rate.
    Overloaded,
    /// A signal or the live page stopped the experiment.
    Interrupted,
    /// The generator could not send requests any more.
    Failed,
}

/// The configuration of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IsolateConfig {
    /// The URL of the target without user, password and query.
    pub target: String,
    /// The requests per second of all variants together.
    pub rate: f64,
    /// The equivalence margin: variants whose times differ by at most this ratio are equal.
    pub margin: f64,
    /// True if the experiment also waits for a verdict on the 99th percentile (`--until-p99`).
    pub until_p99: bool,
    /// The time budget of the comparison.
    pub budget_seconds: f64,
    /// The seed of all random choices.
    pub seed: u64,
    /// The time that an ordinary path needs to detect a difference of 5 %, or of the margin if that is wider. It is
    /// predicted before the first request.
    pub predicted_duration_seconds: f64,
    /// The time that an ordinary path needs to detect 10 % at the 99th percentile. It is `None` if a time bucket has too
    /// few responses for that percentile.
    pub predicted_p99_duration_seconds: Option<f64>,
}

/// The requests of one variant. Requests in time buckets that do not count are included.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VariantStats {
    /// The name of the variant.
    pub name: String,
    /// The change of the variant, in words.
    pub description: String,
    /// The number of responses whose time was measured.
    pub responses: u64,
    /// The number of requests that were sent.
    pub requests: u64,
    /// The number of requests that failed.
    pub failed: u64,
    /// The number of requests that had no response when the experiment, or a segment of it, ended.
    pub no_response: u64,
    /// The number of requests that were sent again because their connection had been closed.
    pub retried: u64,
    /// The failures by reason, the most frequent reason first.
    pub failures: Vec<FailureCount>,
    /// The quantiles of the response times, in ascending order.
    pub response_time_quantiles: Vec<ResponseTimeQuantile>,
}

/// A quantile of response times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ResponseTimeQuantile {
    /// The quantile between 0 and 1, such as 0.99.
    pub quantile: f64,
    /// The response time at this quantile.
    pub seconds: f64,
}

/// The requests of one variant and its verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantResult {
    /// The requests of the variant. In JSON its keys stand among those of the result.
    #[serde(flatten)]
    pub stats: VariantStats,
    /// The design in which the variant takes turns with the reference: `interleaved` or `blocks`.
    pub design: &'static str,
    /// The verdict on the variant.
    pub verdict: VariantVerdict,
    /// The ratio of the reference's time that the variant saves. It is positive if the variant is faster and negative if it
    /// is slower.
    pub time_saved_ratio: Option<ConfidenceInterval>,
    /// The time that the variant saves compared with the reference's usual time. It is negative if the variant is slower.
    pub time_saved_seconds: Option<ConfidenceInterval>,
    /// The variant's error ratio minus the reference's. It is positive if the variant fails more requests.
    pub error_ratio_difference: Option<ConfidenceInterval>,
    /// The number of time buckets on which the verdict is based.
    pub time_buckets: usize,
    /// The p-value of the difference, adjusted for the number of variants. It is `None` before the first look.
    pub p_difference: Option<f64>,
    /// The p-value of the equivalence within the margin. It is `None` before the first look.
    pub p_equivalence: Option<f64>,
    /// The time after which the variant was decided.
    pub decided_after_seconds: Option<f64>,
    /// The predicted further time until the variant is decided, at this rate.
    pub estimated_remaining_seconds: Option<f64>,
    /// The ratio of time buckets in which the generator was the limit, if that makes the verdict invalid.
    pub generator_limited_ratio: Option<f64>,
    /// The verdict on the 99th percentile.
    pub p99: TailResult,
}

/// The verdict on a variant's 99th percentile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TailResult {
    /// The verdict: `faster`, `slower`, `equal`, `undecided` or `invalid`.
    pub verdict: VariantVerdict,
    /// The ratio of the reference's 99th percentile that the variant saves. It is negative if the variant is slower.
    pub time_saved_ratio: Option<ConfidenceInterval>,
    /// The predicted further time until the 99th percentile is decided.
    pub estimated_remaining_seconds: Option<f64>,
}

/// The verdict on a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VariantVerdict {
    /// The variant is faster than the reference: the part that it leaves out costs time.
    Faster,
    /// Fewer requests fail than with the reference.
    FewerErrors,
    /// More requests fail than with the reference.
    MoreErrors,
    /// The variant is slower than the reference.
    Slower,
    /// The usual time is equal and the 99th percentile is lower.
    P99Faster,
    /// The usual time is equal and the 99th percentile is higher: some requests are slow.
    P99Slower,
    /// The usual time is equal within the margin, and no difference at the 99th percentile is known. The part is not the
    /// cause.
    Equal,
    /// The measurements show neither a difference nor equality.
    Undecided,
    /// The generator was the limit in too many time buckets.
    Invalid,
}

/// An estimate with its confidence interval. A bound is `None` if there are too few time buckets for it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ConfidenceInterval {
    /// The lower bound.
    pub lower: Option<f64>,
    /// The estimate.
    pub estimate: f64,
    /// The upper bound.
    pub upper: Option<f64>,
}

/// The measurements of one variant in one time bucket.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellRow {
    /// The number of the time bucket. Each design counts from 1.
    pub time_bucket: usize,
    /// The design: `interleaved` or `blocks`.
    pub design: &'static str,
    /// The index of the variant. Index 0 is the reference.
    pub variant: usize,
    /// The number of requests in the time bucket.
    pub requests: usize,
    /// The number of requests that failed.
    pub failed: usize,
    /// The geometric mean of the middle half of the response times.
    pub location_seconds: Option<f64>,
    /// The 99th percentile of the response times.
    pub p99_seconds: Option<f64>,
    /// True if the generator was the limit, so that the time bucket does not count.
    pub is_generator_limited: bool,
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
        let cells: Vec<_> = study.time_bucket_stats().collect();
        let way = |at: usize| variant_result(plan, at, times.get(at), counts.get(at));
        let reference = way(0);
        let usual = middle(&cells);
        let variants: Vec<_> = findings
            .iter()
            .enumerate()
            .map(|(at, finding)| VariantResult::of(way(at + 1), plan.config.designs[at], finding, usual))
            .collect();
        let outcome = outcome(study.end_reason(), cut, &variants, plan.config.until_p99);
        let overloaded_variant = match cut {
            Some(IsolateStopReason::Overloaded(way)) => Some(*way),
            _ => None,
        };
        let ways: Vec<_> =
            std::iter::once(&reference).chain(variants.iter().map(|variant| &variant.stats)).collect();
        let stop_reason = cut.map(ReportedStopReason::of);
        let stop_detail = cut.map(|cut| in_words(cut, &ways));
        let duration_seconds = study.spent().as_secs_f64();
        Self {
            kind: "isolate",
            version: VERSION,
            outcome,
            stop_reason,
            stop_detail,
            overloaded_variant,
            generator_warnings: Vec::new(),
            config: isolate_config(plan),
            duration_seconds,
            reference,
            variants,
            capacity: None,
            time_buckets: rows(&cells),
        }
    }

    /// Returns the report with the capacity of its variants, if that was searched.
    #[must_use]
    pub fn with_capacity_report(self, capacity: Option<CapacityReport>) -> Self {
        let is_cut = capacity.as_ref().is_some_and(CapacityReport::is_interrupted);
        if !is_cut || self.stop_reason.is_some() {
            return Self { capacity, ..self };
        }
        let stop_detail = Some("a signal stopped the searches".to_owned());
        Self { stop_reason: Some(ReportedStopReason::Signal), stop_detail, capacity, ..self }
    }

    /// Returns the requests of all variants, the reference first.
    pub fn variant_stats(&self) -> impl Iterator<Item = &VariantStats> {
        std::iter::once(&self.reference).chain(self.variants.iter().map(|variant| &variant.stats))
    }

    /// Returns the variant that ended the experiment because it left far more requests unanswered than the reference. It sustains
    /// less than the reference at any rate.
    #[must_use]
    pub fn overloaded_variant(&self) -> Option<&VariantResult> {
        let variant = self.variants.get(self.overloaded_variant?.checked_sub(1)?)?;
        variant.stats.leaves_more_than(&self.reference).then_some(variant)
    }

    /// Returns the variants that differ, the most useful change first. Failures in whole percents of requests count before time.
    /// The faster of two variants with equal savings is first, because no time is saved compared with a reference that hardly
    /// responds.
    #[must_use]
    pub fn rank_differing_variants(&self) -> Vec<&VariantResult> {
        let mut ranked: Vec<_> =
            self.variants.iter().filter(|variant| variant.verdict.is_difference()).collect();
        ranked.sort_by(|one, other| {
            let spared =
                |variant: &VariantResult| variant.spared().map_or(0.0, |spared| (100.0 * spared).round());
            let gain = |variant: &VariantResult| {
                variant.time_saved_ratio.map_or(f64::NEG_INFINITY, |gain| gain.estimate)
            };
            let time = |variant: &VariantResult| variant.stats.percentile(50.0).unwrap_or(f64::INFINITY);
            let by_failures = spared(other).total_cmp(&spared(one));
            by_failures.then(gain(other).total_cmp(&gain(one))).then(time(one).total_cmp(&time(other)))
        });
        ranked
    }

    /// Returns the variants that have this verdict.
    pub fn variants_with_verdict(&self, word: VariantVerdict) -> impl Iterator<Item = &VariantResult> {
        self.variants.iter().filter(move |variant| variant.verdict == word)
    }
}

impl ReportedStopReason {
    fn of(cut: &IsolateStopReason) -> Self {
        match cut {
            IsolateStopReason::Stopped => Self::Signal,
            IsolateStopReason::Overloaded(_) => Self::Overloaded,
            IsolateStopReason::Failed(_) => Self::Failed,
        }
    }
}

impl VariantVerdict {
    /// All verdicts.
    pub const ALL: [Self; 9] = [
        Self::Faster,
        Self::FewerErrors,
        Self::MoreErrors,
        Self::Slower,
        Self::P99Faster,
        Self::P99Slower,
        Self::Equal,
        Self::Undecided,
        Self::Invalid,
    ];

    /// Returns true if the variant differs in its failures.
    #[must_use]
    pub fn is_failure_difference(self) -> bool {
        matches!(self, Self::MoreErrors | Self::FewerErrors)
    }

    /// Returns true if the variant differs from the reference.
    #[must_use]
    pub fn is_difference(self) -> bool {
        matches!(
            self,
            Self::Faster
                | Self::Slower
                | Self::MoreErrors
                | Self::FewerErrors
                | Self::P99Faster
                | Self::P99Slower
        )
    }
}

impl VariantStats {
    /// Returns true if at least one request failed, had no response or was sent again.
    #[must_use]
    pub fn has_failures_or_retries(&self) -> bool {
        self.failed + self.no_response + self.retried > 0
    }

    /// Returns true if no request succeeded.
    #[must_use]
    pub fn all_failed(&self) -> bool {
        self.requests > 0 && self.failed + self.no_response == self.requests
    }

    /// Returns true if the variant left so many more requests unanswered than the reference that the rate cannot be the reason.
    fn leaves_more_than(&self, reference: &Self) -> bool {
        let share = |way: &Self| way.no_response as f64 / way.requests.max(1) as f64;
        share(self) > MORE * share(reference)
    }

    /// Returns the response time at a percentile in seconds. It is `None` if the report does not have this percentile.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let wanted = quantile(percent);
        self.response_time_quantiles.iter().find(|known| known.quantile == wanted).map(|known| known.seconds)
    }
}

impl VariantResult {
    /// Returns the error ratio that the variant saves, if it differs in its failures. It is negative if more requests fail.
    fn spared(&self) -> Option<f64> {
        self.error_ratio_difference
            .filter(|_| self.verdict.is_failure_difference())
            .map(|failing| -failing.estimate)
    }

    /// Returns true if the 99th percentile has this verdict. It has none if the variant had too few good responses to measure
    /// times.
    fn tail_is(&self, word: VariantVerdict) -> bool {
        let only_fails = self.verdict.is_failure_difference() && self.time_saved_ratio.is_none();
        self.p99.verdict == word && !only_fails
    }

    fn of(way: VariantStats, design: VariantOrder, finding: &VariantFinding, usual: Option<f64>) -> Self {
        let VariantFinding { middle, tail, failing, .. } = finding;
        let verdict = match word(finding) {
            // Equally slow failures say nothing about response times.
            VariantVerdict::Equal if way.responses == 0 => VariantVerdict::Undecided,
            verdict => verdict,
        };
        // The duration of a request without a response is not a response time.
        let is_timed = way.responses > 0 || verdict.is_difference();
        let time_saved_ratio = finding.gain().filter(|_| is_timed).and_then(ConfidenceInterval::of);
        let tail_gain = tail.gain().filter(|_| is_timed).and_then(ConfidenceInterval::of);
        // Before the first look there is no test, and both p-values are 1.
        let looked = middle.p_difference < 1.0 || middle.p_equivalence < 1.0;
        let seconds = time_saved_ratio.zip(usual).map(|(gain, usual)| gain.times(usual));
        Self {
            stats: way,
            design: design_name(design),
            verdict,
            time_saved_ratio,
            time_saved_seconds: seconds,
            error_ratio_difference: failing.and_then(ConfidenceInterval::of),
            time_buckets: middle.cell_count,
            p_difference: looked.then_some(middle.p_difference),
            p_equivalence: looked.then_some(middle.p_equivalence),
            decided_after_seconds: middle.time_to_decision.map(|after| after.as_secs_f64()),
            estimated_remaining_seconds: more(middle),
            generator_limited_ratio: match middle.verdict {
                MeasureVerdict::Invalid { limited } => Some(limited),
                _ => None,
            },
            p99: TailResult {
                verdict: by_ratio(tail),
                time_saved_ratio: tail_gain,
                estimated_remaining_seconds: more(tail),
            },
        }
    }
}

impl ConfidenceInterval {
    /// Returns the interval, or `None` if there are too few time buckets for any bound.
    fn of(center: LocationEstimate) -> Option<Self> {
        let [lower, upper] = [center.lower, center.upper].map(|end| end.is_finite().then_some(end));
        (lower.is_some() || upper.is_some()).then_some(Self { lower, estimate: center.point, upper })
    }

    fn times(self, factor: f64) -> Self {
        let end = |end: Option<f64>| end.map(|end| end * factor);
        Self { lower: end(self.lower), estimate: self.estimate * factor, upper: end(self.upper) }
    }
}

fn word(finding: &VariantFinding) -> VariantVerdict {
    if !finding.differs_in_failing {
        return match (by_ratio(&finding.middle), by_ratio(&finding.tail)) {
            (VariantVerdict::Faster | VariantVerdict::Slower, _) if !is_apart(&finding.middle) => {
                VariantVerdict::Undecided
            }
            (VariantVerdict::Equal, VariantVerdict::Slower) => VariantVerdict::P99Slower,
            (VariantVerdict::Equal, VariantVerdict::Faster) => VariantVerdict::P99Faster,
            (VariantVerdict::Equal, _) if seems_different(finding) => VariantVerdict::Undecided,
            (middle, _) => middle,
        };
    }
    let more = finding.failing.is_some_and(|failing| failing.point > 0.0);
    if more { VariantVerdict::MoreErrors } else { VariantVerdict::FewerErrors }
}

/// Returns true if the interval of all time buckets still says that the variants differ. An early look may decide that they do,
/// and the buckets after it may say otherwise. (A stop-gap, until a decision is withdrawn where it is made.)
fn is_apart(measured: &MeasureResult) -> bool {
    measured.ratio.is_none_or(|ratio| ratio.lower > 1.0 || ratio.upper < 1.0)
}

/// The ratio of two 99th percentiles from which they are not called equal, even with few responses.
const FAR_APART: f64 = 2.0;

/// Returns true if the 99th percentile or the share of failures seems to differ, although the difference is not decided. (A
/// stop-gap, until equality is decided for all three measures.)
fn seems_different(finding: &VariantFinding) -> bool {
    let excludes = |range: LocationEstimate, equal: f64| range.lower > equal || range.upper < equal;
    let is_far = |ratio: f64| !(1.0 / FAR_APART..=FAR_APART).contains(&ratio);
    let by_tail = finding.tail.ratio.is_some_and(|ratio| excludes(ratio, 1.0) || is_far(ratio.point));
    let is_tail_equal = finding.tail.verdict == MeasureVerdict::Equal;
    (by_tail && !is_tail_equal) || finding.failing.is_some_and(|failing| excludes(failing, 0.0))
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

/// The ratio of a variant's share of unanswered requests to the reference's above which the rate is not the reason.
const MORE: f64 = 10.0;

/// Returns the stop reason as a sentence. `ways` are all variants, the reference first.
fn in_words(cut: &IsolateStopReason, ways: &[&VariantStats]) -> String {
    match cut {
        IsolateStopReason::Stopped => "stopped on request".to_owned(),
        IsolateStopReason::Overloaded(way) => match (ways.get(*way), ways.first()) {
            (Some(way), Some(reference)) if way.leaves_more_than(reference) => {
                let said = |way: &VariantStats| format!("{} of {} requests", way.no_response, way.requests);
                let (name, other) = (&way.name, &reference.name);
                format!(
                    "{name:?} gave no response to {}; {other:?} gave no response to {}",
                    said(way),
                    said(reference)
                )
            }
            (way, _) => {
                let name = way.map_or("?", |way| way.name.as_str());
                format!(
                    "too many requests have no response (as many as are sent in two seconds), and most of these are requests of {name:?}: lower --rate, because this rate is above the limit of {name:?}"
                )
            }
        },
        IsolateStopReason::Failed(why) => format!("cannot send: {why}"),
    }
}

fn isolate_config(plan: &IsolatePlan) -> IsolateConfig {
    let asked = &plan.config;
    let Forecast { center_duration: middle, p99_duration: tail, .. } = asked.forecast();
    IsolateConfig {
        target: plan.target.clone(),
        rate: asked.rate,
        margin: asked.margin,
        until_p99: asked.until_p99,
        budget_seconds: asked.budget.as_secs_f64(),
        seed: asked.seed,
        predicted_duration_seconds: middle.as_secs_f64(),
        predicted_p99_duration_seconds: tail.map(|tail| tail.as_secs_f64()),
    }
}

/// Returns the percentiles of a variant's response times that the report has: enough to draw its curve.
fn percentiles() -> impl Iterator<Item = f64> {
    let whole = (1..=99).map(f64::from);
    whole.chain([99.5, 99.7, 99.8, 99.9, 99.95, 99.99])
}

/// Returns the quantile of a percentile, as the nearest number with few digits: 99.9 becomes 0.999.
fn quantile(percent: f64) -> f64 {
    (100.0 * percent).round() / 10_000.0
}

fn variant_result(
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
        let point = |percent: f64| ResponseTimeQuantile {
            quantile: quantile(percent),
            seconds: seconds(times.quantile(percent / 100.0)),
        };
        percentiles().filter(is_known).map(point).collect()
    });
    VariantStats {
        name: plan.variants[at].name.clone(),
        description: plan.variants[at].description.clone(),
        responses: times.map_or(0, LatencyHistogram::count),
        requests: counts.requests,
        failed: counts.failed,
        no_response: counts.aborted_at_end,
        retried: counts.retried,
        failures: counts.failures_by_reason(),
        response_time_quantiles: curve.unwrap_or_default(),
    }
}

/// Returns the reference's usual time in seconds: the median over its time buckets. It converts ratios to seconds.
fn middle(cells: &[(VariantOrder, &CellStatsByVariant)]) -> Option<f64> {
    let of = |cell: &CellStatsByVariant| {
        cell.first().copied().flatten().and_then(|slot: CellStats| slot.interquartile_geometric_mean)
    };
    let mut middles: Vec<_> = cells.iter().filter_map(|(_, cell)| of(cell)).collect();
    middles.sort_unstable_by(f64::total_cmp);
    seawall_isolate::center::median(&middles)
}

fn rows(cells: &[(VariantOrder, &CellStatsByVariant)]) -> Vec<CellRow> {
    let mut numbers = [0, 0];
    let mut rows = Vec::new();
    for (design, cell) in cells {
        let number = &mut numbers[usize::from(*design == VariantOrder::OneVariantPerBlock)];
        *number += 1;
        let slots = cell.iter().enumerate().filter_map(|(way, slot)| Some((way, (*slot)?)));
        rows.extend(slots.map(|(way, slot)| row(*number, *design, way, slot)));
    }
    rows
}

fn row(cell: usize, design: VariantOrder, way: usize, slot: CellStats) -> CellRow {
    let CellStats {
        requests,
        failed,
        interquartile_geometric_mean: middle,
        tail,
        is_generator_limited: limited,
        ..
    } = slot;
    CellRow {
        time_bucket: cell,
        design: design_name(design),
        variant: way,
        requests,
        failed,
        location_seconds: middle,
        p99_seconds: tail,
        is_generator_limited: limited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::variant_capacity::CapacityReport;

    /// Two keys followed a renamed field without a word in the specification.
    #[test]
    fn a_row_and_a_capacity_report_have_the_keys_that_the_specification_names() {
        let specification = include_str!("../../../../SPECIFICATION.md");
        let empty = CellStats::from_response_times(vec![0.1; 8], 8, 0, false);
        let row = serde_json::to_value(row(1, VariantOrder::OneVariantPerBlock, 2, empty)).unwrap();
        let capacity = serde_json::to_value(CapacityReport::default()).unwrap();
        let named = |line: &str| {
            let line = specification.lines().find(|row| row.starts_with(line)).unwrap().to_owned();
            move |key: &String| line.contains(&format!("`{key}`"))
        };
        for (document, line) in [(row, "| `time_buckets` |"), (capacity, "| `capacity` |")] {
            let keys: Vec<_> = document.as_object().unwrap().keys().cloned().collect();
            assert!(!keys.is_empty() && keys.iter().all(named(line)), "{line} {keys:?}");
        }
    }

    fn measured(verdict: MeasureVerdict, ratio: f64) -> MeasureResult {
        let ratio = Some(LocationEstimate { lower: 0.98 * ratio, point: ratio, upper: 1.02 * ratio });
        MeasureResult {
            verdict,
            ratio,
            cell_count: 20,
            p_difference: 0.5,
            p_equivalence: 0.5,
            time_to_decision: None,
        }
    }

    /// Regression: one of eight servers took ten times as long. The middle stayed the same, so the check passed the slow build.
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
        assert_eq!(said(MeasureVerdict::Equal, (MeasureVerdict::Differs, 6.3)), VariantVerdict::P99Slower);
        assert_eq!(said(MeasureVerdict::Equal, (MeasureVerdict::Differs, 0.2)), VariantVerdict::P99Faster);
        assert_eq!(said(MeasureVerdict::Equal, (open, 1.01)), VariantVerdict::Equal);
        assert_eq!(said(open, (MeasureVerdict::Differs, 6.3)), VariantVerdict::Undecided);
        assert!(VariantVerdict::P99Slower.is_difference() && VariantVerdict::P99Faster.is_difference());
    }

    /// Regression: the report said "Faster by 1.4 % (-1.4 to 7.1 %)" about a build whose slow requests came after the first look.
    #[test]
    fn a_difference_that_later_buckets_contradict_is_undecided() {
        let said = |lower: f64, upper: f64| {
            let ratio = Some(LocationEstimate { lower, point: (lower + upper) / 2.0, upper });
            let middle = MeasureResult { ratio, ..measured(MeasureVerdict::Differs, 1.0) };
            let tail = measured(MeasureVerdict::Undecided { more: None }, 1.0);
            word(&VariantFinding { middle, tail, failing: None, differs_in_failing: false })
        };
        assert_eq!(said(0.93, 1.014), VariantVerdict::Undecided);
        assert_eq!(said(0.93, 0.98), VariantVerdict::Faster);
        assert_eq!(said(1.02, 1.2), VariantVerdict::Slower);
    }

    /// Regression: the report said "not the cause" about a variant with three times the 99th percentile of the reference, and
    /// about one that failed more often.
    #[test]
    fn a_variant_whose_p99_or_failures_seem_to_differ_is_undecided_and_not_equal() {
        let open = MeasureVerdict::Undecided { more: None };
        let said = |tail: MeasureResult, failing: Option<(f64, f64)>| {
            let failing =
                failing.map(|(lower, upper)| LocationEstimate { lower, point: (lower + upper) / 2.0, upper });
            let middle = measured(MeasureVerdict::Equal, 1.0);
            word(&VariantFinding { middle, tail, failing, differs_in_failing: false })
        };
        let wide = |point: f64| {
            let ratio = Some(LocationEstimate { lower: 0.0, point, upper: f64::INFINITY });
            MeasureResult { ratio, ..measured(open, point) }
        };
        assert_eq!(said(wide(1.2), None), VariantVerdict::Equal);
        assert_eq!(said(wide(3.0), None), VariantVerdict::Undecided);
        assert_eq!(said(wide(0.3), None), VariantVerdict::Undecided);
        assert_eq!(said(measured(open, 1.3), None), VariantVerdict::Undecided);
        assert_eq!(said(measured(MeasureVerdict::Equal, 1.1), None), VariantVerdict::Equal);
        assert_eq!(said(wide(1.0), Some((-0.01, 0.02))), VariantVerdict::Equal);
        assert_eq!(said(wide(1.0), Some((0.01, 0.02))), VariantVerdict::Undecided);
    }
}
