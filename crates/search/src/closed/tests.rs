//! Searches for a number of clients, of targets whose limit is known.

use std::time::Duration;

use super::{Report, Search, Step, search};
use crate::goal::{Goal, Lateness};
use crate::offer::Purpose;
use crate::profile::Profile;
use crate::report::Outcome;
use crate::simulated::plants::{Class, Plant};
use crate::simulated::scores::{ClosedScore, percent};
use crate::simulated::servers::{Fate, Places, Server, Service, Workers};
use crate::simulated::target::{Arrivals, Simulated};
use crate::vote::Kind;

const GOAL: Goal =
    Goal { errors: 0.001, late: Some(Lateness { share: 0.01, than: Duration::from_millis(250) }) };
const MOST: u32 = 4096;

fn found(server: impl Server + 'static, goal: Goal, most: u32) -> Report {
    let mut procedure = Search::new(goal, Profile::QUICK, most);
    search(&mut procedure, &mut Simulated::new(Box::new(server), Arrivals::Constant, 0.25, 1));
    procedure.report()
}

fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() < tolerance, "{found} against {expected}");
}

/// Four workers of 10 ms with 5 ms beside them: six clients keep all busy, and a hundred wait a quarter of a second.
#[test]
fn a_queue_bears_as_many_clients_as_wait_no_longer_than_the_bound() {
    let report = found(Workers::new(4, Service::Fixed(0.01), 0.005), GOAL, MOST);
    assert_eq!((report.outcome, report.kind), (Some(Outcome::Found), Some(Kind::Queueing)));
    let [lower, _, upper] = report.limit.bracket.unwrap();
    assert!(lower <= 98 && upper >= 98 && upper - lower <= 14, "{:?}", report.limit);
    let saturation = report.saturation.unwrap();
    near(saturation.rate, 400.0, 0.03);
    near(saturation.little, 6.0, 0.05);
    assert!(saturation.reached && (5..=7).contains(&saturation.enough), "{saturation:?}");
    assert!(saturation.deviation < 20.0);
}

#[test]
fn a_cap_on_concurrency_is_found_to_a_client_more_or_less() {
    for count in [1, 7, 40] {
        let places = Places { free: vec![0.0; count], service: Service::Fixed(0.02), refusal: 0.001 };
        let report = found(places, GOAL, MOST);
        let [lower, _, upper] = report.limit.bracket.unwrap();
        let count = count as u32;
        assert!(lower <= count && count <= upper, "{count}: {:?}", report.limit);
        assert!(upper - lower <= 2 + count / 8, "{count}: {:?}", report.limit);
        assert_eq!(report.kind, Some(Kind::Rejecting));
    }
}

/// Fixed seeds: what these searches find is always the same, and worse only if the search got worse.
#[test]
fn brackets_hold_the_most_clients_that_a_target_bears() {
    let classes =
        [Class::QueueFixed, Class::QueueExponential, Class::QueuePoisson, Class::Limiter, Class::WarmUp];
    let mut held = Vec::new();
    for class in classes {
        for seed in 0..4 {
            let plant = Plant::draw(class, 8_000 + seed);
            let score = ClosedScore::of(&plant, GOAL, Profile::QUICK, (MOST, 40_000), seed);
            assert!(score.report.took < Duration::from_secs(120), "{class:?}: {:?}", score.report.took);
            held.extend(score.covers());
        }
    }
    assert!(held.len() >= 12, "{} brackets", held.len());
    assert!(percent(held.iter().copied()) >= 90.0, "{held:?}");
}

/// A closed loop has no growth: without a bound on latency a queue never breaks.
#[test]
fn without_a_bound_on_latency_a_queue_is_capped_and_its_saturation_told() {
    let report = found(Workers::new(1, Service::Exponential(0.01), 0.0), Goal::CLIFF, 64);
    assert_eq!((report.outcome, report.limit.bracket), (Some(Outcome::Capped), None));
    assert_eq!(report.limit.bad, None);
    near(report.saturation.unwrap().rate, 100.0, 0.1);
}

#[test]
fn more_clients_than_there_may_be_are_never_asked_for() {
    for most in [1, 5, 50] {
        let report = found(Workers::new(4, Service::Fixed(0.01), 0.005), GOAL, most);
        assert!(report.trials.iter().all(|trial| trial.offer.clients <= most));
        assert_eq!(report.outcome, Some(Outcome::Capped));
    }
}

/// Answers the first few, and then nobody.
struct Hanging(u32);

impl Server for Hanging {
    fn serve(&mut self, at: f64, _: &mut fastrand::Rng) -> Fate {
        self.0 = self.0.saturating_sub(1);
        Fate { end: at + if self.0 == 0 { 30.0 } else { 0.002 }, good: self.0 > 0 }
    }

    fn close(&mut self, _: f64) {}
}

#[test]
fn clients_that_hang_have_failed_before_anybody_says_so_and_make_no_bracket() {
    let report = found(Hanging(10_000), Goal::CLIFF, MOST);
    assert_eq!((report.kind, report.limit.bracket), (Some(Kind::Hanging), None));
    assert!(report.trials.iter().any(|trial| trial.finding.hangs));
    assert!(report.took < Duration::from_secs(60));
}

#[test]
fn a_target_that_never_answers_is_not_searched() {
    let report = found(Hanging(0), GOAL, MOST);
    assert_eq!((report.outcome, report.trials.len()), (Some(Outcome::UnstableBaseline), 1));
}

/// Nothing that was measured is lost on a signal.
#[test]
fn whoever_ends_a_search_for_clients_is_told_what_is_known() {
    let plant = Plant::draw(Class::QueueExponential, 8);
    for until in [1.0, 5.0, 15.0, 30.0] {
        let mut procedure = Search::new(GOAL, Profile::QUICK, MOST);
        search(&mut procedure, &mut plant.target(&GOAL, 3).interrupted_at(until));
        let report = procedure.report();
        assert_eq!(report.outcome, Some(Outcome::Interrupted));
        assert!(!report.trials.is_empty());
        assert_eq!(procedure.next_step(), Step::Over);
    }
}

/// The generator's limit is never the target's.
#[test]
fn a_generator_that_keeps_too_few_clients_is_said_to_be_the_limit() {
    let server = Workers::new(4, Service::Fixed(0.01), 0.005);
    let mut target = Simulated::new(Box::new(server), Arrivals::Constant, 0.25, 1).generated_by(20.0);
    let mut procedure = Search::new(GOAL, Profile::QUICK, MOST);
    search(&mut procedure, &mut target);
    let report = procedure.report();
    assert_eq!((report.outcome, report.limit.bracket), (Some(Outcome::GeneratorLimited), None));
}

#[test]
fn a_client_that_was_refused_waits_before_it_asks_again() {
    let mut procedure = Search::new(GOAL, Profile::QUICK, MOST);
    let places = Places { free: vec![0.0; 2], service: Service::Fixed(0.02), refusal: 0.001 };
    let mut target = Simulated::new(Box::new(places), Arrivals::Constant, 0.25, 1);
    search(&mut procedure, &mut target);
    let trials = procedure.report().trials;
    let after = trials.iter().filter(|trial| trial.offer.purpose != Purpose::Baseline);
    for trial in after {
        assert!(trial.offer.pause >= Duration::from_millis(15), "{:?}", trial.offer.pause);
        let sent: u32 = trial.seen.blocks.iter().map(|block| block.sent).sum();
        let seconds = trial.seen.blocks.len() as f64 / 15.0;
        assert!(f64::from(sent) <= f64::from(trial.offer.clients) * (seconds / 0.02 + 2.0), "{sent}");
    }
}
