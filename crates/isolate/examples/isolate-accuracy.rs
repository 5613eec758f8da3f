//! Scores experiments on simulated paths and prints tables in Markdown.
//!
//! `isolate-accuracy EXPERIMENTS SEED [path=NAME] [rate=N]` runs EXPERIMENTS experiments of each kind, or only of those on that path or at
//! that rate.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints tables")]

use seawall_isolate::segment::VariantOrder;
use seawall_isolate::simulated::path::{Effect, PATHS};
use seawall_isolate::simulated::scores::{SimulatedStudies, StudyScoreTotals, quantile};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let (Some(experiments), Some(seed)) = (number(0), number(1)) else {
        eprintln!("usage: isolate-accuracy EXPERIMENTS SEED [path=NAME] [rate=N]");
        std::process::exit(2);
    };
    let only = |key: &str| words.iter().find_map(|word| word.strip_prefix(key).map(str::to_owned));
    let is_asked = |setting: &SimulatedStudies| {
        only("path=").is_none_or(|name| name == setting.noise.name)
            && only("rate=").is_none_or(|rate| rate == setting.rate.to_string())
    };
    println!("One variant, two minutes, {experiments} experiments a row, seed {seed}.\n");
    println!(
        "| design | path | rate /s | slower % | differs % | equal % | wrong % | p99 differs % | p99 equal % | interval holds % | s p50/p90 | would take s p50 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for design in [VariantOrder::Interleaved, VariantOrder::OneVariantPerBlock] {
        for noise in PATHS {
            for rate in [50.0, 200.0, 1000.0] {
                for share in [0.0, 0.02, 0.05, 0.10] {
                    let setting = SimulatedStudies {
                        design,
                        ..SimulatedStudies::with_slower_variant(noise, rate, share)
                    };
                    if is_asked(&setting) {
                        row(
                            &setting,
                            &format!("{:.0}", 100.0 * share),
                            &setting.run_and_score(experiments, seed),
                        );
                    }
                }
            }
        }
    }
    several(experiments, seed, is_asked);
}

/// Experiments with five variants, one of which is slower.
fn several(experiments: u64, seed: u64, is_asked: impl Fn(&SimulatedStudies) -> bool) {
    println!("\nFive variants; \"one 5\": the third is 5 % slower.\n");
    println!(
        "| design | path | rate /s | slower % | differs % | equal % | wrong % | p99 differs % | p99 equal % | interval holds % | s p50/p90 | would take s p50 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for noise in PATHS {
        for (name, share) in [("none", 0.0_f64), ("one 5", 0.05), ("one 10", 0.1)] {
            let mut setting = SimulatedStudies::with_slower_variant(noise, 1000.0, 0.0);
            setting.effects = vec![Effect::default(); 5];
            setting.effects[2].log_time_factor = share.ln_1p();
            if is_asked(&setting) {
                row(&setting, name, &setting.run_and_score(experiments, seed));
            }
        }
    }
}

fn row(setting: &SimulatedStudies, share: &str, score: &StudyScoreTotals) {
    let percent = |count| format!("{:.1}", score.percent(count));
    let time =
        |values: &[f64], share| quantile(values, share).map_or("-".into(), |value| format!("{value:.0}"));
    println!(
        "| {:?} | {} | {} | {share} | {} | {} | {} | {} | {} | {} | {}/{} | {} |",
        setting.design,
        setting.noise.name,
        setting.rate,
        percent(score.experiments_with_difference),
        percent(score.experiments_with_equality),
        percent(score.experiments_with_false_difference),
        percent(score.experiments_with_tail_difference),
        percent(score.experiments_with_tail_equality),
        percent(score.experiments_covering_truth),
        time(&score.decision_seconds, 0.5),
        time(&score.decision_seconds, 0.9),
        time(&score.undecided_forecast_seconds, 0.5),
    );
}
