//! The capacity of variants. After an experiment, this module searches the breaking rate of the reference and of the variants
//! that differ, one after the other.
//!
//! [`CapacitySearches::next_search`] returns the next variant with its plan and budget. [`CapacitySearches::record_finished_search`] takes the
//! result and compares it with the reference. Each search is one of [`crate::find`]. The caller runs it, for real variants with
//! [`LocalVariantRunner::create_variant_search_driver`](super::local_runner::LocalVariantRunner::create_variant_search_driver).

use std::collections::VecDeque;
use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::isolate_report::{IsolateOutcome, IsolateReport, VariantResult, VariantVerdict};
use crate::find::compare::{self, ComparisonVerdict, RunComparison, RunComparisonError};
use crate::find::find_report::{FindOutcome as End, FindReport as Run, FindStopReason};
use crate::find::plan::{FindPlan, MIN_BUDGET as LEAST_OF_SEARCH};

/// The plan of all searches.
#[derive(Debug, Clone)]
pub struct CapacityPlan {
    /// The search of each variant, the reference first. [`CapacitySearches`] sets their budgets.
    pub plans: Vec<FindPlan>,
    /// The budget of the experiment and all searches together.
    pub whole_run_budget: Duration,
    /// True if all variants are searched, whatever their verdicts are.
    pub searches_all: bool,
}

/// The maximum number of variants that are searched besides the reference. Each search takes a minute.
const MOST: usize = 3;
/// The pause between two searches. A target that the previous search overloaded has recovered by then, or will not soon.
const REST: Duration = Duration::from_secs(3);

/// The reason of a variant that was not searched for lack of time.
const NO_TIME: &str = "the budget left no time for this search";
const NO_ROOM: &str = "three other variants differ more from the reference, and --capacity searches at most three variants besides the reference";

/// The shortest budget. A third of it is enough for the first look of an experiment, and the rest for two searches.
pub const MIN_WHOLE_RUN_BUDGET: Duration = Duration::from_secs(75);

/// Returns the part of a budget that the experiment may take. The searches get the rest.
#[must_use]
pub fn study_budget(budget: Duration) -> Duration {
    budget / 3
}

/// Returns the whole budget of which an experiment gets this much.
#[must_use]
pub fn total_budget(experiment: Duration) -> Duration {
    experiment.saturating_mul(3)
}

/// The result of all searches.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CapacityReport {
    /// The variants that were searched, in order. The reference is first.
    pub variants: Vec<VariantCapacity>,
    /// The variants that differ and were not searched.
    pub not_run: Vec<SkippedVariant>,
    /// The reason why nothing was searched, in words. It is `None` if something was.
    pub skipped_because: Option<String>,
}

/// A variant that differs and was not searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedVariant {
    /// The name of the variant.
    pub name: String,
    /// The reason in words.
    pub reason: String,
}

/// The difference between a variant's capacity and the reference's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityVerdict {
    /// The variant breaks at a higher rate.
    More,
    /// The variant breaks at a lower rate, or its target died.
    Less,
}

/// The capacity of one variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantCapacity {
    /// The index of the variant. Index 0 is the reference.
    pub variant: usize,
    /// The name of the variant.
    pub name: String,
    /// The comparison of the variant's limit with the reference's. The reference itself has none.
    #[serde(serialize_with = "vs_reference")]
    pub vs_reference: Option<Result<RunComparison, RunComparisonError>>,
    /// The whole search, as a document of `find`.
    pub find: Run,
}

/// The search that runs next.
#[derive(Debug, Clone, PartialEq)]
pub struct NextSearch {
    /// The index of the variant. Index 0 is the reference.
    pub variant_index: usize,
    /// The name of the variant.
    pub name: String,
    /// The pause before the search, in which nothing is sent.
    pub pause: Duration,
    /// The plan of the search.
    pub plan: FindPlan,
    /// The number of searches that follow.
    pub remaining: usize,
}

/// The searches in progress.
#[derive(Debug, Clone)]
pub struct CapacitySearches {
    plans: Vec<FindPlan>,
    names: Vec<String>,
    due: VecDeque<usize>,
    left: Duration,
    found: CapacityReport,
}

impl CapacitySearches {
    /// Creates the searches that the result of an experiment calls for.
    #[must_use]
    pub fn new(searches: &CapacityPlan, answer: &IsolateReport) -> Self {
        let names = answer.variant_stats().map(|way| way.name.clone()).collect();
        let (plans, left) = (
            searches.plans.clone(),
            searches.whole_run_budget.saturating_sub(Duration::from_secs_f64(answer.duration_seconds)),
        );
        let mut limits = Self { plans, names, due: VecDeque::new(), left, found: CapacityReport::default() };
        match wanted(answer, searches.searches_all) {
            Ok(ways) => limits.take(ways),
            Err(why) => limits.found.skipped_because = Some(why.to_owned()),
        }
        limits
    }

    /// Queues the reference and these variants, as many as the budget has time for.
    fn take(&mut self, mut ways: Vec<usize>) {
        let beyond = ways.split_off(ways.len().min(MOST));
        self.leave_out(beyond, NO_ROOM);
        let is_alone = ways.is_empty();
        self.due = std::iter::once(0).chain(ways).collect();
        self.shorten();
        // The limit of the reference alone has nothing to be compared with.
        if self.due.len() == 1 && !is_alone {
            let reference = std::mem::take(&mut self.due).into();
            self.leave_out(reference, NO_TIME);
        }
    }

    /// Drops the last variants for which the budget has no time.
    fn shorten(&mut self) {
        let mut late = Vec::new();
        while !self.due.is_empty() && self.share() < LEAST_OF_SEARCH {
            late.extend(self.due.pop_back());
        }
        late.reverse();
        self.leave_out(late, NO_TIME);
    }

    fn leave_out(&mut self, ways: Vec<usize>, why: &str) {
        let left_out =
            |way: usize| Some(SkippedVariant { name: self.names.get(way)?.clone(), reason: why.to_owned() });
        self.found.not_run.extend(ways.into_iter().filter_map(left_out));
    }

    /// Returns the budget of each search that is due.
    fn share(&self) -> Duration {
        let rests = self.due.len().saturating_sub(usize::from(self.found.variants.is_empty()));
        let [rests, due] =
            [rests, self.due.len().max(1)].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        self.left.saturating_sub(REST * rests) / due
    }

    /// Returns the search that runs next, or `None` if all are done.
    pub fn next_search(&mut self) -> Option<NextSearch> {
        self.shorten();
        let share = self.share();
        let way = self.due.pop_front()?;
        let rest = if self.found.variants.is_empty() { Duration::ZERO } else { REST };
        let plan = FindPlan { budget: Some(share), ..self.plans.get(way)?.clone() };
        Some(NextSearch {
            variant_index: way,
            name: self.names.get(way)?.clone(),
            pause: rest,
            plan,
            remaining: self.due.len(),
        })
    }

    /// Records the result of a search.
    pub fn record_finished_search(&mut self, next: NextSearch, run: Run) {
        self.left = self.left.saturating_sub(next.pause + Duration::from_secs_f64(run.duration_seconds));
        if run.stop_reason == Some(FindStopReason::Signal) {
            self.end("stopped on request");
        }
        let vs_reference = self
            .found
            .variants
            .first()
            .map(|reference| compare::compare_variant_reports(&reference.find, &run));
        let NextSearch { variant_index: variant, name, .. } = next;
        self.found.variants.push(VariantCapacity { variant, name, vs_reference, find: run });
    }

    /// Records that a search could not run, and why. The searches that are due cannot run either.
    pub fn record_failure(&mut self, next: &NextSearch, why: &str) {
        self.leave_out(vec![next.variant_index], why);
        self.end(why);
    }

    /// Ends all searches for this reason.
    pub fn end(&mut self, why: &str) {
        let due = std::mem::take(&mut self.due).into();
        self.leave_out(due, why);
    }

    /// Returns the result of the searches.
    #[must_use]
    pub fn finish(self) -> CapacityReport {
        self.found
    }
}

impl CapacityReport {
    /// Returns true if a signal or the live page stopped a search.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.variants.iter().any(|way| way.find.stop_reason == Some(FindStopReason::Signal))
    }

    /// Returns true if the capacity of each variant that differs was compared with the reference's.
    #[must_use]
    pub fn is_conclusive(&self) -> bool {
        let is_untold = |way: &VariantCapacity| match &way.vs_reference {
            Some(Ok(compared)) => compared.verdict == ComparisonVerdict::Undecided,
            Some(Err(_)) => true,
            None => false,
        };
        self.skipped_because.is_none() && self.not_run.is_empty() && !self.variants.iter().any(is_untold)
    }

    /// Returns true if at least one variant has a lower capacity than the reference.
    #[must_use]
    pub fn has_lower_capacity(&self) -> bool {
        self.variants.iter().any(|way| self.verdict(way) == Some(CapacityVerdict::Less))
    }

    /// Returns the verdict on a variant's capacity compared with the reference's, if there is one.
    #[must_use]
    pub fn verdict(&self, way: &VariantCapacity) -> Option<CapacityVerdict> {
        let reference = self.variants.first()?;
        match way.vs_reference.as_ref()? {
            Ok(RunComparison { verdict: ComparisonVerdict::Worse, .. }) => Some(CapacityVerdict::Less),
            Ok(RunComparison { verdict: ComparisonVerdict::Better, .. }) => Some(CapacityVerdict::More),
            // A target that dies of a load that the reference survives has no breaking rate to compare.
            Err(_) if way.find.outcome == End::TargetDied && reference.find.outcome != End::TargetDied => {
                Some(CapacityVerdict::Less)
            }
            _ => None,
        }
    }
}

/// Returns the indices of the variants to search, the most important first: the overloaded one, those that differ in their
/// failures, those that differ in their times, and the others if all are searched. If the reference was overloaded, it is
/// searched alone.
fn wanted(answer: &IsolateReport, all: bool) -> Result<Vec<usize>, &'static str> {
    match answer.outcome {
        IsolateOutcome::Interrupted => return Err("the experiment was stopped on request"),
        IsolateOutcome::Failed => return Err("the experiment could not send requests"),
        _ => {}
    }
    let matters = |way: usize, variant: &VariantResult| {
        all || variant.verdict.is_difference() || answer.overloaded_variant == Some(way)
    };
    let ways = answer.variants.iter().enumerate().map(|(at, variant)| (at + 1, variant));
    let mut ways: Vec<_> = ways.filter(|(way, variant)| matters(*way, variant)).collect();
    ways.sort_by(|(way, variant), (other_way, other)| {
        let of = |way: usize, variant: &VariantResult| {
            (answer.overloaded_variant == Some(way), variant.verdict.is_failure_difference())
        };
        let order = of(*other_way, other).cmp(&of(*way, variant));
        order.then_with(|| size(other).total_cmp(&size(variant)))
    });
    if ways.is_empty() && answer.overloaded_variant != Some(0) {
        return Err("the experiment found no variant that differs from the reference");
    }
    Ok(ways.into_iter().map(|(way, _)| way).collect())
}

/// Returns the size of the difference as a ratio, in the quantity that the verdict is about.
fn size(variant: &VariantResult) -> f64 {
    let told = match variant.verdict {
        VariantVerdict::MoreErrors | VariantVerdict::FewerErrors => variant.error_ratio_difference,
        VariantVerdict::P99Faster | VariantVerdict::P99Slower => variant.p99.time_saved_ratio,
        VariantVerdict::Faster | VariantVerdict::Slower => variant.time_saved_ratio,
        VariantVerdict::Equal | VariantVerdict::Undecided | VariantVerdict::Invalid => None,
    };
    told.map_or(0.0, |told| told.estimate.abs())
}

/// Writes `verdict` and the ratio of both breaking rates as `lower`, `estimate` and `upper`, which are null where the highest
/// rate hides them. If the runs cannot be compared, `reason` says why.
#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn vs_reference<S: Serializer>(
    comparison: &Option<Result<RunComparison, RunComparisonError>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let Some(comparison) = comparison else { return to.serialize_none() };
    let mut fields = to.serialize_struct("VsReference", 5)?;
    let (compared, reason) = match comparison {
        Ok(compared) => (Some(compared), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let end = |end: f64| Some(end).filter(|end| end.is_normal());
    let ratio = compared.map(|compared| compared.ratio_interval);
    fields.serialize_field("verdict", compared.map_or("undecided", |compared| slug(compared.verdict)))?;
    fields.serialize_field("lower", &ratio.and_then(|ratio| end(ratio.lower)))?;
    fields.serialize_field("estimate", &ratio.and_then(|ratio| end(ratio.estimate)))?;
    fields.serialize_field("upper", &ratio.and_then(|ratio| end(ratio.upper)))?;
    fields.serialize_field("reason", &reason)?;
    fields.end()
}

fn slug(change: ComparisonVerdict) -> &'static str {
    match change {
        ComparisonVerdict::Better => "better",
        ComparisonVerdict::Same => "same",
        ComparisonVerdict::NotWorse => "not-worse",
        ComparisonVerdict::Worse => "worse",
        ComparisonVerdict::Undecided => "undecided",
    }
}

#[cfg(test)]
mod tests {
    use super::super::isolate_report::{ConfidenceInterval, IsolateConfig, TailResult, VariantStats};
    use super::*;
    use crate::find::find_report::{ConnectionPolicy, ReportedArrivals, ReportedLimit as Cliff};
    use crate::find::plan::TargetInfo;
    use seawall_search::goal::SearchGoal;
    use seawall_search::search_profile::Profile;

    fn way(name: &str) -> VariantStats {
        let (name, what) = (name.to_owned(), String::new());
        VariantStats { name, description: what, ..VariantStats::default() }
    }

    /// Returns a variant with this verdict and a difference of this size.
    fn variant(name: &str, verdict: VariantVerdict, by: f64) -> VariantResult {
        let told = Some(ConfidenceInterval { lower: None, estimate: by, upper: None });
        let tail = TailResult {
            verdict: VariantVerdict::Undecided,
            time_saved_ratio: told,
            estimated_remaining_seconds: None,
        };
        VariantResult {
            stats: way(name),
            design: "interleaved",
            verdict,
            time_saved_ratio: told,
            time_saved_seconds: None,
            error_ratio_difference: told,
            time_buckets: 0,
            p_difference: None,
            p_equivalence: None,
            decided_after_seconds: None,
            estimated_remaining_seconds: None,
            generator_limited_ratio: None,
            p99: tail,
        }
    }

    fn answer(outcome: IsolateOutcome, variants: Vec<VariantResult>) -> IsolateReport {
        let asked = IsolateConfig {
            target: String::new(),
            rate: 200.0,
            margin: 0.05,
            until_p99: false,
            budget_seconds: 120.0,
            seed: 1,
            predicted_duration_seconds: 0.0,
            predicted_p99_duration_seconds: None,
        };
        IsolateReport {
            kind: "isolate",
            version: 1,
            outcome,
            stop_reason: None,
            stop_detail: None,
            overloaded_variant: None,
            generator_warnings: Vec::new(),
            config: asked,
            duration_seconds: 30.0,
            reference: way("reference"),
            variants,
            capacity: None,
            time_buckets: Vec::new(),
        }
    }

    fn plan() -> FindPlan {
        FindPlan {
            goal: SearchGoal::ERRORS_ONLY,
            profile: Profile::QUICK,
            max_rate: Some(5000.0),
            budget: None,
            looks_for_cause: false,
            target_info: TargetInfo {
                url: "http://a/".into(),
                count: 1,
                uses_tls: false,
                has_host_name: false,
            },
            arrivals: ReportedArrivals::Constant,
            connections: ConnectionPolicy {
                keep_alive: true,
                max_connections: None,
                requests_per_connection: None,
                protocol: "http/1.1".into(),
            },
            timeout: None,
            fingerprint: None,
        }
    }

    fn limits(answer: &IsolateReport, budget: u64, all: bool) -> CapacitySearches {
        let plans = vec![plan(); answer.variants.len() + 1];
        CapacitySearches::new(
            &CapacityPlan { plans, whole_run_budget: Duration::from_secs(budget), searches_all: all },
            answer,
        )
    }

    /// Returns a run that found this breaking rate and took this many seconds.
    fn found(cliff: f64, took: f64) -> Run {
        let report = seawall_search::search::RateSearch::new(
            SearchGoal::ERRORS_ONLY,
            Profile::QUICK,
            plan().bounds(None),
        )
        .report();
        let (lower, point, upper) = (Some(0.95 * cliff), Some(cliff), Some(1.05 * cliff));
        let cliff = Cliff { lower, estimate: point, upper, ..Cliff::default() };
        Run {
            outcome: End::Found,
            breaking_rate: cliff,
            duration_seconds: took,
            ..crate::find::report_builder::search_report(&plan(), &report, None)
        }
    }

    /// Runs all searches with this duration each. Returns their names and budgets, and the result.
    fn carried_out(mut limits: CapacitySearches, took: f64) -> (Vec<(String, u64)>, CapacityReport) {
        let mut searched = Vec::new();
        while let Some(next) = limits.next_search() {
            searched.push((next.name.clone(), next.plan.budget.unwrap().as_secs()));
            limits.record_finished_search(next, found(100.0, took));
        }
        (searched, limits.finish())
    }

    #[test]
    fn those_that_matter_are_searched_behind_the_reference_failing_ones_first_and_then_by_how_much_they_differ()
     {
        let ways = vec![
            variant("a little", VariantVerdict::Faster, 0.1),
            variant("equal", VariantVerdict::Equal, 0.01),
            variant("costly", VariantVerdict::Slower, -0.6),
            variant("failing", VariantVerdict::MoreErrors, 0.02),
            variant("in the tail", VariantVerdict::P99Slower, -0.3),
            variant("unknown", VariantVerdict::Undecided, 0.9),
        ];
        let (searched, found) =
            carried_out(limits(&answer(IsolateOutcome::Undecided, ways), 360, false), 60.0);
        let names: Vec<_> = searched.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["reference", "failing", "costly", "in the tail"]);
        let left_out = SkippedVariant { name: "a little".into(), reason: NO_ROOM.into() };
        assert_eq!(found.not_run, [left_out]);
        assert_eq!(found.variants.iter().map(|way| way.variant).collect::<Vec<_>>(), [0, 4, 3, 5]);
        assert!(found.variants[0].vs_reference.is_none() && found.skipped_because.is_none());
    }

    #[test]
    fn a_way_that_did_not_bear_the_rate_is_searched_first_and_the_reference_alone_where_it_was_the_one() {
        let ways = || {
            vec![
                variant("slow", VariantVerdict::Slower, -0.6),
                variant("hung", VariantVerdict::Undecided, 0.0),
            ]
        };
        let of = |overloaded| IsolateReport {
            overloaded_variant: Some(overloaded),
            ..answer(IsolateOutcome::Overloaded, ways())
        };
        let names = |answer: &IsolateReport| {
            let (searched, _) = carried_out(limits(answer, 360, false), 60.0);
            searched.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&of(2)), ["reference", "hung", "slow"]);
        assert_eq!(names(&IsolateReport { variants: Vec::new(), ..of(0) }), ["reference"]);
    }

    #[test]
    fn nothing_is_searched_where_nothing_differs_or_somebody_ended_it_unless_all_ways_matter() {
        let same = || vec![variant("b", VariantVerdict::Equal, 0.0)];
        let nothing = |outcome, all| {
            let (searched, found) = carried_out(limits(&answer(outcome, same()), 360, all), 60.0);
            (searched.len(), found.skipped_because.is_some())
        };
        assert_eq!(nothing(IsolateOutcome::Decided, false), (0, true));
        assert_eq!(nothing(IsolateOutcome::Decided, true), (2, false));
        assert_eq!(nothing(IsolateOutcome::Interrupted, true), (0, true));
        assert_eq!(nothing(IsolateOutcome::Failed, true), (0, true));
    }

    #[test]
    fn searches_share_what_the_experiment_left_and_each_other_leave_and_keep_the_budget() {
        let two =
            || vec![variant("a", VariantVerdict::Faster, 0.3), variant("b", VariantVerdict::Faster, 0.2)];
        // 330 s are left for three searches with two pauses between them. The first one returns most of its share.
        let (searched, _) = carried_out(limits(&answer(IsolateOutcome::Decided, two()), 360, false), 48.0);
        let budgets: Vec<_> = searched.iter().map(|(_, budget)| *budget).collect();
        assert_eq!(budgets, [108, 138, 228]);
        // The experiment took longer than planned, so one of three searches has no time.
        let (searched, found) = carried_out(limits(&answer(IsolateOutcome::Decided, two()), 75, false), 21.0);
        assert_eq!(searched, [("reference".to_owned(), 21), ("a".to_owned(), 21)]);
        assert_eq!(found.not_run, [SkippedVariant { name: "b".into(), reason: NO_TIME.into() }]);
        // The reference alone has nothing to be compared with.
        let (searched, found) = carried_out(limits(&answer(IsolateOutcome::Decided, two()), 60, false), 20.0);
        assert_eq!((searched.len(), found.not_run.len()), (0, 3));
        assert!(MIN_WHOLE_RUN_BUDGET - study_budget(MIN_WHOLE_RUN_BUDGET) >= 2 * LEAST_OF_SEARCH + REST);
    }

    #[test]
    fn a_signal_ends_all_searches_and_what_was_known_is_kept() {
        let two = vec![variant("a", VariantVerdict::Faster, 0.3), variant("b", VariantVerdict::Faster, 0.2)];
        let mut limits = limits(&answer(IsolateOutcome::Decided, two), 360, false);
        let next = limits.next_search().unwrap();
        limits.record_finished_search(
            next,
            Run { stop_reason: Some(FindStopReason::Signal), ..found(100.0, 10.0) },
        );
        assert_eq!(limits.next_search(), None);
        let found = limits.finish();
        assert!(found.is_interrupted() && found.variants.len() == 1 && found.not_run.len() == 2);
    }

    /// Regression: the variant of the failed search was missing in the report, which looked complete.
    #[test]
    fn a_search_that_cannot_begin_leaves_its_way_out_by_name() {
        let two = vec![variant("a", VariantVerdict::Faster, 0.3), variant("b", VariantVerdict::Faster, 0.2)];
        let mut limits = limits(&answer(IsolateOutcome::Decided, two), 360, false);
        let reference = limits.next_search().unwrap();
        limits.record_finished_search(reference, found(100.0, 10.0));
        let next = limits.next_search().unwrap();
        limits.record_failure(&next, "cannot search: no room");
        assert_eq!(limits.next_search(), None);
        let found = limits.finish();
        let left_out = ["a", "b"].map(|name| SkippedVariant {
            name: name.to_owned(),
            reason: "cannot search: no room".to_owned(),
        });
        assert_eq!(found.not_run, left_out);
        assert!(!found.is_conclusive());
    }

    #[test]
    fn a_way_is_held_beside_the_reference_however_it_keeps_its_connections() {
        let two = vec![variant("a", VariantVerdict::Faster, 0.3), variant("b", VariantVerdict::Faster, 0.2)];
        let mut limits = limits(&answer(IsolateOutcome::Decided, two), 360, false);
        for cliff in [100.0, 200.0, 50.0] {
            let next = limits.next_search().unwrap();
            let mut run = found(cliff, 50.0);
            run.config.connections.keep_alive = cliff < 150.0;
            limits.record_finished_search(next, run);
        }
        let found = limits.finish();
        assert!(found.has_lower_capacity() && found.is_conclusive() && !found.is_interrupted());
        let json = serde_json::to_value(&found).unwrap();
        let verdicts: Vec<_> =
            (0..3).map(|at| json["variants"][at]["vs_reference"]["verdict"].as_str()).collect();
        assert_eq!(verdicts, [None, Some("better"), Some("worse")]);
        assert!((json["variants"][1]["vs_reference"]["estimate"].as_f64().unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_compared_says_why_and_what_a_cap_hides_is_null() {
        let one = vec![variant("a", VariantVerdict::Faster, 0.3)];
        let held = |rate| Run {
            outcome: End::NoLimitFound,
            breaking_rate: Cliff { highest_good_rate: Some(rate), ..Cliff::default() },
            ..found(100.0, 50.0)
        };
        let unstable =
            Run { outcome: End::UnstableBaseline, breaking_rate: Cliff::default(), ..found(100.0, 50.0) };
        let compared = |run: Run| {
            let mut limits = limits(&answer(IsolateOutcome::Decided, one.clone()), 360, false);
            for run in [found(100.0, 50.0), run] {
                let next = limits.next_search().unwrap();
                limits.record_finished_search(next, run);
            }
            let found = limits.finish();
            (
                found.is_conclusive(),
                serde_json::to_value(found).unwrap()["variants"][1]["vs_reference"].clone(),
            )
        };
        let (is_told, capped) = compared(held(1000.0));
        assert!(is_told, "{capped}");
        assert_eq!((&capped["verdict"], &capped["upper"]), (&"better".into(), &serde_json::Value::Null));
        assert!(capped["lower"].as_f64().unwrap() > 1.0);
        let (is_told, untold) = compared(unstable);
        assert!(!is_told, "{untold}");
        assert_eq!(untold["verdict"], "undecided");
        assert!(untold["reason"].as_str().unwrap().contains("found neither a breaking rate"));
    }
}
