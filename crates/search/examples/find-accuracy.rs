//! Scores searches on simulated targets and prints tables in Markdown. benches/find-accuracy calls it.
//!
//! `find-accuracy PLANTS SEARCHES SEED [quick|thorough] [knee] [class=NAME] [detail] [compare|clients]` runs SEARCHES searches on each of
//! PLANTS targets per class.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints tables")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use seawall_search::compare::{ComparedRun, Comparison, IncomparableRuns, LimitChange, compare};
use seawall_search::goal::{LatencyGoal, SearchGoal};
use seawall_search::search_profile::Profile;
use seawall_search::simulated::scores::{ClosedLoopScore, SearchScore, percent_true, quantile};
use seawall_search::simulated::target_specs::{SimulatedClass, SimulatedTargetSpec, TrueLimits};

struct Asked {
    plants: usize,
    searches: usize,
    seed: u64,
    profile: Profile,
    goal: SearchGoal,
    class: Option<String>,
    detail: bool,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(asked) = asked(&words) else {
        eprintln!(
            "usage: find-accuracy PLANTS SEARCHES SEED [quick|thorough] [knee] [class=NAME] [detail] [compare|clients]"
        );
        std::process::exit(2);
    };
    if words.iter().any(|word| word == "compare") {
        return compared(&asked);
    }
    if words.iter().any(|word| word == "clients") {
        return clients(&asked);
    }
    let scores = run(&asked);
    if asked.detail {
        scores.iter().for_each(detail);
    }
    table(&scores);
}

fn asked(words: &[String]) -> Option<Asked> {
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let said = |word: &str| words.iter().any(|said| said == word);
    let late = LatencyGoal { max_late_share: 0.01, latency_limit: Duration::from_millis(250) };
    Some(Asked {
        plants: usize::try_from(number(0)?).ok()?,
        searches: usize::try_from(number(1)?).ok()?,
        seed: number(2)?,
        profile: if said("thorough") { Profile::THOROUGH } else { Profile::QUICK },
        goal: SearchGoal { latency_goal: said("knee").then_some(late), ..SearchGoal::ERRORS_ONLY },
        class: words.iter().find_map(|word| word.strip_prefix("class=").map(str::to_owned)),
        detail: said("detail"),
    })
}

/// Scores `compare` on pairs of runs against the same target, and against a target and a slower one.
fn compared(asked: &Asked) {
    println!("| after | pairs | better % | worse % | undecided % | refused % | interval holds the ratio % |");
    println!("|---|---|---|---|---|---|---|");
    for (share, name) in [(1.0, "the same"), (0.9, "10 % less"), (0.95, "5 % less"), (0.97, "3 % less")] {
        let plants = plants(asked, |class| class != SimulatedClass::Credits);
        let said = each(&plants, |(class, plant)| vec![pair(asked, *class, *plant, share)]);
        let told =
            |change| percent_true(said.iter().map(|said| said.is_ok_and(|said| said.change == change)));
        let [better, worse, unknown] =
            [LimitChange::Better, LimitChange::Worse, LimitChange::Undecided].map(told);
        let refused = percent_true(said.iter().map(Result::is_err));
        let stated = said.iter().flatten().map(|said| said.ratio_bracket);
        let holds = percent_true(stated.map(|ratio| ratio.lower <= share && share <= ratio.upper));
        println!(
            "| {name} | {} | {better:.1} | {worse:.1} | {unknown:.1} | {refused:.1} | {holds:.1} |",
            said.len()
        );
    }
}

fn pair(
    asked: &Asked,
    class: SimulatedClass,
    index: usize,
    share: f64,
) -> Result<Comparison, IncomparableRuns> {
    let seed = seed(asked, class, index);
    let plant = SimulatedTargetSpec::draw(class, seed);
    let truth = TrueLimits { cliff: plant.capacity, knee: plant.capacity };
    let [before, after] = [(&plant, 1), (&plant.with_capacity_share(share), 2)].map(|(plant, nth)| {
        let score = SearchScore::run_search(plant, truth, asked.goal, asked.profile, seed ^ (nth << 48));
        ComparedRun::of(&score.report, "as the plant has it", "none")
    });
    compare(&before, &after)
}

/// The most clients, and the number of requests of a long run that gives the true limit.
const CLIENTS: (u32, u32) = (4096, 150_000);

/// Scores searches for a number of clients. The saturation rate is compared with the planted capacity, which more clients do not raise.
fn clients(asked: &Asked) {
    let scores = each(&plants(asked, SimulatedClass::is_steady), |(class, index)| {
        let seed = seed(asked, *class, *index);
        let plant = SimulatedTargetSpec::draw(*class, seed);
        let of = |nth: u64| {
            ClosedLoopScore::run_search(&plant, asked.goal, asked.profile, CLIENTS, seed ^ (nth << 48))
        };
        (1..=asked.searches as u64).map(of).collect()
    });
    if asked.detail {
        scores.iter().for_each(closed_detail);
    }
    println!(
        "| class | searches | limit held % (stated %) | error p50/p90 % | width p50 % | most good answers a second, of the capacity, p10/p50/p90 | time p50/p90 s |\n|---|---|---|---|---|---|---|"
    );
    for class in SimulatedClass::ALL {
        closed_row(&format!("{class:?}"), &scores.iter().filter(|of| of.class == class).collect::<Vec<_>>());
    }
    closed_row("all", &scores.iter().collect::<Vec<_>>());
}

fn closed_row(name: &str, scores: &[&ClosedLoopScore]) {
    if scores.is_empty() {
        return;
    }
    let held: Vec<_> = scores.iter().filter_map(|score| score.covers()).collect();
    let stated = 100.0 * held.len() as f64 / scores.len() as f64;
    let error = |share| 100.0 * quantile(scores.iter().filter_map(|score| score.error()), share);
    let brackets = scores.iter().filter_map(|score| score.report.limit.lower_estimate_upper);
    let width = brackets.map(|[low, _, high]| f64::from(high - low) / f64::from(low.max(1)));
    let rates = scores.iter().filter_map(|score| Some(score.report.saturation?.rate / score.capacity));
    let rates: Vec<_> = rates.collect();
    let rate = |share| quantile(rates.iter().copied(), share);
    let time = |share| quantile(scores.iter().map(|score| score.report.took.as_secs_f64()), share);
    println!(
        "| {name} | {} | {:.1} ({stated:.0}) | {:.1}/{:.1} | {:.1} | {:.2}/{:.2}/{:.2} | {:.0}/{:.0} |",
        scores.len(),
        percent_true(held),
        error(0.5),
        error(0.9),
        100.0 * quantile(width, 0.5),
        rate(0.1),
        rate(0.5),
        rate(0.9),
        time(0.5),
        time(0.9),
    );
}

fn closed_detail(score: &ClosedLoopScore) {
    let ClosedLoopScore { class, truth, report, capacity } = score;
    println!(
        "\n{class:?} {capacity:.0}/s truth {truth} {:?} covers {:?} {:?} {:?} {:.4}s {:?} {:.0}s",
        report.limit,
        score.covers(),
        report.outcome,
        report.failure_mode,
        report.service_time,
        report.saturation,
        report.took.as_secs_f64()
    );
    for trial in &report.trials {
        let e = &trial.evidence.evidence;
        println!(
            "  {:6.1} {:9?} {:6} {:5.1}s {:?} {:?} err {:.4}of{:.0}x{:.1} late {:.4}of{:.0}x{:.1} X {:.1} R {:.4}",
            trial.began.as_secs_f64(),
            trial.spec.purpose,
            trial.spec.clients,
            trial.seen.took.as_secs_f64(),
            trial.trial_verdict,
            trial.failure_mode,
            e.errors.value(),
            e.errors.total,
            e.errors.inflation,
            e.late.value(),
            e.late.total,
            e.late.inflation,
            e.goodput,
            trial.mean_response_time.unwrap_or_default()
        );
    }
}

fn seed(asked: &Asked, class: SimulatedClass, index: usize) -> u64 {
    asked.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((class as u64) << 32 | index as u64)
}

/// The classes and numbers of all requested targets.
fn plants(asked: &Asked, wanted: impl Fn(SimulatedClass) -> bool) -> Vec<(SimulatedClass, usize)> {
    let named =
        |class: &&SimulatedClass| asked.class.as_ref().is_none_or(|name| format!("{class:?}") == *name);
    let classes = SimulatedClass::ALL.iter().filter(named).filter(|class| wanted(**class));
    classes.flat_map(|class| (0..asked.plants).map(move |plant| (*class, plant))).collect()
}

/// Runs `of` for each target on two threads and collects the results in any order.
fn each<T: Send>(
    plants: &[(SimulatedClass, usize)],
    of: impl Fn(&(SimulatedClass, usize)) -> Vec<T> + Sync,
) -> Vec<T> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(plant) = plants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = of(plant);
                    if let Ok(mut all) = all.lock() {
                        all.extend(found);
                    }
                }
            });
        }
    });
    all.into_inner().unwrap_or_default()
}

fn run(asked: &Asked) -> Vec<SearchScore> {
    each(&plants(asked, |_| true), |(class, plant)| of_plant(asked, *class, *plant))
}

fn of_plant(asked: &Asked, class: SimulatedClass, index: usize) -> Vec<SearchScore> {
    let seed = seed(asked, class, index);
    let plant = SimulatedTargetSpec::draw(class, seed);
    let truth = plant.true_limits(&asked.goal, 150_000);
    (0..asked.searches)
        .map(|search| {
            SearchScore::run_search(
                &plant,
                truth,
                asked.goal,
                asked.profile,
                seed ^ ((search as u64 + 1) << 48),
            )
        })
        .collect()
}

fn detail(score: &SearchScore) {
    let SearchScore { class, truth, report, .. } = score;
    let seconds = report.took.as_secs_f64();
    println!(
        "\n{class:?} truth {:.1}/{:.1} cliff {:?} {:?} {:.0}s {:?}",
        truth.cliff, truth.knee, report.cliff.bracket, report.failure_mode, seconds, report.outcome
    );
    println!(
        "  covers {} {:?} knee {:?} depletion {:?} recovery {:?}",
        score.covers_cliff(),
        score.covers_knee(),
        report.knee.map(|knee| knee.bracket),
        report.quota_exhaustion,
        report.recovery
    );
    for trial in &report.trials {
        let e = &trial.evidence;
        println!(
            "  {:6.1} {:9?} {:9.1} ({:.3}) {:5.1}s {:?} {:?} w{} d={:.4} from {:.0} to {:.0} err {:.4} late {:.4}x{:.1} disp {:.2} held {:.1}",
            trial.began.as_secs_f64(),
            trial.spec.purpose,
            trial.spec.rate,
            trial.spec.rate / truth.cliff,
            trial.seen.took.as_secs_f64(),
            trial.verdict,
            trial.failure_mode,
            trial.weight,
            e.in_flight_growth_share(),
            e.in_flight_settled,
            e.in_flight_end,
            e.errors.value(),
            e.late.value(),
            e.late.inflation,
            e.response_dispersion.variance_ratio_shrunk_toward(0.7, 1.0),
            e.unqueued_seconds
        );
    }
}

fn table(scores: &[SearchScore]) {
    println!(
        "| class or capacity | searches | cliff held % | error p50/p90 % | width % | knee held % (stated %) | error p50/p90 % | time p50/p90 s | over p50/p90 s | failed p50 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for class in SimulatedClass::ALL {
        let of: Vec<_> = scores.iter().filter(|score| score.class == class).collect();
        row(&format!("{class:?}"), &of);
    }
    for (low, high) in [(0.0, 200.0), (200.0, 1000.0), (1000.0, 5000.0), (5000.0, 1e9)] {
        let within: Vec<_> = scores.iter().filter(|score| (low..high).contains(&score.capacity)).collect();
        row(&format!("from {low}/s"), &within);
    }
    let steady: Vec<_> = scores.iter().filter(|score| score.class.is_steady()).collect();
    row("all but drift, credits, metastable", &steady);
    row("all", &scores.iter().collect::<Vec<_>>());
}

fn row(name: &str, scores: &[&SearchScore]) {
    if scores.is_empty() {
        return;
    }
    let both = |of: &dyn Fn(&SearchScore) -> f64, scale: f64| {
        let of = |share| scale * quantile(scores.iter().map(|score| of(score)), share);
        format!("{:.2}/{:.1}", of(0.5), of(0.9))
    };
    let knees: Vec<_> = scores.iter().filter_map(|score| score.covers_knee()).collect();
    let stated = 100.0 * knees.len() as f64 / scores.len() as f64;
    let knee_errors: Vec<_> = scores.iter().filter_map(|score| score.knee_error()).collect();
    println!(
        "| {name} | {} | {:.1} | {} | {:.1} | {:.1} ({stated:.0}) | {:.1}/{:.1} | {} | {} | {:.0} |",
        scores.len(),
        percent_true(scores.iter().map(|score| score.covers_cliff())),
        both(&SearchScore::cliff_error, 100.0),
        100.0
            * quantile(
                scores.iter().filter_map(|score| score
                    .report
                    .cliff
                    .bracket
                    .map(|cliff| cliff.width_relative_to_lower())),
                0.5
            ),
        percent_true(knees),
        100.0 * quantile(knee_errors.iter().copied(), 0.5),
        100.0 * quantile(knee_errors.iter().copied(), 0.9),
        both(&|score| score.report.took.as_secs_f64(), 1.0),
        both(&|score| score.overload_seconds, 1.0),
        quantile(scores.iter().map(|score| score.failed_requests as f64), 0.5),
    );
}
