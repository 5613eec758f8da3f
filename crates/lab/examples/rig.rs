//! Searches a URL's limit by hand, trial by trial: `rig URL [quick|thorough] [late=MS] [poisson]`; or offers a rate for five seconds:
//! `rig URL rate=N`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints what it does")]

use std::time::Duration;

use seawall_lab::rig::{LocalDriver, SessionConfig};
use seawall_lab::target_driver::TargetDriver;
use seawall_load::plan::TransportOptions;
use seawall_load::request::{PreparedRequest, RequestFraming};
use seawall_load::request_source::RequestList;
use seawall_load::schedule::ArrivalSpacing;
use seawall_load::target::{Target as Asked, Weight};
use seawall_search::goal::{LatencyGoal, SearchGoal};
use seawall_search::observation::{BlockCounts, mean_latency, sum};
use seawall_search::report::RateTrial;
use seawall_search::search::{RateBounds, RateSearch, SearchStep};
use seawall_search::search_profile::Profile;
use seawall_search::target::SearchTarget;
use seawall_search::trial_spec::{StopRule, TrialPurpose, TrialSpec};
use seawall_search::trial_verdict::TrialCriteria;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(url) = words.first() else {
        return Err("usage: rig URL [quick|thorough] [late=MS] [poisson]".into());
    };
    let said = |word: &str| words.iter().any(|said| said == word);
    let late =
        words.iter().find_map(|word| word.strip_prefix("late=")?.parse().ok()).map(Duration::from_millis);
    let asked = Asked { method: "GET".into(), url: url.clone(), ..Asked::default() };
    let request = PreparedRequest::new(&asked, &RequestFraming::default())?;
    let list = RequestList::new(vec![(request, Weight::default())])?;
    let kit = SessionConfig {
        request_list: list,
        transport: TransportOptions::default(),
        request_framing: RequestFraming::default(),
        max_sender_threads: 2,
        max_busy_poll: None,
    };
    let spacing = if said("poisson") { ArrivalSpacing::Poisson(1) } else { ArrivalSpacing::Constant };
    let mut rig = LocalDriver::new(kit, spacing, late)?;
    let calibration = rig.calibrate();
    println!("{:?} in {:.2?}: {}", calibration.max_rate, calibration.took, calibration.explanation);
    let rate = words.iter().find_map(|word| word.strip_prefix("rate=")?.parse().ok());
    if let Some(rate) = rate {
        offered(&mut rig, rate);
        return Ok(());
    }
    let goal = SearchGoal {
        latency_goal: late.map(|than| LatencyGoal { max_late_share: 0.01, latency_limit: than }),
        ..SearchGoal::ERRORS_ONLY
    };
    let profile = if said("thorough") { Profile::THOROUGH } else { Profile::QUICK };
    let bounds = RateBounds { generator_max_rate: calibration.max_rate, ..RateBounds::default() };
    searched(&mut RateSearch::new(goal, profile, bounds), &mut rig);
    Ok(())
}

/// One rate, whatever comes of it.
fn offered(rig: &mut LocalDriver, rate: f64) {
    let standard = TrialCriteria {
        goal: SearchGoal::ERRORS_ONLY,
        growth_tolerance: 1.0,
        settle: 0.3,
        min_settled_seconds_for_good: 1.0,
        service_time: 0.0,
        baseline_slowest: 0.0,
    };
    let (most, drain) = (Duration::from_secs(5), Duration::from_millis(600));
    let (purpose, rule, most_in_flight) =
        (TrialPurpose::Confirm, StopRule::FullDurationUnlessBad(standard), rate);
    let seen = rig.carry_out(&TrialSpec {
        purpose,
        rate,
        min_duration: most,
        max_duration: most,
        rule,
        in_flight_cap: most_in_flight,
        drain,
    });
    let of = |of: fn(&BlockCounts) -> u32| sum(&seen.blocks, of);
    let slowest = seen.blocks.iter().map(|block| block.slowest).fold(0.0, f64::max);
    let latency = mean_latency(&seen.blocks).unwrap_or_default();
    println!(
        "{} sent, {} good, {} errors, {} late; mean {:.3} ms, slowest {:.3} ms; {} blocks in {:.2?}; {:?}",
        of(|block| block.sent),
        of(|block| block.good),
        of(|block| block.errors),
        of(|block| block.late),
        1e3 * latency,
        1e3 * slowest,
        seen.blocks.len(),
        seen.took,
        seen.invalid_reason
    );
}

fn searched(search: &mut RateSearch, rig: &mut LocalDriver) {
    loop {
        match search.next_step() {
            SearchStep::RunTrial(offer) => {
                let seen = rig.carry_out(&offer);
                search.record_trial(&offer, seen);
                if let Some(trial) = search.report().trials.last() {
                    println!("{}", line(trial));
                }
            }
            SearchStep::Pause(time) => {
                let goes_on = rig.rest(time);
                search.record_pause(time, goes_on);
            }
            SearchStep::Finished => break,
        }
    }
    let report = search.report();
    println!(
        "{:?} {:?} knee {:?} {:?} in {:.1?}",
        report.outcome, report.cliff, report.knee, report.failure_mode, report.took
    );
}

fn line(trial: &RateTrial) -> String {
    let RateTrial { spec: offer, seen, evidence, verdict, began, .. } = trial;
    format!(
        "{:7.1?} {:9} {:9.1}/s {:5.2?} {:?}, {:.0} in flight at the end, {:.2} % errors, mean of the last responses {:.3} ms {}",
        began,
        format!("{:?}", offer.purpose),
        offer.rate,
        seen.took,
        verdict,
        evidence.in_flight_end,
        1e2 * evidence.errors.value(),
        1e3 * evidence.mean_latency_at_end.unwrap_or_default(),
        seen.invalid_reason.as_deref().unwrap_or_default()
    )
}
