//! Tests of inquiries on targets with a known cause.

use std::time::Duration;

use super::client::ModelTarget;
use super::network_parts::KeepAlivePolicy;
use super::planted_targets::{PlantedTarget, SINGLE_CAUSES};
use super::scores::{self, ScoredInquiry, diagnose_and_score_one, share};
use crate::class::CauseClass;
use crate::experiment::{Experiment, ExperimentLoad};
use crate::experiment_plans;
use crate::experiment_selection::{Inquiry, InquiryStep, SearchFindings, load_seconds};
use crate::experiment_target::ExperimentTarget;
use crate::observed_requests::{ExperimentObservation, ObservedOutcome, ObservedRequest};
use crate::report::DiagnosisReport;

/// Runs an inquiry and passes each observation to `change`.
fn inquire(
    plant: &mut PlantedTarget,
    mut change: impl FnMut(&Experiment, &mut ExperimentObservation, &mut ModelTarget),
) -> Inquiry {
    let mut inquiry = Inquiry::new(plant.search_findings.clone());
    for _ in 0..200 {
        match inquiry.next_step() {
            InquiryStep::Finished => return inquiry,
            InquiryStep::Pause(time) => {
                let goes_on = plant.simulated_target.pause(time);
                inquiry.record_pause(time, goes_on);
            }
            InquiryStep::RunExperiment(experiment) => {
                let mut watched = plant.simulated_target.run_experiment(&experiment);
                change(&experiment, &mut watched, &mut plant.simulated_target);
                inquiry.record_experiment(&experiment, watched);
            }
        }
    }
    panic!("an inquiry that has no end");
}

fn figure(score: &ScoredInquiry, class: CauseClass, name: &str) -> Option<f64> {
    let cause = score.report.causes.iter().find(|cause| cause.class == class)?;
    cause.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
}

/// The example prints these figures for many more seeds. This test only guards against a drop.
#[test]
fn most_single_causes_are_named_and_hardly_any_wrongly_with_confidence() {
    let scores = scores::score_single_causes(501..505);
    assert!(share(&scores, ScoredInquiry::is_right) >= 0.85, "{}", share(&scores, ScoredInquiry::is_right));
    let wrong = share(&scores, ScoredInquiry::is_wrong_with_confidence);
    assert!(wrong <= 0.03, "{wrong}");
    let second = share(&scores, |score| score.named.len() > 1);
    assert!(second <= 0.1, "a second cause where there is none: {second}");
}

#[test]
fn two_causes_are_both_named_more_often_than_not() {
    let scores = scores::score_cause_pairs(501..505);
    let both = share(&scores, ScoredInquiry::named_all_causes);
    assert!(both >= 0.5, "{both}");
}

#[test]
fn a_backlog_that_nobody_reads_is_a_connection_cap_of_its_size_and_one() {
    let score = diagnose_and_score_one(PlantedTarget::draw_connection_capped(1));
    assert_eq!(score.named, [CauseClass::ConnectionCap]);
    assert_eq!(figure(&score, CauseClass::ConnectionCap, "cap"), Some(1_025.0));
    assert_eq!(figure(&score, CauseClass::ConnectionCap, "power of two"), Some(1_024.0));
    assert_eq!(figure(&score, CauseClass::ConnectionCap, "connections"), Some(15.0));
}

#[test]
fn a_cap_that_closes_far_above_a_hanging_limiter_is_a_cause_beside_it() {
    let score = diagnose_and_score_one(PlantedTarget::draw_hanging_limiter(1));
    assert!(score.named_all_causes(), "{:?}", score.named);
}

#[test]
fn nothing_wrong_is_unknown() {
    for seed in 0..6 {
        assert_eq!(
            diagnose_and_score_one(PlantedTarget::draw_faultless(seed)).named,
            [CauseClass::Unknown],
            "seed {seed}"
        );
    }
}

#[test]
fn sizes_are_those_that_were_planted() {
    let workers: Vec<_> = (0..12).map(|seed| PlantedTarget::draw(CauseClass::PoolSaturation, seed)).collect();
    let mut close = 0;
    for plant in workers {
        let planted = plant.search_findings.limit_rate * plant.search_findings.service_time;
        let told = figure(&diagnose_and_score_one(plant), CauseClass::PoolSaturation, "workers");
        close += usize::from(told.is_some_and(|told| (told / planted - 1.0).abs() < 0.3));
    }
    assert!(close >= 10, "{close} of 12 pools");
}

#[test]
fn a_generator_that_cannot_keep_up_is_named_after_three_trials() {
    let mut plant = PlantedTarget::draw(CauseClass::RateLimiter, 1);
    plant.simulated_target.generator_max_rate = 0.0;
    let inquiry = inquire(&mut plant, |_, _, _| {});
    assert_eq!(inquiry.report().experiments.len(), 3);
    assert_eq!(inquiry.report().causes.first().map(|cause| cause.class), Some(CauseClass::Generator));
}

#[test]
fn one_trial_that_cannot_be_believed_is_tried_again() {
    let mut plant = PlantedTarget::draw(CauseClass::RateLimiter, 2);
    let mut times = 0;
    let inquiry = inquire(&mut plant, |_, watched, _| {
        times += 1;
        watched.invalid_reason = (times == 2).then(|| "this machine was busy".to_owned());
    });
    let near = inquiry
        .report()
        .experiments
        .iter()
        .filter(|tried| tried.experiment.name == "90 % of the limit")
        .count();
    assert_eq!(near, 2);
    assert_eq!(inquiry.report().causes.first().map(|cause| cause.class), Some(CauseClass::RateLimiter));
}

/// Beside two busy loops, three experiments in a row were invalid, and a limit that was found had the cause "unknown".
#[test]
fn experiments_that_this_machine_disturbs_hide_no_cause_that_valid_ones_show() {
    let mut plant = PlantedTarget::draw(CauseClass::RateLimiter, 2);
    let mut times = 0;
    let inquiry = inquire(&mut plant, |_, watched, _| {
        times += 1;
        watched.invalid_reason = (times > 3).then(|| "this machine was busy".to_owned());
    });
    assert!(inquiry.report().experiments.len() > 3 + 3, "{}", inquiry.report().experiments.len());
    assert_eq!(inquiry.report().causes.first().map(|cause| cause.class), Some(CauseClass::RateLimiter));
}

/// Regression: the next overload met the backlog of the last one, and all its requests hung, so a core was called a hanging limiter.
#[test]
fn after_an_overload_that_cannot_be_believed_it_is_looked_whether_the_target_is_itself_again() {
    let mut plant = PlantedTarget::draw(CauseClass::CpuSaturation, 2);
    let inquiry = inquire(&mut plant, |experiment, watched, _| {
        let busy = experiment.name == "150 % of the limit";
        watched.invalid_reason = busy.then(|| "this machine was busy".to_owned());
    });
    let tried: Vec<_> = inquiry.report().experiments.iter().map(|tried| tried.experiment.name).collect();
    assert_eq!(
        tried,
        [
            "half the limit",
            "90 % of the limit",
            "150 % of the limit",
            "recovery check",
            "150 % of the limit",
            "recovery check",
            "150 % of the limit"
        ]
    );
    assert_eq!(inquiry.report().causes.first().map(|cause| cause.class), Some(CauseClass::Generator));
}

/// Regression: the evidence for a pool was that responses come in step with 100 ms, with a strength of 0.05.
#[test]
fn what_is_told_of_a_cause_speaks_for_it_and_says_whether_it_was_seen() {
    for class in SINGLE_CAUSES {
        let report = diagnose_and_score_one(PlantedTarget::draw(class, 11)).report;
        for evidence in report.causes.iter().flat_map(|cause| &cause.evidence) {
            assert!(evidence.likelihood_ratio >= 2.0, "{class}: {evidence:?}");
            assert!(!evidence.observation.contains(" 0 times"), "{class}: {evidence:?}");
            let is_weak =
                evidence.observation.contains("come in step") && evidence.observation.contains("(0.0");
            assert!(!is_weak || evidence.observation.contains("do not"), "{class}: {evidence:?}");
        }
    }
}

#[test]
fn a_machine_that_never_had_a_port_is_told_no_number_of_connections() {
    let mut plant = PlantedTarget::draw(CauseClass::Ports, 4);
    plant.simulated_target.ports_per_source = 0;
    let inquiry = inquire(&mut plant, |_, _, _| {});
    let figures: Vec<_> = inquiry.report().causes.iter().flat_map(|cause| &cause.figures).collect();
    assert!(figures.iter().all(|figure| figure.value > 0.0), "{figures:?}");
}

#[test]
fn an_interrupted_inquiry_says_what_it_knows() {
    let mut plant = PlantedTarget::draw(CauseClass::RateLimiter, 3);
    let mut times = 0;
    let inquiry = inquire(&mut plant, |_, watched, _| {
        times += 1;
        watched.interrupted = times == 3;
    });
    assert_eq!(inquiry.report().experiments.len(), 3);
    assert_eq!(inquiry.report().causes.first().map(|cause| cause.class), Some(CauseClass::RateLimiter));
}

#[test]
fn what_cannot_be_carried_out_is_told_as_untested() {
    let mut plant = PlantedTarget::draw(CauseClass::Ports, 4);
    plant.simulated_target.has_one_source_address = true;
    let inquiry = inquire(&mut plant, |_, _, _| {});
    let impossible = |why: &str| why == "this machine has no second address";
    let report = inquiry.report();
    assert!(
        report.undecided_causes.iter().any(|untested| impossible(&untested.reason)),
        "{:?}",
        report.undecided_causes
    );
    assert_eq!(report.causes.first().map(|cause| cause.class), Some(CauseClass::Ports));
}

#[test]
fn no_inquiry_takes_more_load_than_its_budget_beyond_its_opening() {
    for class in SINGLE_CAUSES {
        for budget in [0, 8, 14] {
            let mut plant = PlantedTarget::draw(class, 5);
            plant.search_findings.time_budget = Duration::from_secs(budget);
            let (mut load, mut opening) = (0.0, 0.0);
            inquire(&mut plant, |experiment, _, _| {
                load += load_seconds(experiment);
                opening += if ["half the limit", "90 % of the limit", "150 % of the limit"]
                    .contains(&experiment.name)
                {
                    load_seconds(experiment)
                } else {
                    0.0
                };
            });
            assert!(load <= opening.max(budget as f64) + 1e-9, "{class}: {load} s for {budget} s");
        }
    }
}

#[test]
fn after_every_overload_it_is_looked_whether_the_target_is_itself_again() {
    let mut plant = PlantedTarget::draw(CauseClass::PoolSaturation, 6);
    let limit = plant.search_findings.limit_rate;
    let inquiry = inquire(&mut plant, |_, _, _| {});
    let overload = |load: &ExperimentLoad| matches!(load, ExperimentLoad::Rate { rate, .. } if *rate > limit);
    let tried = &inquiry.report().experiments;
    for pair in tried.windows(2).filter(|pair| overload(&pair[0].experiment.load)) {
        assert_eq!(pair[1].experiment.name, "recovery check", "after {}", pair[0].experiment.name);
    }
}

#[test]
fn a_target_that_does_not_come_to_itself_is_left_alone() {
    let mut plant = PlantedTarget::draw(CauseClass::PoolSaturation, 7);
    let inquiry = inquire(&mut plant, |experiment, watched, _| {
        if experiment.name == "recovery check" {
            watched.requests.iter_mut().for_each(|hit| hit.outcome = ObservedOutcome::TimedOut);
        }
    });
    assert_eq!(
        inquiry.report().experiments.last().map(|tried| tried.experiment.name),
        Some("recovery check")
    );
    assert!(
        inquiry
            .report()
            .undecided_causes
            .iter()
            .all(|untested| untested.reason.contains("has not recovered"))
    );
}

/// Regression: a process that was killed for its memory was called a connection cap with a CPU quota.
#[test]
fn what_is_tried_after_a_target_is_gone_is_no_sign_of_any_cause() {
    for (dies, since) in [("150 % of the limit", "90 % of the limit"), ("many clients", "150 % of the limit")]
    {
        let mut plant = PlantedTarget::draw(CauseClass::CpuSaturation, 7);
        let (mut alive, mut seen) = (Vec::new(), false);
        let inquiry = inquire(&mut plant, |experiment, watched, _| {
            seen |= experiment.name == dies;
            if seen {
                watched.requests.iter_mut().for_each(|hit| {
                    (hit.outcome, hit.sent, hit.carrying_connection) =
                        (ObservedOutcome::ConnectionRefused, None, None);
                });
            } else {
                alive.push(experiment.name);
            }
        });
        let report = inquiry.report();
        let last = if dies == "150 % of the limit" { since } else { alive.last().unwrap() };
        assert_eq!(report.last_answered_experiment, Some(last));
        assert_eq!(report.experiments.last().map(|tried| tried.experiment.name), Some("recovery check"));
        assert_ne!(report.causes.first().map(|cause| cause.class), Some(CauseClass::ConnectionCap));
        let tried =
            report.experiments.iter().filter(|tried| tried.experiment.name != "recovery check").count();
        assert!(tried <= alive.len() + 1, "{tried} after {alive:?}");
        assert!(
            report.undecided_causes.iter().all(|not| not.reason.contains("the target stopped answering")),
            "{:?}",
            report.undecided_causes
        );
    }
}

fn nobody(hit: &mut ObservedRequest) {
    (hit.outcome, hit.sent, hit.carrying_connection) = (ObservedOutcome::ConnectionRefused, None, None);
}

/// Regression: later failures were compared with a base in which most requests had failed.
#[test]
fn a_target_that_dies_at_half_the_limit_is_gone_and_nothing_is_told_of_it() {
    let mut plant = PlantedTarget::draw(CauseClass::HangingLimiter, 7);
    let mut tried = 0;
    let inquiry = inquire(&mut plant, |experiment, watched, _| {
        tried += usize::from(experiment.name != "recovery check");
        let lived = if experiment.name == "half the limit" { 10 } else { 0 };
        watched.requests.iter_mut().skip(lived).for_each(nobody);
    });
    let report = inquiry.report();
    assert_eq!((report.last_answered_experiment, tried), (Some("half the limit"), 1));
    // The answered requests had found a port.
    assert!(report.excluded.iter().all(|out| out.class == CauseClass::Ports), "{:?}", report.excluded);
}

/// Regression: a proxy still responded, and its 503 looked like a limiter with a fill rate of 0.
#[test]
fn a_target_that_dies_behind_a_proxy_is_gone_too() {
    let mut plant = PlantedTarget::draw(CauseClass::PoolSaturation, 7);
    let mut is_dead = false;
    let inquiry = inquire(&mut plant, |experiment, watched, _| {
        let lived = if is_dead { 0 } else { watched.requests.len() / 3 };
        is_dead |= experiment.name == "150 % of the limit";
        if is_dead {
            watched
                .requests
                .iter_mut()
                .skip(lived)
                .for_each(|hit| hit.outcome = ObservedOutcome::BadResponse(503));
        }
    });
    assert_eq!(inquiry.report().last_answered_experiment, Some("150 % of the limit"));
    assert_ne!(inquiry.report().causes.first().map(|cause| cause.class), Some(CauseClass::RateLimiter));
}

/// Regression: the connections that ended with the process counted as a keep-alive race.
#[test]
fn what_is_started_anew_during_an_experiment_that_is_not_too_much_was_not_tried_in_it() {
    let mut plant = PlantedTarget::draw(CauseClass::ConcurrencyCap, 7);
    let inquiry = inquire(&mut plant, |experiment, watched, _| {
        if experiment.name == "two connections" {
            watched.requests.iter_mut().skip(8).for_each(nobody);
            watched.requests.iter_mut().skip(8).take(4).for_each(|hit| hit.outcome = ObservedOutcome::Cut);
        }
    });
    let named: Vec<_> = inquiry.report().causes.iter().map(|cause| cause.class).collect();
    assert_eq!((named, inquiry.report().last_answered_experiment), (vec![CauseClass::ConcurrencyCap], None));
    let ties = inquiry.report().ties.iter().any(|tie| tie.between.contains(&CauseClass::KeepAliveRace));
    assert!(!ties, "{:?}", inquiry.report().ties);
}

#[test]
fn a_target_that_is_restarted_during_a_rest_is_not_gone() {
    let mut plant = PlantedTarget::draw(CauseClass::CpuSaturation, 7);
    let mut looks = 0;
    let inquiry = inquire(&mut plant, |experiment, watched, _| {
        looks += usize::from(experiment.name == "recovery check");
        if experiment.name == "recovery check" && looks < 3 {
            watched.requests.iter_mut().for_each(|hit| hit.outcome = ObservedOutcome::ConnectionRefused);
        }
    });
    assert_eq!(inquiry.report().last_answered_experiment, None);
    assert!(inquiry.report().experiments.iter().any(|tried| tried.experiment.name == "many clients"));
}

/// Regression: on a busy machine the generator stalled, and the report said that the target pauses.
#[test]
fn what_stands_still_while_the_generator_is_late_is_no_pause() {
    let named = |late: bool| {
        let mut plant = PlantedTarget::draw(CauseClass::RateLimiter, 9);
        let inquiry = inquire(&mut plant, |experiment, watched, _| {
            if matches!(experiment.load, ExperimentLoad::Rate { .. }) {
                stand_still(watched, 0.4, 0.08, late);
            }
        });
        let causes = inquiry.report().causes.iter().map(|cause| cause.class).collect::<Vec<_>>();
        causes.contains(&CauseClass::Pauses)
    };
    assert!(named(false));
    assert!(!named(true));
}

/// Regression: a target that its quota stopped in each period was said to pause.
#[test]
fn what_goes_on_again_whenever_a_quotas_period_ends_is_no_pause() {
    let named = |every: f64| {
        let mut plant = PlantedTarget::draw(CauseClass::RateLimiter, 9);
        let inquiry = inquire(&mut plant, |experiment, watched, _| {
            if matches!(experiment.load, ExperimentLoad::Rate { .. }) {
                stand_still(watched, every, 0.07, false);
            }
        });
        inquiry.report().clone()
    };
    let pauses =
        |report: &DiagnosisReport| report.causes.iter().any(|cause| cause.class == CauseClass::Pauses);
    let throttled = named(0.1);
    assert!(!pauses(&throttled), "{:?}", throttled.causes);
    // Stalls every 0.4 s are in step with 0.1 s, too.
    let paused = named(0.4);
    assert!(pauses(&paused), "{:?}", paused.causes);
    let tie = |report: &DiagnosisReport| {
        report.ties.iter().any(|tie| tie.between == [CauseClass::Pauses, CauseClass::CfsThrottling])
    };
    assert!(tie(&paused) && !tie(&throttled));
}

/// Adds a stall of this length every `every` seconds; `late` means that the generator stalled.
fn stand_still(watched: &mut ExperimentObservation, every: f64, length: f64, late: bool) {
    for hit in &mut watched.requests {
        let (begun, took) = ((hit.due / every).floor() * every, hit.response_time());
        let wait = begun + length - hit.due;
        if wait > 0.0 {
            hit.end = hit.due + wait + took;
            hit.generator_lag = if late { wait } else { 0.0 };
        }
    }
}

/// Regression: the inquiry asked for the same impossible experiment for ever.
#[test]
fn what_cannot_be_carried_out_is_not_asked_for_again() {
    for (name, tried_at_all) in [
        ("half the limit", &["half the limit"][..]),
        (
            "90 % of the limit",
            &["half the limit", "90 % of the limit", "150 % of the limit", "recovery check"],
        ),
        ("150 % of the limit", &["half the limit", "90 % of the limit", "150 % of the limit"]),
        ("recovery check", &["half the limit", "90 % of the limit", "150 % of the limit", "recovery check"]),
    ] {
        let mut plant = PlantedTarget::draw(CauseClass::PoolSaturation, 7);
        let inquiry = inquire(&mut plant, |experiment, watched, _| {
            if experiment.name == name {
                let why = Some("there is no way".to_owned());
                *watched =
                    ExperimentObservation { impossible_reason: why, ..ExperimentObservation::default() };
            }
        });
        let tried: Vec<_> = inquiry.report().experiments.iter().map(|tried| tried.experiment.name).collect();
        assert!(tried.starts_with(tried_at_all), "{name}: {tried:?}");
        assert_eq!(tried.iter().filter(|tried| **tried == name).count(), 1, "{tried:?}");
        let ends = matches!(name, "half the limit" | "recovery check");
        assert_eq!(tried.len() == tried_at_all.len(), ends, "{name}: {tried:?}");
    }
}

#[test]
fn an_opening_without_a_single_request_is_not_asked_for_again() {
    let mut plant = PlantedTarget::draw(CauseClass::PoolSaturation, 7);
    let inquiry = inquire(&mut plant, |_, watched, _| watched.requests.clear());
    let tried: Vec<_> = inquiry.report().experiments.iter().map(|tried| tried.experiment.name).collect();
    assert_eq!(tried, ["half the limit", "90 % of the limit", "150 % of the limit", "recovery check"]);
}

/// Regression: a wrong URL path and a port without TLS were called a connection cap, because all requests failed beside idle connections,
/// as they did without them.
#[test]
fn where_nothing_is_answered_at_half_the_limit_nothing_is_tried_but_the_opening() {
    let mut plant = PlantedTarget::draw(CauseClass::PoolSaturation, 7);
    let inquiry = inquire(&mut plant, |_, watched, _| {
        watched.requests.iter_mut().for_each(|hit| hit.outcome = ObservedOutcome::BadResponse(404));
    });
    let tried: Vec<_> = inquiry.report().experiments.iter().map(|tried| tried.experiment.name).collect();
    assert_eq!(tried, ["half the limit", "90 % of the limit", "150 % of the limit", "recovery check"]);
    assert_eq!(inquiry.report().causes.first().map(|cause| cause.class), Some(CauseClass::Unknown));
}

/// Regression: servers that are slow after the kernel completes a connection were called one core or one worker.
#[test]
fn a_cost_of_connections_that_no_connect_shows_is_told_from_a_core() {
    for seed in 0..5 {
        let mut plant = PlantedTarget::draw(CauseClass::ChurnCost, seed);
        plant.search_findings.tls = false;
        let inquiry = inquire(&mut plant, |_, watched, _| {
            let carriers = watched.requests.iter_mut().filter_map(|hit| hit.carrying_connection.as_mut());
            carriers.for_each(|carrier| (carrier.connect, carrier.tls_handshake_seconds) = (0.000_1, None));
        });
        let named = inquiry.report().causes.first().map(|cause| cause.class);
        assert_eq!(named, Some(CauseClass::ChurnCost), "{seed}");
    }
}

/// Regression: a limiter in another region was unknown, because its refusals took as long as good responses.
#[test]
fn a_rate_limiter_behind_a_long_path_is_one() {
    for seed in 0..8 {
        let mut plant = PlantedTarget::draw(CauseClass::RateLimiter, seed);
        plant.search_findings.service_time += 0.04;
        let inquiry = inquire(&mut plant, |_, watched, _| {
            watched.requests.iter_mut().for_each(|hit| hit.end += 0.04);
        });
        let named = inquiry.report().causes.first().map(|cause| cause.class);
        assert_eq!(named, Some(CauseClass::RateLimiter), "{seed}");
    }
}

/// Regression: a wait of half a millisecond did not count, and only one in eight causes fitted.
#[test]
fn a_delaying_limiter_whose_answers_are_far_shorter_than_its_distance_is_no_core_and_no_pool() {
    for seed in 0..8 {
        let plant = PlantedTarget::draw_local(CauseClass::DelayingLimiter, seed);
        let hardly = plant.search_findings.limit_rate * plant.search_findings.service_time < 0.4;
        let named = diagnose_and_score_one(plant).named;
        assert!(!hardly || named.first() == Some(&CauseClass::DelayingLimiter), "seed {seed}: {named:?}");
    }
}

/// Regression: on a busy machine connects took longer above the limit. This was called a cost of connections, although no connection was
/// new below the limit.
#[test]
fn connections_that_only_a_queue_makes_necessary_are_no_cost_of_connections() {
    for seed in 0..4 {
        let mut plant = PlantedTarget::draw(CauseClass::PoolSaturation, seed);
        plant.simulated_target.keep_alive_policy.closes_after_each_response = false;
        let inquiry = inquire(&mut plant, |experiment, watched, _| {
            let carriers = watched.requests.iter_mut().filter_map(|hit| hit.carrying_connection.as_mut());
            let late = if experiment.name == "150 % of the limit" { 0.027 } else { 0.0 };
            carriers.for_each(|carrier| carrier.connect += late);
        });
        let named = inquiry.report().causes.first().map(|cause| cause.class);
        assert_ne!(named, Some(CauseClass::ChurnCost), "{seed}");
    }
}

/// Regression: each connection was closed before its second use, which looked like a server that closes every connection.
#[test]
fn a_race_that_every_request_at_half_the_limit_loses_is_one() {
    let named =
        |seed| diagnose_and_score_one(PlantedTarget::draw_local(CauseClass::KeepAliveRace, seed)).named;
    let raced = (0..12).filter(|seed| named(*seed).first() == Some(&CauseClass::KeepAliveRace)).count();
    assert!(raced >= 11, "{raced} of 12");
}

#[test]
fn how_long_idle_connections_live_is_halved_where_a_race_was_seen_and_nowhere_else() {
    for (idle, resent) in [(0.02, true), (0.2, false), (0.45, true)] {
        let mut plant = PlantedTarget::draw_faultless(4);
        plant.simulated_target.keep_alive_policy =
            KeepAlivePolicy { idle_timeout: idle, client_retries: resent, ..KeepAlivePolicy::EVER };
        let inquiry = inquire(&mut plant, |_, _, _| {});
        let cause = inquiry.report().causes.first().unwrap();
        assert_eq!(cause.class, CauseClass::KeepAliveRace, "{idle}");
        let figure = cause.figures.iter().find(|figure| figure.name == "closes connections idle for");
        let told = figure.map_or(0.0, |figure| figure.value);
        assert!((told / idle - 1.0).abs() < 0.15, "{told} for {idle}: {:?}", cause.figures);
        let halvings =
            inquiry.report().experiments.iter().filter(|tried| tried.experiment.name == "idle timeout");
        let load: f64 = halvings.map(|tried| load_seconds(&tried.experiment)).sum();
        assert!(load < 3.0, "{load} s");
    }
    let inquiry = inquire(&mut PlantedTarget::draw_faultless(4), |_, _, _| {});
    assert!(inquiry.report().experiments.iter().all(|tried| tried.experiment.name != "idle timeout"));
}

/// At 65/s one request in 127 failed, so the 208 requests of four seconds had one or two failures.
#[test]
fn connections_are_used_until_as_many_fail_as_tell_a_habit_from_chance() {
    let used = |failing| {
        let mut plant = PlantedTarget::draw(CauseClass::KeepAliveRace, 5);
        (plant.search_findings.limit_rate, plant.search_findings.failure_share_at_any_rate) = (65.0, failing);
        plant.search_findings.time_budget = Duration::from_secs(90);
        let mut used = Duration::ZERO;
        inquire(&mut plant, |experiment, _, _| {
            if let ("two connections", ExperimentLoad::Rate { lasts, .. }) =
                (experiment.name, &experiment.load)
            {
                used = *lasts;
            }
        });
        used
    };
    assert_eq!(used(0.0), Duration::from_secs(4));
    let expected = 4.0 / (0.8 * 65.0 * 0.008);
    assert!((used(0.008).as_secs_f64() - expected).abs() < 0.01, "{:?}", used(0.008));
    assert_eq!(used(1e-6), Duration::from_secs(15));
}

/// The proxy needs twice the load of a one-second queue, and a time limit for three tries.
#[test]
fn who_gives_up_after_more_than_a_line_of_one_second_is_seen_in_a_longer_one() {
    let mut in_line = 0;
    for seed in 1..21 {
        let mut plant = PlantedTarget::draw(CauseClass::TimeoutChain, seed);
        let mut tried = false;
        let inquiry = inquire(&mut plant, |experiment, _, _| tried |= experiment.name == "long queue");
        let named = inquiry.report().causes.first().map(|cause| cause.class);
        assert_eq!(named, Some(CauseClass::TimeoutChain), "seed {seed}");
        in_line += usize::from(tried);
    }
    assert!(in_line >= 3, "{in_line} of 20 needed it");
}

#[test]
fn every_client_that_sends_again_at_once_is_bounded() {
    for class in SINGLE_CAUSES {
        let mut plant = PlantedTarget::draw(class, 8);
        let limit = plant.search_findings.limit_rate;
        inquire(&mut plant, |experiment, _, _| {
            assert!(experiment.in_flight_cap > 0, "{}", experiment.name);
            if let ExperimentLoad::Clients { requests, .. } = experiment.load {
                assert!(
                    requests as f64 <= (3.0 * limit + 1.0).max(1_800.0),
                    "{}: {requests}",
                    experiment.name
                );
            }
        });
    }
}

#[test]
fn a_limit_that_is_none_ends_the_inquiry_without_load() {
    let known = SearchFindings {
        limit_rate: f64::NAN,
        service_time: 0.01,
        timeout: 30.0,
        failure_share_at_any_rate: 0.0,
        keep_alive: true,
        tls: false,
        target_is_name: false,
        max_rate: None,
        generator_max_rate: None,
        time_budget: Duration::from_secs(30),
    };
    let mut inquiry = Inquiry::new(known);
    assert_eq!(inquiry.next_step(), InquiryStep::Finished);
    assert_eq!(inquiry.report().causes.first().map(|cause| cause.class), Some(CauseClass::Unknown));
}

/// Regression: the load of clients and bursts followed the found limit: 71 requests in one second, with 40 allowed.
#[test]
fn no_second_of_an_inquiry_has_more_requests_than_the_user_lets_be_offered() {
    for (class, share) in
        SINGLE_CAUSES.into_iter().flat_map(|class| [0.8, 1.2, 2.0, 4.0].map(|share| (class, share)))
    {
        let mut plant = PlantedTarget::draw(class, 12);
        let most = (share * plant.search_findings.limit_rate).floor();
        plant.search_findings.max_rate = Some(most);
        let busiest = busiest_second(&due(&mut plant));
        assert!(
            busiest as f64 <= most + 1.0,
            "{class}: {busiest} in a second, and no more than {most} may be"
        );
    }
}

/// Returns the due times of all requests of an inquiry, sorted, in seconds.
fn due(plant: &mut PlantedTarget) -> Vec<f64> {
    let (mut inquiry, mut due) = (Inquiry::new(plant.search_findings.clone()), Vec::new());
    loop {
        match inquiry.next_step() {
            InquiryStep::Finished => break,
            InquiryStep::Pause(time) => {
                let goes_on = plant.simulated_target.pause(time);
                inquiry.record_pause(time, goes_on);
            }
            InquiryStep::RunExperiment(experiment) => {
                assert!(
                    experiment_plans::max_requests_per_second(&experiment.load)
                        <= plant.search_findings.max_rate.unwrap()
                );
                let quiet = match experiment.load {
                    ExperimentLoad::Bursts { quiet, .. } => quiet.as_secs_f64(),
                    _ => 0.0,
                };
                let began = plant.simulated_target.now + quiet;
                let watched = plant.simulated_target.run_experiment(&experiment);
                due.extend(watched.requests.iter().map(|hit| began + hit.due));
                inquiry.record_experiment(&experiment, watched);
            }
        }
    }
    due.sort_by(f64::total_cmp);
    due
}

fn busiest_second(due: &[f64]) -> usize {
    // The window is slightly shorter than a second, so that requests one second apart are in two windows.
    let within = |from: &f64| due.iter().filter(|at| (*from..from + 1.0 - 1e-6).contains(*at)).count();
    due.iter().map(within).max().unwrap_or(0)
}

#[test]
fn what_the_user_lets_no_load_have_room_for_is_told_as_not_tried() {
    let mut plant = PlantedTarget::draw(CauseClass::PoolSaturation, 12);
    plant.search_findings.max_rate = Some(1.1 * plant.search_findings.limit_rate);
    let inquiry =
        inquire(&mut plant, |experiment, _, _| assert_ne!(experiment.name, "three bursts in a row"));
    let untested = &inquiry.report().undecided_causes;
    assert!(untested.iter().any(|not| not.reason.contains("--max-rate")), "{untested:?}");
}

#[test]
fn no_load_is_at_a_higher_rate_than_allowed() {
    for plant in SINGLE_CAUSES
        .map(|class| PlantedTarget::draw(class, 10))
        .into_iter()
        .chain([PlantedTarget::draw_connection_capped(3)])
    {
        let mut plant = plant;
        let most = 1.2 * plant.search_findings.limit_rate;
        plant.search_findings.max_rate = Some(most);
        inquire(&mut plant, |experiment, _, _| {
            if let ExperimentLoad::Rate { rate, .. } = experiment.load {
                assert!(rate <= most * 1.001, "{}: {rate}", experiment.name);
            }
        });
    }
}

#[test]
fn a_step_stays_the_same_until_it_was_told_what_came_of_it() {
    let mut inquiry = Inquiry::new(PlantedTarget::draw(CauseClass::Dns, 1).search_findings);
    assert_eq!(inquiry.next_step(), inquiry.next_step());
}

#[test]
fn ties_name_what_would_tell() {
    let score = diagnose_and_score_one(PlantedTarget::draw(CauseClass::CpuSaturation, 9));
    let tie = score.report.ties.iter().find(|tie| tie.between.contains(&CauseClass::CpuSaturation));
    assert!(tie.is_some_and(|tie| tie.how_to_tell.contains("--server-cgroup")), "{:?}", score.report.ties);
}

/// Regression: a bucket of three was called a concurrency cap, because it refuses the fourth simultaneous request however fast the
/// responses are.
#[test]
fn a_small_bucket_is_no_cap_and_a_cap_no_bucket() {
    let right = |class: CauseClass, draw: fn(CauseClass, u64) -> PlantedTarget| {
        let named = |seed| diagnose_and_score_one(draw(class, seed)).named.first().copied();
        (1..21).filter(|seed| named(*seed) == Some(class)).count()
    };
    for draw in [PlantedTarget::draw, PlantedTarget::draw_local] {
        for class in [CauseClass::RateLimiter, CauseClass::ConcurrencyCap] {
            let right = right(class, draw);
            assert!(right >= 18, "{class}: {right} of 20");
        }
    }
}
