//! Tests of searches for a number of clients on targets with a known limit.

use std::time::Duration;

use super::{ClosedReport, ClosedSearch, ClosedStep, ClosedTarget, ClosedTrialSpec, search};
use crate::goal::{LatencyGoal, SearchGoal};
use crate::observation::TrialObservation;
use crate::report::SearchOutcome;
use crate::search_profile::Profile;
use crate::simulated::scores::{ClosedLoopScore, percent_true};
use crate::simulated::servers::{
    ServiceDistribution, SimulatedConcurrencyCap, SimulatedOutcome, SimulatedServer, SimulatedWorkers,
};
use crate::simulated::target::{SimulatedArrivals, SimulatedTarget};
use crate::simulated::target_specs::{SimulatedClass, SimulatedTargetSpec};
use crate::trial_spec::TrialPurpose;
use crate::trial_verdict::FailureMode;

const GOAL: SearchGoal = SearchGoal {
    max_error_share: 0.001,
    latency_goal: Some(LatencyGoal { max_late_share: 0.01, latency_limit: Duration::from_millis(250) }),
};
const MOST: u32 = 4096;

fn found(server: impl SimulatedServer + 'static, goal: SearchGoal, most: u32) -> ClosedReport {
    let mut procedure = ClosedSearch::new(goal, Profile::QUICK, most);
    search(&mut procedure, &mut SimulatedTarget::new(Box::new(server), SimulatedArrivals::Constant, 0.25, 1));
    procedure.report()
}

fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() < tolerance, "{found} against {expected}");
}

/// The target has four workers of 10 ms and another 5 ms per request. Six clients keep all workers busy, and a hundred clients wait for a
/// quarter of a second.
#[test]
fn a_queue_bears_as_many_clients_as_wait_no_longer_than_the_bound() {
    let report = found(SimulatedWorkers::new(4, ServiceDistribution::Fixed(0.01), 0.005), GOAL, MOST);
    assert_eq!(
        (report.outcome, report.failure_mode),
        (Some(SearchOutcome::Found), Some(FailureMode::Queueing))
    );
    let [lower, _, upper] = report.limit.lower_estimate_upper.unwrap();
    assert!(lower <= 98 && upper >= 98 && upper - lower <= 14, "{:?}", report.limit);
    let saturation = report.saturation.unwrap();
    near(saturation.rate, 400.0, 0.03);
    near(saturation.littles_law_clients, 6.0, 0.05);
    assert!(saturation.is_confirmed && (5..=7).contains(&saturation.sufficient_clients), "{saturation:?}");
    assert!(saturation.deviation < 20.0);
}

#[test]
fn a_cap_on_concurrency_is_found_to_a_client_more_or_less() {
    for count in [1, 7, 40] {
        let places = SimulatedConcurrencyCap {
            slot_free_times: vec![0.0; count],
            service_time: ServiceDistribution::Fixed(0.02),
            refusal_response_seconds: 0.001,
        };
        let report = found(places, GOAL, MOST);
        let [lower, _, upper] = report.limit.lower_estimate_upper.unwrap();
        let count = count as u32;
        assert!(lower <= count && count <= upper, "{count}: {:?}", report.limit);
        assert!(upper - lower <= 2 + count / 8, "{count}: {:?}", report.limit);
        assert_eq!(report.failure_mode, Some(FailureMode::Rejecting));
    }
}

/// The seeds are fixed, so the results change only if the search changes.
#[test]
fn brackets_hold_the_most_clients_that_a_target_bears() {
    let classes = [
        SimulatedClass::QueueFixed,
        SimulatedClass::QueueExponential,
        SimulatedClass::QueuePoisson,
        SimulatedClass::Limiter,
        SimulatedClass::WarmUp,
    ];
    let mut held = Vec::new();
    for class in classes {
        for seed in 0..4 {
            let plant = SimulatedTargetSpec::draw(class, 8_000 + seed);
            let score = ClosedLoopScore::run_search(&plant, GOAL, Profile::QUICK, (MOST, 40_000), seed);
            assert!(score.report.took < Duration::from_secs(120), "{class:?}: {:?}", score.report.took);
            held.extend(score.covers());
        }
    }
    assert!(held.len() >= 12, "{} brackets", held.len());
    assert!(percent_true(held.iter().copied()) >= 90.0, "{held:?}");
}

/// A closed loop has no growth, so a queue never breaks without a latency goal.
#[test]
fn without_a_bound_on_latency_a_queue_is_capped_and_its_saturation_told() {
    let report = found(
        SimulatedWorkers::new(1, ServiceDistribution::Exponential(0.01), 0.0),
        SearchGoal::ERRORS_ONLY,
        64,
    );
    assert_eq!(
        (report.outcome, report.limit.lower_estimate_upper),
        (Some(SearchOutcome::NoLimitFound), None)
    );
    assert_eq!(report.limit.lowest_bad, None);
    near(report.saturation.unwrap().rate, 100.0, 0.1);
}

#[test]
fn more_clients_than_there_may_be_are_never_asked_for() {
    for most in [1, 5, 50] {
        let report = found(SimulatedWorkers::new(4, ServiceDistribution::Fixed(0.01), 0.005), GOAL, most);
        assert!(report.trials.iter().all(|trial| trial.spec.clients <= most));
        assert_eq!(report.outcome, Some(SearchOutcome::NoLimitFound));
    }
}

/// A target that responds to the first few requests and then hangs.
struct Hanging(u32);

impl SimulatedServer for Hanging {
    fn serve(&mut self, at: f64, _: &mut fastrand::Rng) -> SimulatedOutcome {
        self.0 = self.0.saturating_sub(1);
        SimulatedOutcome { end: at + if self.0 == 0 { 30.0 } else { 0.002 }, is_good: self.0 > 0 }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

#[test]
fn clients_that_hang_have_failed_before_anybody_says_so_and_make_no_bracket() {
    let report = found(Hanging(10_000), SearchGoal::ERRORS_ONLY, MOST);
    assert_eq!((report.failure_mode, report.limit.lower_estimate_upper), (Some(FailureMode::Hanging), None));
    assert!(report.trials.iter().any(|trial| trial.evidence.most_clients_hang));
    assert!(report.took < Duration::from_secs(60));
}

#[test]
fn a_target_that_never_answers_is_not_searched() {
    let report = found(Hanging(0), GOAL, MOST);
    assert_eq!((report.outcome, report.trials.len()), (Some(SearchOutcome::GoalUnreachable), 1));
}

/// An interrupted search still reports its results.
#[test]
fn whoever_ends_a_search_for_clients_is_told_what_is_known() {
    let plant = SimulatedTargetSpec::draw(SimulatedClass::QueueExponential, 8);
    for until in [1.0, 5.0, 15.0, 30.0] {
        let mut procedure = ClosedSearch::new(GOAL, Profile::QUICK, MOST);
        search(&mut procedure, &mut plant.build_target(&GOAL, 3).interrupted_at(until));
        let report = procedure.report();
        assert_eq!(report.outcome, Some(SearchOutcome::Interrupted));
        assert!(!report.trials.is_empty());
        assert_eq!(procedure.next_step(), ClosedStep::Finished);
    }
}

/// The limit of the generator is never reported as that of the target.
#[test]
fn a_generator_that_keeps_too_few_clients_is_said_to_be_the_limit() {
    let server = SimulatedWorkers::new(4, ServiceDistribution::Fixed(0.01), 0.005);
    let mut target = SimulatedTarget::new(Box::new(server), SimulatedArrivals::Constant, 0.25, 1)
        .with_generator_max_rate(20.0);
    let mut procedure = ClosedSearch::new(GOAL, Profile::QUICK, MOST);
    search(&mut procedure, &mut target);
    let report = procedure.report();
    assert_eq!(
        (report.outcome, report.limit.lower_estimate_upper),
        (Some(SearchOutcome::GeneratorLimited), None)
    );
}

/// A target on a machine that disturbs four trials in a row, none of which has more clients than an earlier one.
struct DisturbedFourTimes {
    target: SimulatedTarget,
    trials: usize,
}

impl ClosedTarget for DisturbedFourTimes {
    fn carry_out(&mut self, offer: &ClosedTrialSpec) -> TrialObservation {
        let seen = self.target.carry_out(offer);
        self.trials += usize::from(offer.purpose == TrialPurpose::NarrowBracket);
        let is_disturbed = offer.purpose == TrialPurpose::NarrowBracket && self.trials <= 4;
        TrialObservation { invalid_reason: is_disturbed.then(|| "this machine was late".to_owned()), ..seen }
    }

    fn rest(&mut self, time: Duration) -> bool {
        ClosedTarget::rest(&mut self.target, time)
    }
}

#[test]
fn a_generator_that_kept_as_many_clients_busy_before_is_not_the_limit() {
    let workers = SimulatedWorkers::new(4, ServiceDistribution::Fixed(0.01), 0.005);
    let target = SimulatedTarget::new(Box::new(workers), SimulatedArrivals::Constant, 0.25, 1);
    let mut procedure = ClosedSearch::new(GOAL, Profile::QUICK, MOST);
    search(&mut procedure, &mut DisturbedFourTimes { target, trials: 0 });
    let report = procedure.report();
    assert_eq!(report.outcome, Some(SearchOutcome::Found), "{:?}", report.limit);
}

#[test]
fn a_client_that_was_refused_waits_before_it_asks_again() {
    let mut procedure = ClosedSearch::new(GOAL, Profile::QUICK, MOST);
    let places = SimulatedConcurrencyCap {
        slot_free_times: vec![0.0; 2],
        service_time: ServiceDistribution::Fixed(0.02),
        refusal_response_seconds: 0.001,
    };
    let mut target = SimulatedTarget::new(Box::new(places), SimulatedArrivals::Constant, 0.25, 1);
    search(&mut procedure, &mut target);
    let trials = procedure.report().trials;
    let after = trials.iter().filter(|trial| trial.spec.purpose != TrialPurpose::Baseline);
    for trial in after {
        assert!(
            trial.spec.pause_after_failure >= Duration::from_millis(15),
            "{:?}",
            trial.spec.pause_after_failure
        );
        let sent: u32 = trial.seen.blocks.iter().map(|block| block.sent).sum();
        let seconds = trial.seen.blocks.len() as f64 / 15.0;
        assert!(f64::from(sent) <= f64::from(trial.spec.clients) * (seconds / 0.02 + 2.0), "{sent}");
    }
}
