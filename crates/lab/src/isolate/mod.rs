//! Runs the experiment of [`seawall_isolate`] on real variants and reports which variant is slower.
//!
//! [`variant_setup`] has the variants. [`local_runner`] runs segments with sessions of the load engine, and [`generator_share`] runs
//! one generator's part of a segment. [`cells`] turns requests into time buckets, [`isolate_report`] makes the report, and
//! [`variant_capacity`] searches the capacity of the variants that differ.
//!
//! A [`StopSwitch`](crate::rig::StopSwitch) of the runner ends the experiment early; the report then covers the measurements so
//! far. This module knows no flags, files or pages. The tool's `isolate` calls it.

pub(crate) mod cells;
pub mod failure_counts;
pub mod generator_share;
pub mod isolate_report;
pub mod local_runner;
pub mod variant_capacity;
pub mod variant_setup;

use std::time::Duration;

use seawall_isolate::cell::CellStatsByVariant;
use seawall_isolate::segment::{MIN_CELL_REQUESTS, Segment, SegmentTimes, VariantOrder};
use seawall_isolate::study::{Study, StudyConfig};
use seawall_load::stats::LatencyHistogram;
use serde::{Deserialize, Serialize};

use self::failure_counts::RequestCounts;
use self::isolate_report::{IsolateOutcome, IsolateReport, ReportedStopReason};
use self::variant_setup::VariantLabel;

/// Runs segments, with sessions of the load engine or on simulated paths.
pub trait VariantRunner {
    /// Runs one segment at this many requests per second.
    fn carry_out(&mut self, segment: &Segment, rate: f64) -> SegmentResult;
}

/// The observations of a segment.
#[derive(Debug, Default)]
pub struct SegmentResult {
    /// The complete time buckets.
    pub cells: Vec<CellStatsByVariant>,
    /// The duration of the segment, including the opening of connections.
    pub took: Duration,
    /// The reason why nothing more is to be sent.
    pub stop_reason: Option<IsolateStopReason>,
    /// The reasons why this machine was the limit, in words; empty if it was not the limit.
    pub generator_limits: Vec<String>,
    /// The response times by variant, the reference first.
    pub response_times: Vec<LatencyHistogram>,
    /// The outcomes of requests, by variant.
    pub counts: Vec<RequestCounts>,
}

impl SegmentResult {
    /// Adds the response times and counts of a later load; time buckets and duration stay.
    pub fn add_times_and_counts(&mut self, other: &Self) {
        let ways = self.response_times.len().max(other.response_times.len());
        self.response_times.resize_with(ways, LatencyHistogram::default);
        self.counts.resize_with(ways, RequestCounts::default);
        self.response_times.iter_mut().zip(&other.response_times).for_each(|(all, one)| all.merge(one));
        self.counts.iter_mut().zip(&other.counts).for_each(|(all, one)| all.merge(one));
    }
}

/// The reason why an experiment ends before it is decided, apart from time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolateStopReason {
    /// The user or a signal stopped the experiment.
    Stopped,
    /// Hundreds of requests were unanswered. This variant left the most and does not sustain the rate.
    Overloaded(usize),
    /// Nothing can be sent, for this reason.
    Failed(String),
}

/// The plan of an experiment.
#[derive(Debug, Clone)]
pub struct IsolatePlan {
    /// The settings of the study.
    pub config: StudyConfig,
    /// The variants, the reference first.
    pub variants: Vec<VariantLabel>,
    /// The target of all variants, without parts that can be secret.
    pub target: String,
}

impl IsolatePlan {
    /// Returns the design of each variant, the reference first. The reference uses the designs of the other variants.
    pub fn designs(&self) -> impl Iterator<Item = VariantOrder> {
        std::iter::once(VariantOrder::Interleaved).chain(self.config.designs.iter().copied())
    }
}

/// The part of a budget that is kept for late responses and slow connections.
const RESERVE: Duration = Duration::from_secs(2);

/// The time for opening connections beyond the planned time, as a share.
const OPENING: f64 = 0.1;

/// Returns the shortest budget with a verdict, in whole seconds.
#[must_use]
pub fn min_budget(asked: &StudyConfig) -> Duration {
    let planned = asked.first_look_time().as_secs_f64() * (1.0 + OPENING) + RESERVE.as_secs_f64();
    Duration::from_secs(planned.ceil() as u64)
}

/// Returns the least requests per second for this many generators and variants, including the reference. Each generator must send
/// every variant in each time bucket, so that differences between generators affect all variants alike.
#[must_use]
pub fn min_rate(ways: usize, generators: usize, times: SegmentTimes) -> f64 {
    // A time bucket with few requests is made longer until it has that many rounds.
    let has_them = generators as f64 <= MIN_CELL_REQUESTS;
    if has_them { 0.0 } else { (ways * generators) as f64 / times.cell.as_secs_f64() }
}

/// The most reasons that are reported. The same reasons recur with other figures.
const MOST_LIMITS: usize = 8;

/// Returns the report of an experiment before anything is sent.
#[must_use]
pub fn empty_report(plan: &IsolatePlan) -> IsolateReport {
    IsolateReport::new(plan, &study(plan), &[], &[], None)
}

fn study(plan: &IsolatePlan) -> Study {
    let budget = plan.config.budget.saturating_sub(RESERVE);
    Study::new(StudyConfig { budget, ..plan.config.clone() })
}

/// Runs the experiment and calls `tell` after each segment. The second argument of `tell` builds the report so far, which takes a
/// moment.
pub fn isolate(
    paths: &mut dyn VariantRunner,
    plan: &IsolatePlan,
    tell: &mut dyn FnMut(&Study, &dyn Fn() -> IsolateReport),
) -> IsolateReport {
    let mut study = study(plan);
    let mut times = vec![LatencyHistogram::default(); plan.variants.len()];
    let mut counts = vec![RequestCounts::default(); plan.variants.len()];
    let (mut cut, mut limits, mut is_own) = (None, Vec::new(), false);
    while let Some(segment) = study.next_segment() {
        let seen = paths.carry_out(&segment, plan.config.rate);
        study.record_segment(&segment, seen.cells, seen.took);
        times.iter_mut().zip(&seen.response_times).for_each(|(all, one)| all.merge(one));
        counts.iter_mut().zip(&seen.counts).for_each(|(all, one)| all.merge(one));
        // The reasons of an earlier segment do not explain what ended this one.
        is_own = !seen.generator_limits.is_empty();
        limits.extend(seen.generator_limits);
        if seen.stop_reason.is_some() {
            cut = seen.stop_reason;
            study.stop();
        }
        tell(&study, &|| IsolateReport {
            generator_warnings: few(limits.clone()),
            ..IsolateReport::new(plan, &study, &times, &counts, cut.as_ref())
        });
    }
    let answer = IsolateReport {
        generator_warnings: few(limits),
        ..IsolateReport::new(plan, &study, &times, &counts, cut.as_ref())
    };
    // Requests that this machine sent late queue at the target without its fault.
    if answer.outcome == IsolateOutcome::Overloaded && is_own {
        let detail =
            "too many requests were in flight (as many as are scheduled in two seconds), because this generator sent requests late".to_owned();
        return IsolateReport {
            outcome: IsolateOutcome::GeneratorLimited,
            stop_reason: Some(ReportedStopReason::GeneratorLimited),
            stop_detail: Some(detail),
            overloaded_variant: None,
            ..answer
        };
    }
    answer
}

fn few(mut limits: Vec<String>) -> Vec<String> {
    limits.truncate(MOST_LIMITS);
    limits
}

/// Returns the name of a design.
#[must_use]
pub fn design_name(design: VariantOrder) -> &'static str {
    match design {
        VariantOrder::Interleaved => "interleaved",
        VariantOrder::OneVariantPerBlock => "blocks",
    }
}
