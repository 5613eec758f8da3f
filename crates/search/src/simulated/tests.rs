//! Tests of the simulation against known formulas, and of searches against their measured accuracy.

use std::time::Duration;

use super::scores::{SearchScore, percent_true, quantile};
use super::servers::{
    ServiceDistribution, SimulatedBucket, SimulatedConcurrencyCap, SimulatedCpuQuota, SimulatedOutcome,
    SimulatedServer, SimulatedWorkers, Slowdown, exponential,
};
use super::target::{SimulatedArrivals, SimulatedTarget};
use super::target_specs::{LongRun, SimulatedClass, SimulatedTargetSpec};
use crate::compare::{ComparedRun, LimitChange, compare};
use crate::failure_curves::erlang_b;
use crate::goal::{LatencyGoal, SearchGoal};
use crate::observation::TrialObservation;
use crate::report::{LimitEstimate, SearchOutcome, SearchReport};
use crate::search::{RateBounds, RateSearch, SearchStep};
use crate::search_profile::Profile;
use crate::target::{SearchTarget, search};
use crate::trial_spec::{TrialPurpose, TrialSpec};
use crate::trial_verdict::{FailureMode, TrialVerdict};

/// Sends Poisson arrivals to a warm server.
fn poisson(mut server: impl SimulatedServer, rate: f64, requests: u32) -> (f64, f64) {
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut at, mut total, mut errors, mut counted) = (0.0, 0.0, 0.0, 0.0);
    for request in 0..requests {
        at += exponential(&mut rng) / rate;
        let SimulatedOutcome { end, is_good: good } = server.serve(at, &mut rng);
        if request > requests / 10 {
            counted += 1.0;
            errors += f64::from(u8::from(!good));
            total += if good { end - at } else { 0.0 };
        }
    }
    (total / (counted - errors), errors / counted)
}

fn close(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() < tolerance, "{found} against {expected}");
}

/// Returns the mean response time of M/M/c by Erlang C.
fn mmc(workers: u32, rate: f64, mean: f64) -> f64 {
    let load = rate * mean;
    let lost = erlang_b(workers, load);
    let waits = lost / (1.0 - load / f64::from(workers) * (1.0 - lost));
    mean + waits * mean / (f64::from(workers) - load)
}

#[test]
fn many_workers_take_as_long_as_erlang_says() {
    for (count, load, tolerance) in [(1, 0.5, 0.02), (1, 0.8, 0.03), (4, 0.8, 0.02), (16, 0.9, 0.02)] {
        let (mean, rate) = (0.01, f64::from(count) * load / 0.01);
        let workers = SimulatedWorkers::new(count as usize, ServiceDistribution::Exponential(mean), 0.0);
        close(poisson(workers, rate, 400_000).0, mmc(count, rate, mean), tolerance);
    }
}

/// The mean wait of M/G/1 (Pollaczek 1930, Khinchine 1932).
#[test]
fn a_single_worker_makes_wait_as_pollaczek_and_khinchine_say() {
    let services = [
        (ServiceDistribution::Fixed(0.01), 0.0, 0.02),
        (ServiceDistribution::Lognormal(0.01, 8.0), 8.0, 0.12),
        (ServiceDistribution::Bimodal(0.01), 20.95 / (1.95 * 1.95) - 1.0, 0.06),
    ];
    for (service, scv, tolerance) in services {
        let load = 0.7;
        let expected = 0.01 + load * 0.01 * (1.0 + scv) / (2.0 * (1.0 - load));
        close(poisson(SimulatedWorkers::new(1, service, 0.0), load / 0.01, 400_000).0, expected, tolerance);
    }
}

#[test]
fn places_lose_as_much_as_erlang_says() {
    for (count, load) in [(10, 5.0), (50, 40.0)] {
        for service in [ServiceDistribution::Exponential(0.02), ServiceDistribution::Lognormal(0.02, 1.0)] {
            let places = SimulatedConcurrencyCap {
                slot_free_times: vec![0.0; count as usize],
                service_time: service,
                refusal_response_seconds: 0.001,
            };
            close(poisson(places, load / 0.02, 400_000).1, erlang_b(count, load), 0.06);
        }
    }
}

#[test]
fn a_bucket_lets_through_what_fills_it() {
    let service = ServiceDistribution::Fixed(0.001);
    let bucket = SimulatedBucket {
        fill_rate: 500.0,
        size: 50.0,
        left: 50.0,
        counted_at: 0.0,
        service_time: service,
        refusal_response_seconds: 0.001,
    };
    close(poisson(bucket, 1000.0, 200_000).1, 0.5, 0.02);
}

/// The target has half a CPU, and a thousand requests per second take 1 ms each.
#[test]
fn a_quota_lets_through_what_it_grants() {
    let service = ServiceDistribution::Fixed(0.001);
    let mut quota = SimulatedCpuQuota {
        period: 0.1,
        granted: 0.05,
        began: 0.0,
        used: 0.0,
        last_start: 0.0,
        cpu_time: service,
        added_latency: 0.0,
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let done = (0..10_000).filter(|n| quota.serve(f64::from(*n) / 1000.0, &mut rng).end <= 10.0).count();
    close(done as f64, 5000.0, 0.01);
}

#[test]
fn credits_that_are_used_up_leave_the_plain_rate() {
    let mut workers = SimulatedWorkers::new(1, ServiceDistribution::Fixed(0.01), 0.0);
    workers.slowdown = Slowdown::Credits { times: 3.0, rate: 100.0, cap: 200.0, left: 200.0, at: 0.0 };
    let mut rng = fastrand::Rng::with_seed(1);
    let ends: Vec<_> = (0..6000).map(|n| workers.serve(f64::from(n) / 300.0, &mut rng).end).collect();
    let within = |from: f64, to: f64| ends.iter().filter(|end| (from..to).contains(*end)).count() as f64;
    close(within(0.0, 0.9), 270.0, 0.03);
    close(within(5.0, 15.0), 1000.0, 0.02);
}

const LATE: LatencyGoal = LatencyGoal { max_late_share: 0.01, latency_limit: Duration::from_millis(250) };
pub(super) const BOTH: SearchGoal = SearchGoal { latency_goal: Some(LATE), ..SearchGoal::ERRORS_ONLY };

fn found(plant: &SimulatedTargetSpec, goal: SearchGoal, bounds: RateBounds, seed: u64) -> SearchReport {
    let mut procedure = RateSearch::new(goal, Profile::QUICK, bounds);
    search(&mut procedure, &mut plant.build_target(&goal, seed));
    procedure.report()
}

/// The seeds are fixed, so the results change only if the search changes.
#[test]
fn brackets_hold_the_cliff_and_middles_are_near_it() {
    let mut scores = Vec::new();
    for class in SimulatedClass::ALL {
        for seed in 0..4 {
            let plant = SimulatedTargetSpec::draw(class, 1_000 + seed);
            let truth = plant.true_limits(&SearchGoal::ERRORS_ONLY, 60_000);
            scores.push(SearchScore::run_search(
                &plant,
                truth,
                SearchGoal::ERRORS_ONLY,
                Profile::QUICK,
                seed,
            ));
        }
    }
    let steady = || scores.iter().filter(|score| score.class.is_steady());
    let held = percent_true(steady().map(SearchScore::covers_cliff));
    assert!(held >= 95.0, "{held} %");
    let middle = quantile(steady().map(SearchScore::cliff_error), 0.5);
    assert!(middle <= 0.015, "{middle}");
    let time = quantile(steady().map(|score| score.report.took.as_secs_f64()), 0.5);
    assert!(time <= 60.0, "{time} s");
    let longest = scores.iter().map(|score| score.report.took.as_secs_f64()).fold(0.0, f64::max);
    assert!(longest <= 150.0, "{longest} s");
}

#[test]
fn a_knee_that_is_stated_is_where_it_is_said_to_be() {
    let mut scores = Vec::new();
    for class in [
        SimulatedClass::QueueExponential,
        SimulatedClass::QueueBimodal,
        SimulatedClass::QueuePoisson,
        SimulatedClass::Limiter,
        SimulatedClass::CpuQuota,
    ] {
        for seed in 0..4 {
            let plant = SimulatedTargetSpec::draw(class, 2_000 + seed);
            let truth = plant.true_limits(&BOTH, 60_000);
            scores.push(SearchScore::run_search(&plant, truth, BOTH, Profile::QUICK, seed));
        }
    }
    let stated: Vec<_> = scores.iter().filter_map(SearchScore::covers_knee).collect();
    assert!(stated.len() >= scores.len() / 2, "{} of {}", stated.len(), scores.len());
    assert!(percent_true(stated.iter().copied()) >= 90.0, "{stated:?}");
    let untold = scores.iter().filter(|score| score.covers_knee().is_none());
    assert!(
        untold.clone().all(|score| score
            .report
            .knee
            .is_some_and(|knee| knee.highest_good.or(knee.lowest_bad).is_some()))
    );
}

#[test]
fn each_way_of_failing_is_named() {
    let expected = [
        (SimulatedClass::QueueExponential, FailureMode::Queueing),
        (SimulatedClass::Limiter, FailureMode::Rejecting),
        (SimulatedClass::LimiterHanging, FailureMode::Hanging),
        (SimulatedClass::ConcurrencyCap, FailureMode::Rejecting),
    ];
    for (class, kind) in expected {
        let named = (0..5).filter(|seed| {
            let plant = SimulatedTargetSpec::draw(class, 3_000 + seed);
            found(&plant, SearchGoal::ERRORS_ONLY, RateBounds::default(), *seed).failure_mode == Some(kind)
        });
        assert!(named.count() >= 4, "{class:?}");
    }
}

/// One minute of credits looks like capacity in a search of half a minute.
#[test]
fn what_is_used_up_is_said_to_be_or_not_excluded() {
    for seed in 0..4 {
        let plant = SimulatedTargetSpec::draw(SimulatedClass::Credits, 4_000 + seed);
        let truth = plant.true_limits(&SearchGoal::ERRORS_ONLY, 1_000);
        let mut procedure =
            RateSearch::new(SearchGoal::ERRORS_ONLY, Profile::THOROUGH, RateBounds::default());
        search(&mut procedure, &mut plant.build_target(&SearchGoal::ERRORS_ONLY, seed));
        let report = procedure.report();
        let upper = report.cliff.bracket.map_or(0.0, |cliff| cliff.lower);
        assert!(report.quota_exhaustion.is_some() || upper <= truth.cliff, "{seed}: {:?}", report.cliff);
        let quick = found(&plant, SearchGoal::ERRORS_ONLY, RateBounds::default(), seed);
        assert!(
            quick.quota_exhaustion.is_some()
                || quick.unexcluded_burst.is_some_and(|held| held.duration < Duration::from_secs(60))
        );
    }
}

#[test]
fn nothing_above_the_greatest_rate_is_ever_offered() {
    for class in [SimulatedClass::QueueExponential, SimulatedClass::Limiter, SimulatedClass::LimiterHanging] {
        let plant = SimulatedTargetSpec::draw(class, 5);
        for share in [0.3, 1.1] {
            let most = share * plant.capacity;
            let bounds = RateBounds { max_rate: Some(most), ..RateBounds::default() };
            let report = found(&plant, BOTH, bounds, 1);
            assert!(report.trials.iter().all(|trial| trial.spec.rate <= most), "{class:?}");
            let outcome = report.outcome;
            assert!(share > 1.0 || outcome == Some(SearchOutcome::NoLimitFound), "{class:?}: {outcome:?}");
            // If nothing broke, responses were late instead.
            let bad = report.cliff.lowest_bad.or(report.knee.and_then(|knee| knee.lowest_bad));
            assert!(outcome != Some(SearchOutcome::Found) || bad.is_some(), "{class:?}: {:?}", report.knee);
        }
    }
}

/// The limit of the generator is never reported as that of the target, whether it is known or only seen in trials.
#[test]
fn a_slow_generator_is_said_to_be_the_limit() {
    for class in SimulatedClass::ALL {
        let plant = SimulatedTargetSpec::draw(class, 6);
        let most = 0.4 * plant.capacity;
        let known = RateBounds { generator_max_rate: Some(most), ..RateBounds::default() };
        let mut procedures = [
            RateSearch::new(BOTH, Profile::QUICK, known),
            RateSearch::new(BOTH, Profile::QUICK, RateBounds::default()),
        ];
        for procedure in &mut procedures {
            search(procedure, &mut plant.build_target(&BOTH, 1).with_generator_max_rate(most));
            let report = procedure.report();
            let below = |limit: LimitEstimate| limit.lowest_bad.is_some_and(|bad| bad <= most * 1.02);
            let broke = below(report.cliff) || report.knee.is_some_and(below);
            assert!(
                broke || report.outcome == Some(SearchOutcome::GeneratorLimited),
                "{class:?}: {:?}",
                report.outcome
            );
            assert!(report.cliff.bracket.is_none() || below(report.cliff), "{class:?}: {:?}", report.cliff);
        }
    }
}

/// An interrupted search still reports its results.
#[test]
fn whoever_ends_a_search_is_told_what_is_known() {
    let plant = SimulatedTargetSpec::draw(SimulatedClass::QueueExponential, 8);
    for until in [1.0, 5.0, 15.0, 30.0] {
        let mut procedure = RateSearch::new(SearchGoal::ERRORS_ONLY, Profile::QUICK, RateBounds::default());
        search(&mut procedure, &mut plant.build_target(&SearchGoal::ERRORS_ONLY, 3).interrupted_at(until));
        let report = procedure.report();
        assert_eq!(report.outcome, Some(SearchOutcome::Interrupted));
        assert!(report.took <= Duration::from_secs_f64(until + 11.0), "{:?}", report.took);
        assert!(!report.trials.is_empty());
        assert_eq!(procedure.next_step(), SearchStep::Finished);
    }
}

#[test]
fn a_bucket_is_as_large_as_it_is_said_to_be() {
    for (fill, size) in [(500.0, 2000.0), (3000.0, 9000.0), (200.0, 400.0)] {
        let service = ServiceDistribution::Fixed(0.001);
        let bucket = SimulatedBucket {
            fill_rate: fill,
            size,
            left: size,
            counted_at: 0.0,
            service_time: service,
            refusal_response_seconds: 0.001,
        };
        let mut target =
            SimulatedTarget::new(Box::new(bucket), SimulatedArrivals::Constant, f64::INFINITY, 1);
        let mut procedure = RateSearch::new(SearchGoal::ERRORS_ONLY, Profile::QUICK, RateBounds::default());
        search(&mut procedure, &mut target);
        close(procedure.report().burst_allowance.unwrap_or_default(), size, 0.1);
    }
}

/// A target that never responds.
struct Dead;

impl SimulatedServer for Dead {
    fn serve(&mut self, at: f64, _: &mut fastrand::Rng) -> SimulatedOutcome {
        SimulatedOutcome { end: at + 0.001, is_good: false }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

#[test]
fn a_target_that_fails_at_the_baseline_is_not_searched() {
    let mut procedure = RateSearch::new(SearchGoal::ERRORS_ONLY, Profile::QUICK, RateBounds::default());
    let mut target = SimulatedTarget::new(Box::new(Dead), SimulatedArrivals::Constant, f64::INFINITY, 1);
    search(&mut procedure, &mut target);
    let report = procedure.report();
    assert_eq!((report.outcome, report.trials.len()), (Some(SearchOutcome::GoalUnreachable), 1));
}

/// A target that responds until a given time and never afterwards.
struct Mortal(f64);

impl SimulatedServer for Mortal {
    fn serve(&mut self, at: f64, _: &mut fastrand::Rng) -> SimulatedOutcome {
        SimulatedOutcome { end: at + if at < self.0 { 0.002 } else { 30.0 }, is_good: at < self.0 }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

#[test]
fn a_target_that_dies_during_a_search_ends_it_all_the_same() {
    for dies in [4, 9, 16] {
        let mut procedure = RateSearch::new(BOTH, Profile::QUICK, RateBounds::default());
        let server = Box::new(Mortal(f64::from(dies)));
        let mut target = SimulatedTarget::new(server, SimulatedArrivals::Constant, 0.25, 1);
        search(&mut procedure, &mut target);
        let report = procedure.report();
        let bound = Duration::from_secs(300);
        assert!(report.took < bound && report.outcome != Some(SearchOutcome::Found), "{dies}: {report:?}");
    }
}

/// The requests in flight are bounded for any target, because a trial ends soon after it does damage.
#[test]
fn what_is_in_flight_is_bounded() {
    for class in [SimulatedClass::LimiterHanging, SimulatedClass::QueueHeavy, SimulatedClass::Collapse] {
        let plant = SimulatedTargetSpec::draw(class, 9);
        for trial in found(&plant, SearchGoal::ERRORS_ONLY, RateBounds::default(), 2).trials {
            let most = trial.seen.blocks.iter().map(|block| f64::from(block.in_flight)).fold(0.0, f64::max);
            let bound = trial.spec.in_flight_cap + 0.25 * trial.spec.rate + 10.0;
            assert!(most <= bound, "{class:?} {:?}: {most} of {bound}", trial.spec.purpose);
        }
    }
}

#[test]
fn a_search_that_is_asked_twice_wants_the_same() {
    let mut procedure = RateSearch::new(SearchGoal::ERRORS_ONLY, Profile::QUICK, RateBounds::default());
    let SearchStep::RunTrial(offer) = procedure.next_step() else { panic!("a baseline comes first") };
    assert_eq!(offer.purpose, TrialPurpose::Baseline);
    assert_eq!(procedure.next_step(), SearchStep::RunTrial(offer));
    let mut target =
        SimulatedTargetSpec::draw(SimulatedClass::QueueFixed, 1).build_target(&SearchGoal::ERRORS_ONLY, 1);
    procedure.record_trial(&offer, target.carry_out(&offer));
    assert_ne!(procedure.next_step(), SearchStep::RunTrial(offer));
}

#[test]
fn a_tenth_less_is_found_more_often_than_not_and_no_change_hardly_ever() {
    let (mut worse, mut changed, mut all) = (0.0, 0.0, 0.0);
    for class in [
        SimulatedClass::QueueExponential,
        SimulatedClass::QueueFixed,
        SimulatedClass::Limiter,
        SimulatedClass::CpuQuota,
        SimulatedClass::Window,
    ] {
        for seed in 0..4 {
            let plant = SimulatedTargetSpec::draw(class, 7_000 + seed);
            let slower = plant.with_capacity_share(0.9);
            let [before, same, less] = [(&plant, 1), (&plant, 2), (&slower, 3)]
                .map(|(plant, search)| {
                    found(plant, SearchGoal::ERRORS_ONLY, RateBounds::default(), 10 * seed + search)
                })
                .map(|report| ComparedRun::of(&report, "constant", "none"));
            let change = |after: &ComparedRun| compare(&before, after).map(|comparison| comparison.change);
            changed +=
                f64::from(u8::from(change(&same).is_ok_and(|change| change != LimitChange::Undecided)));
            worse += f64::from(u8::from(change(&less) == Ok(LimitChange::Worse)));
            all += 1.0;
        }
    }
    assert!(changed <= 0.04 * all, "{changed} of {all}");
    assert!(worse >= 0.75 * all, "{worse} of {all}");
}

#[test]
fn a_long_run_of_nothing_special_has_no_errors() {
    let LongRun { error_share: errors, late_share: late, .. } =
        SimulatedTargetSpec::draw(SimulatedClass::QueueFixed, 1).simulate_long_run(1.0, 10.0, 1_000);
    assert_eq!((errors, late), (0.0, 0.0));
}

/// A target that responds at once, but fails every n-th request.
struct Failing {
    every: u32,
    served: u32,
}

impl SimulatedServer for Failing {
    fn serve(&mut self, at: f64, _: &mut fastrand::Rng) -> SimulatedOutcome {
        self.served += 1;
        SimulatedOutcome { end: at + 0.005, is_good: !self.served.is_multiple_of(self.every) }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

/// A target that responds to all requests; above a rate, one response in thirty is late.
struct LateAbove {
    rate: f64,
    last: f64,
    served: u32,
}

impl LateAbove {
    fn new(rate: f64) -> Self {
        Self { rate, last: 0.0, served: 0 }
    }
}

impl SimulatedServer for LateAbove {
    fn serve(&mut self, at: f64, _: &mut fastrand::Rng) -> SimulatedOutcome {
        let often = at - self.last < 1.0 / self.rate;
        (self.last, self.served) = (at, self.served + 1);
        let late = often && self.served.is_multiple_of(30);
        SimulatedOutcome { end: at + if late { 0.4 } else { 0.005 }, is_good: true }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

fn capped(server: impl SimulatedServer + 'static, max_rate: f64) -> SearchReport {
    let mut target = SimulatedTarget::new(Box::new(server), SimulatedArrivals::Constant, 0.25, 1);
    let bounds = RateBounds { max_rate: Some(max_rate), ..RateBounds::default() };
    let mut procedure = RateSearch::new(BOTH, Profile::QUICK, bounds);
    search(&mut procedure, &mut target);
    procedure.report()
}

#[test]
fn a_goal_that_is_broken_at_any_rate_has_no_limit_and_was_not_kept() {
    // One failure in a hundred shows in a ramp step. One in four hundred shows only at the highest rate, and rarer ones only in a long
    // trial.
    for (every, max_rate) in [(100, 2_000.0), (100, 20_000.0), (400, 2_000.0), (250, 280.0), (127, 65.0)] {
        let report = capped(Failing { every, served: 0 }, max_rate);
        assert_eq!(report.outcome, Some(SearchOutcome::GoalUnreachable), "one in {every} up to {max_rate}");
        assert_eq!(report.cliff.bracket, None);
    }
    let report = capped(Failing { every: 5_000, served: 0 }, 2_000.0);
    assert_eq!(
        report.outcome,
        Some(SearchOutcome::NoLimitFound),
        "one in 5,000 is fewer than one in a thousand"
    );
}

#[test]
fn where_answers_are_only_late_the_knee_is_found_and_nothing_is_said_to_break() {
    let report = capped(LateAbove::new(900.0), 2_000.0);
    assert_eq!(
        (report.outcome, report.cliff.bracket, report.cliff.lowest_bad),
        (Some(SearchOutcome::Found), None, None)
    );
    let knee = report.knee.unwrap();
    assert!(knee.highest_good.unwrap() <= 900.0 && knee.lowest_bad.unwrap() >= 900.0, "{knee:?}");
    assert!(knee.lowest_bad.unwrap() / knee.highest_good.unwrap() < 2.1, "{knee:?}");
    let early = capped(LateAbove::new(10.0), 2_000.0);
    assert_eq!(early.outcome, Some(SearchOutcome::GoalUnreachable), "late from the first rate on");
}

/// A target that stalls for 61 ms every 1.96 s and otherwise responds at once.
struct Pausing;

impl SimulatedServer for Pausing {
    fn serve(&mut self, at: f64, _: &mut fastrand::Rng) -> SimulatedOutcome {
        let since = at.rem_euclid(1.957_845);
        SimulatedOutcome { end: at + 0.0002 + (0.061_166 - since).max(0.0), is_good: true }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

/// One response in fifty is late, which one trial of eight seconds cannot tell from one in a hundred.
#[test]
fn late_answers_that_may_be_chance_at_the_highest_rate_are_looked_at_for_longer() {
    let late = LatencyGoal { max_late_share: 0.01, latency_limit: Duration::from_millis(20) };
    let goal = SearchGoal { latency_goal: Some(late), ..BOTH };
    let mut target = SimulatedTarget::new(Box::new(Pausing), SimulatedArrivals::Constant, 0.02, 1);
    let mut procedure =
        RateSearch::new(goal, Profile::QUICK, RateBounds { max_rate: Some(279.0), ..RateBounds::default() });
    search(&mut procedure, &mut target);
    let report = procedure.report();
    assert_ne!(report.outcome, Some(SearchOutcome::NoLimitFound));
    assert_eq!(report.cliff.lowest_bad, None, "nothing breaks");
}

/// A target that fails one request in four hundred above a rate, which two seconds cannot tell from chance.
struct SeldomFailing {
    last: f64,
    served: u32,
}

impl SimulatedServer for SeldomFailing {
    fn serve(&mut self, at: f64, _: &mut fastrand::Rng) -> SimulatedOutcome {
        let much = at - self.last < 1.0 / 900.0;
        (self.last, self.served) = (at, self.served + 1);
        SimulatedOutcome { end: at + 0.005, is_good: !(much && self.served.is_multiple_of(400)) }
    }

    fn drop_waiting(&mut self, _: f64) {}
}

#[test]
fn what_breaks_while_the_highest_rate_is_held_is_no_cap() {
    let report = capped(SeldomFailing { last: 0.0, served: 0 }, 1_000.0);
    assert!(report.cliff.lowest_bad.is_some(), "{:?}", report.outcome);
    assert_ne!(report.outcome, Some(SearchOutcome::NoLimitFound));
}

/// A pool of eight that serves 200/s, on a machine that disturbs single trials of the search for the bracket.
struct Disturbed<F> {
    target: SimulatedTarget,
    trials: usize,
    disturb: F,
}

impl<F: FnMut(usize, f64, TrialObservation) -> TrialObservation> Disturbed<F> {
    fn search(disturb: F) -> SearchReport {
        Self::search_at(ServiceDistribution::Fixed(0.04), 1, disturb)
    }

    fn search_at(service: ServiceDistribution, seed: u64, disturb: F) -> SearchReport {
        let pool = SimulatedWorkers::new(8, service, 0.0);
        let target = SimulatedTarget::new(Box::new(pool), SimulatedArrivals::Constant, 0.25, seed);
        let mut procedure = RateSearch::new(SearchGoal::ERRORS_ONLY, Profile::QUICK, RateBounds::default());
        search(&mut procedure, &mut Self { target, trials: 0, disturb });
        procedure.report()
    }
}

impl<F: FnMut(usize, f64, TrialObservation) -> TrialObservation> SearchTarget for Disturbed<F> {
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
        let seen = self.target.carry_out(offer);
        if offer.purpose != TrialPurpose::NarrowBracket {
            return seen;
        }
        self.trials += 1;
        (self.disturb)(self.trials, offer.rate, seen)
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.target.rest(time)
    }
}

fn invalid(seen: TrialObservation) -> TrialObservation {
    TrialObservation { invalid_reason: Some("this machine was late".to_owned()), ..seen }
}

#[test]
fn a_generator_that_has_offered_the_rate_before_is_not_the_limit_however_many_trials_are_disturbed() {
    let report =
        Disturbed::search(|trial, _, seen| if (1..=4).contains(&trial) { invalid(seen) } else { seen });
    let bracket = report.cliff.bracket.unwrap();
    assert_eq!(report.outcome, Some(SearchOutcome::Found));
    assert!(bracket.lower < 200.0 && 200.0 < bracket.upper, "{bracket:?}");
}

#[test]
fn trials_that_are_all_invalid_find_no_limit() {
    let report = Disturbed::search(|_, _, seen| invalid(seen));
    assert_eq!(report.outcome, Some(SearchOutcome::GeneratorLimited));
    let failing_at_once = |_, _, seen| TrialObservation { took: Duration::ZERO, ..invalid(seen) };
    assert_eq!(Disturbed::search(failing_at_once).outcome, Some(SearchOutcome::GeneratorLimited));
}

/// Stalls of the target's machine made one trial bad, and the whole run undecided.
#[test]
fn a_bad_trial_below_the_bracket_is_repeated_and_does_not_count_if_its_repetition_is_not_bad() {
    for seed in [10, 20, 22, 27] {
        let mut bad = None;
        let stalled = |_, rate: f64, mut seen: TrialObservation| {
            if rate < 180.0 && bad.is_none() {
                bad = Some(rate);
                for (block, waiting) in seen.blocks.iter_mut().zip(0..) {
                    block.in_flight += 2 * waiting;
                }
            }
            seen
        };
        let report = Disturbed::search_at(ServiceDistribution::Exponential(0.04), seed, stalled);
        let same = report.trials.iter().filter(|trial| Some(trial.spec.rate) == bad);
        let told: Vec<_> = same.map(|trial| (trial.verdict, trial.weight)).collect();
        let bracket = report.cliff.bracket.unwrap();
        assert_eq!(told, [(TrialVerdict::Bad, 0.0), (TrialVerdict::Good, 1.0)], "{seed}: {bad:?}");
        assert_eq!(report.outcome, Some(SearchOutcome::Found));
        assert!(bad < Some(bracket.lower) && bracket.lower < 200.0 && 200.0 < bracket.upper, "{bracket:?}");
    }
}

#[test]
fn a_search_that_ended_without_an_answer_goes_on_with_more_time() {
    let pool = || SimulatedWorkers::new(8, ServiceDistribution::Fixed(0.04), 0.0);
    let target = || SimulatedTarget::new(Box::new(pool()), SimulatedArrivals::Constant, 0.25, 1);
    let disturbed = |offer: &TrialSpec| {
        let seen = target().carry_out(offer);
        if offer.purpose == TrialPurpose::Ramp { invalid(seen) } else { seen }
    };
    let mut limited = RateSearch::new(SearchGoal::ERRORS_ONLY, Profile::QUICK, RateBounds::default());
    while let Some(offer) = next_trial(&mut limited) {
        let seen = disturbed(&offer);
        limited.record_trial(&offer, seen);
    }
    assert_eq!(limited.report().outcome, Some(SearchOutcome::GeneratorLimited));
    limited.set_budgets(Duration::from_secs(300), Duration::ZERO);
    let next = next_trial(&mut limited).map(|offer| offer.purpose);
    assert_eq!((limited.report().outcome, next), (None, Some(TrialPurpose::Ramp)));
}

/// Returns the next trial of a search, after its pauses.
fn next_trial(procedure: &mut RateSearch) -> Option<TrialSpec> {
    loop {
        match procedure.next_step() {
            SearchStep::RunTrial(offer) => return Some(offer),
            SearchStep::Pause(time) => procedure.record_pause(time, true),
            SearchStep::Finished => return None,
        }
    }
}

#[test]
fn no_trial_is_at_a_rate_at_which_hardly_a_request_is_due() {
    // Each request hangs after the first overload, so the bracket reaches down to nothing.
    let hanging = |_, _, mut seen: TrialObservation| {
        for (block, waiting) in seen.blocks.iter_mut().zip(0..) {
            block.in_flight += waiting;
        }
        seen
    };
    let report = Disturbed::search(hanging);
    let lowest = report.trials.iter().map(|trial| trial.spec.rate).fold(f64::INFINITY, f64::min);
    assert!(lowest >= 0.4, "{lowest}");
}

/// A fast target whose first trial at the highest rate is invalid.
struct Distrusted {
    target: SimulatedTarget,
    distrusted: u32,
}

impl SearchTarget for Distrusted {
    fn carry_out(&mut self, offer: &TrialSpec) -> TrialObservation {
        let seen = self.target.carry_out(offer);
        let doubtful = offer.purpose == TrialPurpose::Confirm && self.distrusted == 0;
        self.distrusted += u32::from(doubtful);
        TrialObservation { invalid_reason: doubtful.then(|| "it is too late".to_owned()), ..seen }
    }

    fn rest(&mut self, time: Duration) -> bool {
        self.target.rest(time)
    }
}

#[test]
fn the_highest_rate_is_not_held_by_a_trial_that_cannot_be_believed() {
    let server = Failing { every: u32::MAX, served: 0 };
    let target = SimulatedTarget::new(Box::new(server), SimulatedArrivals::Constant, 0.25, 1);
    let bounds = RateBounds { max_rate: Some(500.0), ..RateBounds::default() };
    let mut procedure = RateSearch::new(BOTH, Profile::QUICK, bounds);
    search(&mut procedure, &mut Distrusted { target, distrusted: 0 });
    let report = procedure.report();
    let held = report.trials.iter().filter(|trial| trial.spec.purpose == TrialPurpose::Confirm);
    let votes: Vec<_> = held.map(|trial| trial.verdict).collect();
    assert_eq!(
        (report.outcome, votes),
        (Some(SearchOutcome::NoLimitFound), vec![TrialVerdict::Invalid, TrialVerdict::Good])
    );
}

/// A round-robin balancer with one slow server.
struct Uneven {
    servers: Vec<SimulatedWorkers>,
    next: usize,
}

impl SimulatedServer for Uneven {
    fn serve(&mut self, at: f64, rng: &mut fastrand::Rng) -> SimulatedOutcome {
        self.next = (self.next + 1) % self.servers.len();
        self.servers[self.next].serve(at, rng)
    }

    fn drop_waiting(&mut self, at: f64) {
        self.servers.iter_mut().for_each(|server| server.drop_waiting(at));
    }
}

/// Two of three responses stay quick, as with a hanging limiter.
#[test]
fn one_slow_server_among_quick_ones_queues_and_does_not_hang() {
    for (service, slower) in [(0.01, 8.0), (0.002, 4.0), (0.03, 3.0)] {
        let workers = |service| {
            let mut workers = SimulatedWorkers::new(10, ServiceDistribution::Fixed(service), 0.0);
            workers.frees_on_close = false;
            workers
        };
        let servers = vec![workers(service), workers(service), workers(slower * service)];
        let limit = 3.0 * 10.0 / (slower * service);
        let uneven = Uneven { servers, next: 0 };
        let mut target =
            SimulatedTarget::new(Box::new(uneven), SimulatedArrivals::Constant, f64::INFINITY, 1);
        let mut procedure = RateSearch::new(SearchGoal::ERRORS_ONLY, Profile::QUICK, RateBounds::default());
        search(&mut procedure, &mut target);
        let (kind, cliff) = (procedure.report().failure_mode, procedure.report().cliff.bracket.unwrap());
        assert_eq!(kind, Some(FailureMode::Queueing), "{service} s");
        assert!((cliff.lower..=cliff.upper).contains(&limit), "{cliff:?} without {limit}");
    }
}

/// A strong overload of such a limiter is not allowed, so an empty bucket shows as fewer errors.
#[test]
fn a_limiter_hardly_below_the_highest_rate_is_found_or_not_told() {
    for share in [0.87, 0.9, 0.95, 0.98] {
        let (fill, size) = (1_000.0 * share, 100.0);
        let bucket = SimulatedBucket {
            fill_rate: fill,
            size,
            left: size,
            counted_at: 0.0,
            service_time: ServiceDistribution::Fixed(0.001),
            refusal_response_seconds: 0.001,
        };
        let report = capped(bucket, 1_000.0);
        let cliff = report.cliff.bracket.unwrap();
        assert_eq!(report.outcome, Some(SearchOutcome::Found), "{share}");
        assert!(
            (cliff.lower..=cliff.upper).contains(&fill) && cliff.width_relative_to_lower() < 0.2,
            "{cliff:?} without {fill}"
        );
        assert!(report.cliff.lowest_bad.is_some());
    }
}

#[test]
fn a_limiter_below_the_first_rate_is_no_unstable_target() {
    let bucket = SimulatedBucket {
        fill_rate: 12.0,
        size: 1.0,
        left: 1.0,
        counted_at: 0.0,
        service_time: ServiceDistribution::Fixed(0.001),
        refusal_response_seconds: 0.001,
    };
    let mut target = SimulatedTarget::new(Box::new(bucket), SimulatedArrivals::Constant, 0.25, 1);
    let mut procedure = RateSearch::new(SearchGoal::ERRORS_ONLY, Profile::QUICK, RateBounds::default());
    search(&mut procedure, &mut target);
    let report = procedure.report();
    assert_eq!(report.outcome, Some(SearchOutcome::Found));
    let cliff = report.cliff.bracket.unwrap();
    assert!((cliff.lower / 1.1..=cliff.upper * 1.1).contains(&12.0), "{cliff:?}");
}
