//! What the ways that matter bear: once an experiment has ended, the reference and the ways that differ from it are searched for the rate
//! at which they break, one after the other.
//!
//! Says which way is searched next, by which plan and how long ([`Limits::next_search`]), is told what came of it ([`Limits::saw`]) and holds it
//! beside the reference. A search is that of [`crate::find`]; what it is carried out on is the caller's, of real ways [`Bench::rig`](super::bench::Bench::rig).

use std::collections::VecDeque;
use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::answer::{Answer, Outcome, Variant, Word};
use crate::find::answer::{Answer as Run, Cut, Outcome as End};
use crate::find::compare::{self, Change, Compared, Unlike};
use crate::find::plan::{LEAST as LEAST_OF_SEARCH, Plan};

/// What the searches are to do.
#[derive(Debug, Clone)]
pub struct Searches {
    /// The search of each way, the reference first. Their budgets are shared out here.
    pub plans: Vec<Plan>,
    /// Time for everything together, the experiment included.
    pub budget: Duration,
    /// All ways matter, whatever the experiment says of them.
    pub all: bool,
}

/// Ways that are searched beside the reference at most: each takes a minute.
const MOST: usize = 3;
/// Silence between two searches, after which a target that the one before has overloaded has come to itself, or will not soon.
const REST: Duration = Duration::from_secs(3);

/// Why a way was not searched.
const NO_TIME: &str = "the budget had no time for it";
const NO_ROOM: &str = "three ways are searched beside the reference, and these differ more";

/// Shortest budget: a third is enough for the first look of an experiment, and the rest for two searches.
pub const LEAST: Duration = Duration::from_secs(75);

/// What of such a budget is the experiment's at most: what it leaves of that is the searches', too.
#[must_use]
pub fn for_experiment(budget: Duration) -> Duration {
    budget / 3
}

/// The budget of which so much is the experiment's.
#[must_use]
pub fn for_whole(experiment: Duration) -> Duration {
    experiment.saturating_mul(3)
}

/// What the searches came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Found {
    /// What was searched, in order: the reference first.
    pub ways: Vec<Limit>,
    /// Those that matter and were not searched.
    pub left_out: Vec<LeftOut>,
    /// Why there was nothing to search, in words; none: there was.
    pub nothing: Option<String>,
}

/// A way that matters and was not searched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// What it is called.
    pub name: String,
    /// Why, in words.
    pub why: String,
}

/// What a way bears beside the reference, where that is told to differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tells {
    /// It breaks at a higher rate.
    More,
    /// It breaks at a lower rate, or died.
    Less,
}

/// What a way bears.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// Place of the way; 0 is the reference.
    pub way: usize,
    /// What it is called.
    pub name: String,
    /// Its limit beside the reference's; none of the reference.
    #[serde(serialize_with = "beside")]
    pub beside: Option<Result<Compared, Unlike>>,
    /// The whole search.
    pub run: Run,
}

/// A search that is due.
#[derive(Debug, Clone, PartialEq)]
pub struct Next {
    /// Place of the way; 0 is the reference.
    pub way: usize,
    /// What it is called.
    pub name: String,
    /// How long nothing is sent before it.
    pub rest: Duration,
    /// The search.
    pub plan: Plan,
    /// How many are to follow it.
    pub more: usize,
}

/// Searches under way.
#[derive(Debug, Clone)]
pub struct Limits {
    plans: Vec<Plan>,
    names: Vec<String>,
    due: VecDeque<usize>,
    left: Duration,
    found: Found,
}

impl Limits {
    /// Those that an experiment calls for.
    #[must_use]
    pub fn new(searches: &Searches, answer: &Answer) -> Self {
        let names = answer.ways().map(|way| way.name.clone()).collect();
        let (plans, left) =
            (searches.plans.clone(), searches.budget.saturating_sub(Duration::from_secs_f64(answer.took)));
        let mut limits = Self { plans, names, due: VecDeque::new(), left, found: Found::default() };
        match wanted(answer, searches.all) {
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
        let left_out = |way: usize| Some(LeftOut { name: self.names.get(way)?.clone(), why: why.to_owned() });
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
    pub fn next_search(&mut self) -> Option<Next> {
        self.shorten();
        let share = self.share();
        let way = self.due.pop_front()?;
        let rest = if self.found.ways.is_empty() { Duration::ZERO } else { REST };
        let plan = Plan { budget: Some(share), ..self.plans.get(way)?.clone() };
        Some(Next { way, name: self.names.get(way)?.clone(), rest, plan, more: self.due.len() })
    }

    /// What came of it.
    pub fn saw(&mut self, next: Next, run: Run) {
        self.left = self.left.saturating_sub(next.rest + Duration::from_secs_f64(run.took));
        if run.cut == Some(Cut::Signal) {
            self.end("ended on request");
        }
        let beside = self.found.ways.first().map(|reference| compare::ways(&reference.run, &run));
        self.found.ways.push(Limit { way: next.way, name: next.name, beside, run });
    }

    /// It could not be carried out, and why: neither can those that are due.
    pub fn failed(&mut self, next: &Next, why: &str) {
        self.leave_out(vec![next.way], why);
        self.end(why);
    }

    /// Searches no more, and says why.
    pub fn end(&mut self, why: &str) {
        let due = std::mem::take(&mut self.due).into();
        self.leave_out(due, why);
    }

    /// What they came to.
    #[must_use]
    pub fn found(self) -> Found {
        self.found
    }
}

impl Found {
    /// Whether somebody ended a search.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.ways.iter().any(|way| way.run.cut == Some(Cut::Signal))
    }

    /// Whether it is told of all ways that matter what they bear beside the reference.
    #[must_use]
    pub fn is_told(&self) -> bool {
        let is_untold = |way: &Limit| match &way.beside {
            Some(Ok(compared)) => compared.change == Change::CannotTell,
            Some(Err(_)) => true,
            None => false,
        };
        self.nothing.is_none() && self.left_out.is_empty() && !self.ways.iter().any(is_untold)
    }

    /// Whether any way bears less than the reference.
    #[must_use]
    pub fn has_worse(&self) -> bool {
        self.ways.iter().any(|way| self.tells(way) == Some(Tells::Less))
    }

    /// What is told of a way beside the reference, if anything is.
    #[must_use]
    pub fn tells(&self, way: &Limit) -> Option<Tells> {
        let reference = self.ways.first()?;
        match way.beside.as_ref()? {
            Ok(Compared { change: Change::Worse, .. }) => Some(Tells::Less),
            Ok(Compared { change: Change::Better, .. }) => Some(Tells::More),
            // Whoever dies of what the reference lives through has no cliff to compare.
            Err(_) if way.run.outcome == End::Gone && reference.run.outcome != End::Gone => Some(Tells::Less),
            _ => None,
        }
    }
}

/// Places of the ways that matter, the one that does most first: who was left unanswered, who fails, who costs or saves, and the others if all
/// matter. Of an experiment in which the reference did not bear the rate it is searched alone.
fn wanted(answer: &Answer, all: bool) -> Result<Vec<usize>, &'static str> {
    match answer.outcome {
        Outcome::Interrupted => return Err("the experiment was ended on request"),
        Outcome::Failed => return Err("nothing could be sent"),
        _ => {}
    }
    let matters = |way: usize, variant: &Variant| {
        all || variant.verdict.is_difference() || answer.overloaded == Some(way)
    };
    let ways = answer.variants.iter().enumerate().map(|(at, variant)| (at + 1, variant));
    let mut ways: Vec<_> = ways.filter(|(way, variant)| matters(*way, variant)).collect();
    ways.sort_by(|(way, variant), (other_way, other)| {
        let of = |way: usize, variant: &Variant| {
            (answer.overloaded == Some(way), variant.verdict.is_of_failures())
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
fn size(variant: &Variant) -> f64 {
    let told = match variant.verdict {
        Word::FailsMore | Word::FailsLess => variant.failing,
        Word::TailFaster | Word::TailSlower => variant.tail.gain,
        Word::Faster | Word::Slower => variant.gain,
        Word::Equal | Word::Undecided | Word::Invalid => None,
    };
    told.map_or(0.0, |told| told.point.abs())
}

/// `verdict`, and by how much as a ratio of both cliffs: `lower`, `point` and `upper`, null where a cap hides them; or `why` it cannot be told.
#[expect(clippy::ref_option, reason = "serde hands it over so")]
fn beside<S: Serializer>(beside: &Option<Result<Compared, Unlike>>, to: S) -> Result<S::Ok, S::Error> {
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
    fields.serialize_field("point", &ratio.and_then(|ratio| end(ratio.point)))?;
    fields.serialize_field("upper", &ratio.and_then(|ratio| end(ratio.upper)))?;
    fields.serialize_field("why", &why)?;
    fields.end()
}

fn slug(change: Change) -> &'static str {
    match change {
        Change::Better => "better",
        Change::Same => "same",
        Change::NotWorse => "not-worse",
        Change::Worse => "worse",
        Change::CannotTell => "cannot-tell",
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::{Interval, Tail, Told, Way};
    use super::*;
    use crate::find::answer::{Arrivals, Connections, Limit as Cliff};
    use crate::find::plan::Target;
    use seawall_search::goal::Goal;
    use seawall_search::profile::Profile;

    fn way(name: &str) -> Way {
        let (name, what) = (name.to_owned(), String::new());
        Way { name, what, ..Way::default() }
    }

    /// A way of which this is said, by so much.
    fn variant(name: &str, verdict: Word, by: f64) -> Variant {
        let told = Some(Interval { lower: None, point: by, upper: None });
        let tail = Tail { verdict: Word::Undecided, gain: told, more: None };
        Variant {
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

    fn answer(outcome: Outcome, variants: Vec<Variant>) -> Answer {
        let asked = Told {
            target: String::new(),
            rate: 200.0,
            margin: 0.05,
            tail: false,
            budget: 120.0,
            seed: 1,
            foretold: 0.0,
            foretold_tail: None,
        };
        Answer {
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

    fn plan() -> Plan {
        Plan {
            goal: Goal::CLIFF,
            profile: Profile::QUICK,
            max_rate: Some(5000.0),
            budget: None,
            cause: false,
            target: Target { url: "http://a/".into(), count: 1, tls: false, named: false },
            arrivals: Arrivals::Even,
            connections: Connections {
                keep_alive: true,
                most: None,
                requests: None,
                protocol: "http/1.1".into(),
            },
            timeout: None,
            sent: None,
        }
    }

    fn limits(answer: &Answer, budget: u64, all: bool) -> Limits {
        let plans = vec![plan(); answer.variants.len() + 1];
        Limits::new(&Searches { plans, budget: Duration::from_secs(budget), all }, answer)
    }

    /// A run that found its cliff there, in so much time.
    fn found(cliff: f64, took: f64) -> Run {
        let report =
            seawall_search::search::Search::new(Goal::CLIFF, Profile::QUICK, plan().bounds(None)).report();
        let (lower, point, upper) = (Some(0.95 * cliff), Some(cliff), Some(1.05 * cliff));
        let cliff = Cliff { lower, point, upper, ..Cliff::default() };
        Run { outcome: End::Found, cliff, took, ..crate::find::told::search(&plan(), &report, None) }
    }

    /// Names of those that are searched, each for so long, with the budget of each.
    fn carried_out(mut limits: Limits, took: f64) -> (Vec<(String, u64)>, Found) {
        let mut searched = Vec::new();
        while let Some(next) = limits.next_search() {
            searched.push((next.name.clone(), next.plan.budget.unwrap().as_secs()));
            limits.saw(next, found(100.0, took));
        }
        (searched, limits.found())
    }

    #[test]
    fn those_that_matter_are_searched_behind_the_reference_failing_ones_first_and_then_by_how_much_they_differ()
     {
        let ways = vec![
            variant("a little", Word::Faster, 0.1),
            variant("equal", Word::Equal, 0.01),
            variant("costly", Word::Slower, -0.6),
            variant("failing", Word::FailsMore, 0.02),
            variant("in the tail", Word::TailSlower, -0.3),
            variant("unknown", Word::Undecided, 0.9),
        ];
        let (searched, found) = carried_out(limits(&answer(Outcome::Undecided, ways), 360, false), 60.0);
        let names: Vec<_> = searched.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["reference", "failing", "costly", "in the tail"]);
        let left_out = LeftOut { name: "a little".into(), why: NO_ROOM.into() };
        assert_eq!(found.left_out, [left_out]);
        assert_eq!(found.ways.iter().map(|way| way.way).collect::<Vec<_>>(), [0, 4, 3, 5]);
        assert!(found.ways[0].beside.is_none() && found.nothing.is_none());
    }

    #[test]
    fn a_way_that_did_not_bear_the_rate_is_searched_first_and_the_reference_alone_where_it_was_the_one() {
        let ways = || vec![variant("slow", Word::Slower, -0.6), variant("hung", Word::Undecided, 0.0)];
        let of = |overloaded| Answer { overloaded: Some(overloaded), ..answer(Outcome::Overloaded, ways()) };
        let names = |answer: &Answer| {
            let (searched, _) = carried_out(limits(answer, 360, false), 60.0);
            searched.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&of(2)), ["reference", "hung", "slow"]);
        assert_eq!(names(&Answer { variants: Vec::new(), ..of(0) }), ["reference"]);
    }

    #[test]
    fn nothing_is_searched_where_nothing_differs_or_somebody_ended_it_unless_all_ways_matter() {
        let same = || vec![variant("b", Word::Equal, 0.0)];
        let nothing = |outcome, all| {
            let (searched, found) = carried_out(limits(&answer(outcome, same()), 360, all), 60.0);
            (searched.len(), found.nothing.is_some())
        };
        assert_eq!(nothing(Outcome::Decided, false), (0, true));
        assert_eq!(nothing(Outcome::Decided, true), (2, false));
        assert_eq!(nothing(Outcome::Interrupted, true), (0, true));
        assert_eq!(nothing(Outcome::Failed, true), (0, true));
    }

    #[test]
    fn searches_share_what_the_experiment_left_and_each_other_leave_and_keep_the_budget() {
        let two = || vec![variant("a", Word::Faster, 0.3), variant("b", Word::Faster, 0.2)];
        // 330 s are left for three with two rests between them; the first gives back most of its share.
        let (searched, _) = carried_out(limits(&answer(Outcome::Decided, two()), 360, false), 48.0);
        let budgets: Vec<_> = searched.iter().map(|(_, budget)| *budget).collect();
        assert_eq!(budgets, [108, 138, 228]);
        // The experiment took longer than it was to: one of three has no time.
        let (searched, found) = carried_out(limits(&answer(Outcome::Decided, two()), 75, false), 21.0);
        assert_eq!(searched, [("reference".to_owned(), 21), ("a".to_owned(), 21)]);
        assert_eq!(found.left_out, [LeftOut { name: "b".into(), why: NO_TIME.into() }]);
        // The reference alone is nothing to hold a way beside.
        let (searched, found) = carried_out(limits(&answer(Outcome::Decided, two()), 60, false), 20.0);
        assert_eq!((searched.len(), found.left_out.len()), (0, 3));
        assert!(LEAST - for_experiment(LEAST) >= 2 * LEAST_OF_SEARCH + REST);
    }

    #[test]
    fn a_signal_ends_all_searches_and_what_was_known_is_kept() {
        let two = vec![variant("a", Word::Faster, 0.3), variant("b", Word::Faster, 0.2)];
        let mut limits = limits(&answer(Outcome::Decided, two), 360, false);
        let next = limits.next_search().unwrap();
        limits.saw(next, Run { cut: Some(Cut::Signal), ..found(100.0, 10.0) });
        assert_eq!(limits.next_search(), None);
        let found = limits.found();
        assert!(found.is_interrupted() && found.ways.len() == 1 && found.left_out.len() == 2);
    }

    /// It vanished, and what nobody had searched was all told.
    #[test]
    fn a_search_that_cannot_begin_leaves_its_way_out_by_name() {
        let two = vec![variant("a", Word::Faster, 0.3), variant("b", Word::Faster, 0.2)];
        let mut limits = limits(&answer(Outcome::Decided, two), 360, false);
        let reference = limits.next_search().unwrap();
        limits.saw(reference, found(100.0, 10.0));
        let next = limits.next_search().unwrap();
        limits.failed(&next, "cannot search: no room");
        assert_eq!(limits.next_search(), None);
        let found = limits.found();
        let left_out = ["a", "b"]
            .map(|name| LeftOut { name: name.to_owned(), why: "cannot search: no room".to_owned() });
        assert_eq!(found.left_out, left_out);
        assert!(!found.is_told());
    }

    #[test]
    fn a_way_is_held_beside_the_reference_however_it_keeps_its_connections() {
        let two = vec![variant("a", Word::Faster, 0.3), variant("b", Word::Faster, 0.2)];
        let mut limits = limits(&answer(Outcome::Decided, two), 360, false);
        for cliff in [100.0, 200.0, 50.0] {
            let next = limits.next_search().unwrap();
            let mut run = found(cliff, 50.0);
            run.asked.connections.keep_alive = cliff < 150.0;
            limits.saw(next, run);
        }
        let found = limits.found();
        assert!(found.has_worse() && found.is_told() && !found.is_interrupted());
        let json = serde_json::to_value(&found).unwrap();
        let verdicts: Vec<_> = (0..3).map(|at| json["ways"][at]["beside"]["verdict"].as_str()).collect();
        assert_eq!(verdicts, [None, Some("better"), Some("worse")]);
        assert!((json["ways"][1]["beside"]["point"].as_f64().unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_compared_says_why_and_what_a_cap_hides_is_null() {
        let one = vec![variant("a", Word::Faster, 0.3)];
        let held = |rate| Run {
            outcome: End::Capped,
            cliff: Cliff { good: Some(rate), ..Cliff::default() },
            ..found(100.0, 50.0)
        };
        let unstable = Run { outcome: End::UnstableBaseline, cliff: Cliff::default(), ..found(100.0, 50.0) };
        let beside = |run: Run| {
            let mut limits = limits(&answer(Outcome::Decided, one.clone()), 360, false);
            for run in [found(100.0, 50.0), run] {
                let next = limits.next_search().unwrap();
                limits.saw(next, run);
            }
            let found = limits.found();
            (found.is_told(), serde_json::to_value(found).unwrap()["ways"][1]["beside"].clone())
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
