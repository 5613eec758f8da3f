//! What the ways that matter bear: once an experiment has ended, the reference and the ways that differ from it are searched for the rate
//! at which they break, one after the other.
//!
//! Says which way is searched next, by which plan and how long ([`CapacitySearches::next_search`]), is told what came of it ([`CapacitySearches::record`]) and holds it
//! beside the reference. A search is that of [`crate::find`]; what it is carried out on is the caller's, of real ways [`LocalVariantRunner::driver`](super::bench::LocalVariantRunner::driver).

use std::collections::VecDeque;
use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::answer::{IsolateOutcome, IsolateReport, VariantResult, VariantVerdict};
use crate::find::answer::{FindOutcome as End, FindReport as Run, FindStopReason};
use crate::find::compare::{self, ComparisonVerdict, RunComparison, RunComparisonError};
use crate::find::plan::{FindPlan, MIN_BUDGET as LEAST_OF_SEARCH};

/// What the searches are to do.
#[derive(Debug, Clone)]
pub struct CapacityPlan {
    /// The search of each way, the reference first. Their budgets are shared out here.
    pub plans: Vec<FindPlan>,
    /// Time for everything together, the experiment included.
    pub budget: Duration,
    /// All ways matter, whatever the experiment says of them.
    pub searches_all: bool,
}

/// Ways that are searched beside the reference at most: each takes a minute.
const MOST: usize = 3;
/// Silence between two searches, after which a target that the one before has overloaded has come to itself, or will not soon.
const REST: Duration = Duration::from_secs(3);

/// Why a way was not searched.
const NO_TIME: &str = "the budget had no time for it";
const NO_ROOM: &str = "three ways are searched beside the reference, and these differ more";

/// Shortest budget: a third is enough for the first look of an experiment, and the rest for two searches.
pub const MIN_BUDGET: Duration = Duration::from_secs(75);

/// What of such a budget is the experiment's at most: what it leaves of that is the searches', too.
#[must_use]
pub fn study_budget(budget: Duration) -> Duration {
    budget / 3
}

/// The budget of which so much is the experiment's.
#[must_use]
pub fn total_budget(experiment: Duration) -> Duration {
    experiment.saturating_mul(3)
}

/// What the searches came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CapacityReport {
    /// What was searched, in order: the reference first.
    pub ways: Vec<VariantCapacity>,
    /// Those that matter and were not searched.
    pub left_out: Vec<SkippedVariant>,
    /// Why there was nothing to search, in words; none: there was.
    pub nothing: Option<String>,
}

/// A way that matters and was not searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedVariant {
    /// What it is called.
    pub name: String,
    /// Why, in words.
    pub why: String,
}

/// What a way bears beside the reference, where that is told to differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityVerdict {
    /// It breaks at a higher rate.
    More,
    /// It breaks at a lower rate, or died.
    Less,
}

/// What a way bears.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantCapacity {
    /// Place of the way; 0 is the reference.
    pub way: usize,
    /// What it is called.
    pub name: String,
    /// Its limit beside the reference's; none of the reference.
    #[serde(serialize_with = "beside")]
    pub beside: Option<Result<RunComparison, RunComparisonError>>,
    /// The whole search.
    pub run: Run,
}

/// A search that is due.
#[derive(Debug, Clone, PartialEq)]
pub struct NextSearch {
    /// Place of the way; 0 is the reference.
    pub variant: usize,
    /// What it is called.
    pub name: String,
    /// How long nothing is sent before it.
    pub pause: Duration,
    /// The search.
    pub plan: FindPlan,
    /// How many are to follow it.
    pub remaining: usize,
}

/// Searches under way.
#[derive(Debug, Clone)]
pub struct CapacitySearches {
    plans: Vec<FindPlan>,
    names: Vec<String>,
    due: VecDeque<usize>,
    left: Duration,
    found: CapacityReport,
}

impl CapacitySearches {
    /// Those that an experiment calls for.
    #[must_use]
    pub fn new(searches: &CapacityPlan, answer: &IsolateReport) -> Self {
        let names = answer.variant_stats().map(|way| way.name.clone()).collect();
        let (plans, left) =
            (searches.plans.clone(), searches.budget.saturating_sub(Duration::from_secs_f64(answer.took)));
        let mut limits = Self { plans, names, due: VecDeque::new(), left, found: CapacityReport::default() };
        match wanted(answer, searches.searches_all) {
            Ok(ways) => limits.take(ways),
            Err(why) => limits.found.nothing = Some(why.to_owned()),
        }
        limits
    }

    /// The reference and these, as many as there is time for.
    fn take(&mut self, mut ways: Vec<usize>) {
        let beyond = ways.split_off(ways.len().min(MOST));
        self.leave_out(beyond, NO_ROOM);
        let is_alone = ways.is_empty();
        self.due = std::iter::once(0).chain(ways).collect();
        self.shorten();
        // A limit that there is none to hold beside says nothing of ways.
        if self.due.len() == 1 && !is_alone {
            let reference = std::mem::take(&mut self.due).into();
            self.leave_out(reference, NO_TIME);
        }
    }

    /// Leaves out the last ones for which there is no time.
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
            |way: usize| Some(SkippedVariant { name: self.names.get(way)?.clone(), why: why.to_owned() });
        self.found.left_out.extend(ways.into_iter().filter_map(left_out));
    }

    /// What each of those that are due may take.
    fn share(&self) -> Duration {
        let rests = self.due.len().saturating_sub(usize::from(self.found.ways.is_empty()));
        let [rests, due] =
            [rests, self.due.len().max(1)].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        self.left.saturating_sub(REST * rests) / due
    }

    /// What is to be searched next; none: nothing.
    pub fn next_search(&mut self) -> Option<NextSearch> {
        self.shorten();
        let share = self.share();
        let way = self.due.pop_front()?;
        let rest = if self.found.ways.is_empty() { Duration::ZERO } else { REST };
        let plan = FindPlan { budget: Some(share), ..self.plans.get(way)?.clone() };
        Some(NextSearch {
            variant: way,
            name: self.names.get(way)?.clone(),
            pause: rest,
            plan,
            remaining: self.due.len(),
        })
    }

    /// What came of it.
    pub fn record(&mut self, next: NextSearch, run: Run) {
        self.left = self.left.saturating_sub(next.pause + Duration::from_secs_f64(run.took));
        if run.cut == Some(FindStopReason::Signal) {
            self.end("ended on request");
        }
        let beside = self.found.ways.first().map(|reference| compare::compare_variants(&reference.run, &run));
        self.found.ways.push(VariantCapacity { way: next.variant, name: next.name, beside, run });
    }

    /// It could not be carried out, and why: neither can those that are due.
    pub fn record_failure(&mut self, next: &NextSearch, why: &str) {
        self.leave_out(vec![next.variant], why);
        self.end(why);
    }

    /// Searches no more, and says why.
    pub fn end(&mut self, why: &str) {
        let due = std::mem::take(&mut self.due).into();
        self.leave_out(due, why);
    }

    /// What they came to.
    #[must_use]
    pub fn finish(self) -> CapacityReport {
        self.found
    }
}

impl CapacityReport {
    /// Whether somebody ended a search.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.ways.iter().any(|way| way.run.cut == Some(FindStopReason::Signal))
    }

    /// Whether it is told of all ways that matter what they bear beside the reference.
    #[must_use]
    pub fn is_conclusive(&self) -> bool {
        let is_untold = |way: &VariantCapacity| match &way.beside {
            Some(Ok(compared)) => compared.change == ComparisonVerdict::CannotTell,
            Some(Err(_)) => true,
            None => false,
        };
        self.nothing.is_none() && self.left_out.is_empty() && !self.ways.iter().any(is_untold)
    }

    /// Whether any way bears less than the reference.
    #[must_use]
    pub fn has_lower_capacity(&self) -> bool {
        self.ways.iter().any(|way| self.verdict(way) == Some(CapacityVerdict::Less))
    }

    /// What is told of a way beside the reference, if anything is.
    #[must_use]
    pub fn verdict(&self, way: &VariantCapacity) -> Option<CapacityVerdict> {
        let reference = self.ways.first()?;
        match way.beside.as_ref()? {
            Ok(RunComparison { change: ComparisonVerdict::Worse, .. }) => Some(CapacityVerdict::Less),
            Ok(RunComparison { change: ComparisonVerdict::Better, .. }) => Some(CapacityVerdict::More),
            // Whoever dies of what the reference lives through has no cliff to compare.
            Err(_) if way.run.outcome == End::Gone && reference.run.outcome != End::Gone => {
                Some(CapacityVerdict::Less)
            }
            _ => None,
        }
    }
}

/// Places of the ways that matter, the one that does most first: who was left unanswered, who fails, who costs or saves, and the others if all
/// matter. Of an experiment in which the reference did not bear the rate it is searched alone.
fn wanted(answer: &IsolateReport, all: bool) -> Result<Vec<usize>, &'static str> {
    match answer.outcome {
        IsolateOutcome::Interrupted => return Err("the experiment was ended on request"),
        IsolateOutcome::Failed => return Err("nothing could be sent"),
        _ => {}
    }
    let matters = |way: usize, variant: &VariantResult| {
        all || variant.verdict.is_difference() || answer.overloaded == Some(way)
    };
    let ways = answer.variants.iter().enumerate().map(|(at, variant)| (at + 1, variant));
    let mut ways: Vec<_> = ways.filter(|(way, variant)| matters(*way, variant)).collect();
    ways.sort_by(|(way, variant), (other_way, other)| {
        let of = |way: usize, variant: &VariantResult| {
            (answer.overloaded == Some(way), variant.verdict.is_failure_difference())
        };
        let order = of(*other_way, other).cmp(&of(*way, variant));
        order.then_with(|| size(other).total_cmp(&size(variant)))
    });
    if ways.is_empty() && answer.overloaded != Some(0) {
        return Err("no way is known to differ from the reference");
    }
    Ok(ways.into_iter().map(|(way, _)| way).collect())
}

/// How much it differs, a share, by what its verdict is of.
fn size(variant: &VariantResult) -> f64 {
    let told = match variant.verdict {
        VariantVerdict::FailsMore | VariantVerdict::FailsLess => variant.failing,
        VariantVerdict::TailFaster | VariantVerdict::TailSlower => variant.tail.gain,
        VariantVerdict::Faster | VariantVerdict::Slower => variant.gain,
        VariantVerdict::Equal | VariantVerdict::Undecided | VariantVerdict::Invalid => None,
    };
    told.map_or(0.0, |told| told.point.abs())
}

/// `verdict`, and by how much as a ratio of both cliffs: `lower`, `point` and `upper`, null where a cap hides them; or `why` it cannot be told.
#[expect(clippy::ref_option, reason = "serde hands it over so")]
fn beside<S: Serializer>(
    beside: &Option<Result<RunComparison, RunComparisonError>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let Some(beside) = beside else { return to.serialize_none() };
    let mut fields = to.serialize_struct("Beside", 5)?;
    let (compared, why) = match beside {
        Ok(compared) => (Some(compared), None),
        Err(why) => (None, Some(why.to_string())),
    };
    let end = |end: f64| Some(end).filter(|end| end.is_normal());
    let ratio = compared.map(|compared| compared.ratio);
    fields.serialize_field("verdict", compared.map_or("cannot-tell", |compared| slug(compared.change)))?;
    fields.serialize_field("lower", &ratio.and_then(|ratio| end(ratio.lower)))?;
    fields.serialize_field("point", &ratio.and_then(|ratio| end(ratio.estimate)))?;
    fields.serialize_field("upper", &ratio.and_then(|ratio| end(ratio.upper)))?;
    fields.serialize_field("why", &why)?;
    fields.end()
}

fn slug(change: ComparisonVerdict) -> &'static str {
    match change {
        ComparisonVerdict::Better => "better",
        ComparisonVerdict::Same => "same",
        ComparisonVerdict::NotWorse => "not-worse",
        ComparisonVerdict::Worse => "worse",
        ComparisonVerdict::CannotTell => "cannot-tell",
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::{ConfidenceInterval, IsolateConfig, TailResult, VariantStats};
    use super::*;
    use crate::find::answer::{ConnectionPolicy, ReportedArrivals, ReportedLimit as Cliff};
    use crate::find::plan::TargetInfo;
    use seawall_search::goal::SearchGoal;
    use seawall_search::profile::Profile;

    fn way(name: &str) -> VariantStats {
        let (name, what) = (name.to_owned(), String::new());
        VariantStats { name, what, ..VariantStats::default() }
    }

    /// A way of which this is said, by so much.
    fn variant(name: &str, verdict: VariantVerdict, by: f64) -> VariantResult {
        let told = Some(ConfidenceInterval { lower: None, point: by, upper: None });
        let tail = TailResult { verdict: VariantVerdict::Undecided, gain: told, more: None };
        VariantResult {
            way: way(name),
            design: "interleaved",
            verdict,
            gain: told,
            gain_seconds: None,
            failing: told,
            cells: 0,
            p_difference: None,
            p_equality: None,
            decided_after: None,
            more: None,
            limited: None,
            tail,
        }
    }

    fn answer(outcome: IsolateOutcome, variants: Vec<VariantResult>) -> IsolateReport {
        let asked = IsolateConfig {
            target: String::new(),
            rate: 200.0,
            margin: 0.05,
            tail: false,
            budget: 120.0,
            seed: 1,
            foretold: 0.0,
            foretold_tail: None,
        };
        IsolateReport {
            schema: 1,
            outcome,
            cut: None,
            overloaded: None,
            generator: Vec::new(),
            asked,
            took: 30.0,
            reference: way("reference"),
            variants,
            find: None,
            cells: Vec::new(),
        }
    }

    fn plan() -> FindPlan {
        FindPlan {
            goal: SearchGoal::CLIFF,
            profile: Profile::QUICK,
            max_rate: Some(5000.0),
            budget: None,
            looks_for_cause: false,
            target: TargetInfo { url: "http://a/".into(), count: 1, uses_tls: false, has_host_name: false },
            arrivals: ReportedArrivals::Even,
            connections: ConnectionPolicy {
                keep_alive: true,
                most: None,
                requests: None,
                protocol: "http/1.1".into(),
            },
            timeout: None,
            fingerprint: None,
        }
    }

    fn limits(answer: &IsolateReport, budget: u64, all: bool) -> CapacitySearches {
        let plans = vec![plan(); answer.variants.len() + 1];
        CapacitySearches::new(
            &CapacityPlan { plans, budget: Duration::from_secs(budget), searches_all: all },
            answer,
        )
    }

    /// A run that found its cliff there, in so much time.
    fn found(cliff: f64, took: f64) -> Run {
        let report =
            seawall_search::search::RateSearch::new(SearchGoal::CLIFF, Profile::QUICK, plan().bounds(None))
                .report();
        let (lower, point, upper) = (Some(0.95 * cliff), Some(cliff), Some(1.05 * cliff));
        let cliff = Cliff { lower, point, upper, ..Cliff::default() };
        Run { outcome: End::Found, cliff, took, ..crate::find::told::search_report(&plan(), &report, None) }
    }

    /// Names of those that are searched, each for so long, with the budget of each.
    fn carried_out(mut limits: CapacitySearches, took: f64) -> (Vec<(String, u64)>, CapacityReport) {
        let mut searched = Vec::new();
        while let Some(next) = limits.next_search() {
            searched.push((next.name.clone(), next.plan.budget.unwrap().as_secs()));
            limits.record(next, found(100.0, took));
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
            variant("failing", VariantVerdict::FailsMore, 0.02),
            variant("in the tail", VariantVerdict::TailSlower, -0.3),
            variant("unknown", VariantVerdict::Undecided, 0.9),
        ];
        let (searched, found) =
            carried_out(limits(&answer(IsolateOutcome::Undecided, ways), 360, false), 60.0);
        let names: Vec<_> = searched.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["reference", "failing", "costly", "in the tail"]);
        let left_out = SkippedVariant { name: "a little".into(), why: NO_ROOM.into() };
        assert_eq!(found.left_out, [left_out]);
        assert_eq!(found.ways.iter().map(|way| way.way).collect::<Vec<_>>(), [0, 4, 3, 5]);
        assert!(found.ways[0].beside.is_none() && found.nothing.is_none());
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
            overloaded: Some(overloaded),
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
            (searched.len(), found.nothing.is_some())
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
        // 330 s are left for three with two rests between them; the first gives back most of its share.
        let (searched, _) = carried_out(limits(&answer(IsolateOutcome::Decided, two()), 360, false), 48.0);
        let budgets: Vec<_> = searched.iter().map(|(_, budget)| *budget).collect();
        assert_eq!(budgets, [108, 138, 228]);
        // The experiment took longer than it was to: one of three has no time.
        let (searched, found) = carried_out(limits(&answer(IsolateOutcome::Decided, two()), 75, false), 21.0);
        assert_eq!(searched, [("reference".to_owned(), 21), ("a".to_owned(), 21)]);
        assert_eq!(found.left_out, [SkippedVariant { name: "b".into(), why: NO_TIME.into() }]);
        // The reference alone is nothing to hold a way beside.
        let (searched, found) = carried_out(limits(&answer(IsolateOutcome::Decided, two()), 60, false), 20.0);
        assert_eq!((searched.len(), found.left_out.len()), (0, 3));
        assert!(MIN_BUDGET - study_budget(MIN_BUDGET) >= 2 * LEAST_OF_SEARCH + REST);
    }

    #[test]
    fn a_signal_ends_all_searches_and_what_was_known_is_kept() {
        let two = vec![variant("a", VariantVerdict::Faster, 0.3), variant("b", VariantVerdict::Faster, 0.2)];
        let mut limits = limits(&answer(IsolateOutcome::Decided, two), 360, false);
        let next = limits.next_search().unwrap();
        limits.record(next, Run { cut: Some(FindStopReason::Signal), ..found(100.0, 10.0) });
        assert_eq!(limits.next_search(), None);
        let found = limits.finish();
        assert!(found.is_interrupted() && found.ways.len() == 1 && found.left_out.len() == 2);
    }

    /// It vanished, and what nobody had searched was all told.
    #[test]
    fn a_search_that_cannot_begin_leaves_its_way_out_by_name() {
        let two = vec![variant("a", VariantVerdict::Faster, 0.3), variant("b", VariantVerdict::Faster, 0.2)];
        let mut limits = limits(&answer(IsolateOutcome::Decided, two), 360, false);
        let reference = limits.next_search().unwrap();
        limits.record(reference, found(100.0, 10.0));
        let next = limits.next_search().unwrap();
        limits.record_failure(&next, "cannot search: no room");
        assert_eq!(limits.next_search(), None);
        let found = limits.finish();
        let left_out = ["a", "b"]
            .map(|name| SkippedVariant { name: name.to_owned(), why: "cannot search: no room".to_owned() });
        assert_eq!(found.left_out, left_out);
        assert!(!found.is_conclusive());
    }

    #[test]
    fn a_way_is_held_beside_the_reference_however_it_keeps_its_connections() {
        let two = vec![variant("a", VariantVerdict::Faster, 0.3), variant("b", VariantVerdict::Faster, 0.2)];
        let mut limits = limits(&answer(IsolateOutcome::Decided, two), 360, false);
        for cliff in [100.0, 200.0, 50.0] {
            let next = limits.next_search().unwrap();
            let mut run = found(cliff, 50.0);
            run.asked.connections.keep_alive = cliff < 150.0;
            limits.record(next, run);
        }
        let found = limits.finish();
        assert!(found.has_lower_capacity() && found.is_conclusive() && !found.is_interrupted());
        let json = serde_json::to_value(&found).unwrap();
        let verdicts: Vec<_> = (0..3).map(|at| json["ways"][at]["beside"]["verdict"].as_str()).collect();
        assert_eq!(verdicts, [None, Some("better"), Some("worse")]);
        assert!((json["ways"][1]["beside"]["point"].as_f64().unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_compared_says_why_and_what_a_cap_hides_is_null() {
        let one = vec![variant("a", VariantVerdict::Faster, 0.3)];
        let held = |rate| Run {
            outcome: End::Capped,
            cliff: Cliff { good: Some(rate), ..Cliff::default() },
            ..found(100.0, 50.0)
        };
        let unstable = Run { outcome: End::UnstableBaseline, cliff: Cliff::default(), ..found(100.0, 50.0) };
        let beside = |run: Run| {
            let mut limits = limits(&answer(IsolateOutcome::Decided, one.clone()), 360, false);
            for run in [found(100.0, 50.0), run] {
                let next = limits.next_search().unwrap();
                limits.record(next, run);
            }
            let found = limits.finish();
            (found.is_conclusive(), serde_json::to_value(found).unwrap()["ways"][1]["beside"].clone())
        };
        let (is_told, capped) = beside(held(1000.0));
        assert!(is_told, "{capped}");
        assert_eq!((&capped["verdict"], &capped["upper"]), (&"better".into(), &serde_json::Value::Null));
        assert!(capped["lower"].as_f64().unwrap() > 1.0);
        let (is_told, untold) = beside(unstable);
        assert!(!is_told, "{untold}");
        assert_eq!(untold["verdict"], "cannot-tell");
        assert!(untold["why"].as_str().unwrap().contains("found no cliff"));
    }
}
