//! Measures the CPU time and memory for merging the reports of many pods per second.
//!
//! `fleet-merge FILE PODS`: the lines of FILE are intervals of one generator, as from `attack --timeseries` or a pod's log. Each pod
//! reports them, one per second, in a random order per second.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints figures")]

use std::process::ExitCode;

use seawall_fleet::gather::IntervalMerger;
use seawall_fleet::protocol::{MAX_LOG_BYTES_PER_SECOND, PodReport};
use seawall_load::clock::{RunClock, SECOND};
use seawall_load::interval::{CompactInterval, IntervalStats};
use serde_json::Value;

/// The bytes of a line around an interval.
const HEAD: usize = 64;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (Some(file), Some(pods)) = (words.first(), words.get(1).and_then(|pods| pods.parse::<usize>().ok()))
    else {
        eprintln!("usage: fleet-merge FILE PODS");
        return ExitCode::from(2);
    };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<String> = text.lines().filter_map(part).collect();
    if lines.is_empty() {
        eprintln!("{file} has no intervals of a second");
        return ExitCode::FAILURE;
    }
    let bytes = lines.iter().map(String::len).sum::<usize>() / lines.len();
    let mut random = fastrand::Rng::with_seed(1);
    let mut gather = IntervalMerger::new(pods);
    let (clock, mut worst) = (RunClock::start(), 0);
    for (second, line) in lines.iter().enumerate() {
        let mut order: Vec<_> = (0..pods).collect();
        random.shuffle(&mut order);
        let began = clock.now();
        for pod in order {
            let Ok(PodReport::<IntervalStats, Value>::Part { part, .. }) = serde_json::from_str(line) else {
                continue;
            };
            if gather.add(pod, &part).is_err() {
                eprintln!("second {second} does not follow the one before");
                return ExitCode::FAILURE;
            }
        }
        while gather.next(0).is_some() {}
        worst = worst.max(clock.now() - began);
    }
    let per_second = clock.now() as f64 / lines.len() as f64 / SECOND as f64;
    println!(
        "{pods} pods, {bytes} bytes each a second, {} seconds: {:.1} % of a core ({:.1} % in the worst second), {} MiB at most, {} hits",
        lines.len(),
        100.0 * per_second,
        100.0 * worst as f64 / SECOND as f64,
        most_memory() / 1024,
        gather.total().completed
    );
    ExitCode::SUCCESS
}

/// A pod's line with an interval of one second that starts at the end of the last one.
fn part(line: &str) -> Option<String> {
    let value: Value = serde_json::from_str(line).ok()?;
    let value = value.pointer("/part/part").unwrap_or(&value);
    let interval: IntervalStats = serde_json::from_value(value.clone()).ok()?;
    let part =
        serde_json::to_value(CompactInterval::compacted_to_fit(&interval, MAX_LOG_BYTES_PER_SECOND - HEAD)?)
            .ok()?;
    let told: PodReport<Value, ()> = PodReport::Part { trial: 1, part, doubts: Vec::new() };
    serde_json::to_string(&told).ok()
}

/// The peak resident memory in KiB (proc(5), VmHWM).
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
