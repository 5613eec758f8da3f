//! A summary as lines for people. The first line says whether to believe the rest.

use std::fmt::Write as _;

use seawall_load::selfcheck::Verdict;
use seawall_load::stats::After;
use seawall_load::summary::{Latencies, Summary};

use crate::go::Duration;

/// Everything, one fact per line.
pub(crate) fn text(summary: &Summary) -> String {
    let mut out = verdict(summary);
    rates(&mut out, summary);
    row(
        &mut out,
        "Duration",
        "schedule, to last answer",
        &format!("{}, {}", duration(summary.duration), duration(summary.elapsed)),
    );
    after(&mut out, summary);
    latencies(&mut out, "Response time", &summary.response);
    latencies(&mut out, "Service time", &summary.service);
    if summary.model == "open" {
        latencies(&mut out, "Lag", &summary.lag);
    }
    for (class, times) in summary.response_by_class.iter().filter(|(class, _)| **class != "good") {
        latencies(&mut out, &format!("  {class}"), times);
    }
    let phases = [
        ("  connect", &summary.phases.connect),
        ("  tls", &summary.phases.tls),
        ("  first byte", &summary.phases.first_byte),
    ];
    for (name, times) in phases.into_iter().filter(|(_, times)| times.count > 0) {
        latencies(&mut out, name, times);
    }
    row(&mut out, "In flight", "most", &summary.in_flight_peak.to_string());
    row(&mut out, "Connections", "opened", &summary.connections.to_string());
    row(&mut out, "Bytes", "in, out", &format!("{}, {}", summary.bytes_in, summary.bytes_out));
    row(&mut out, "Status codes", "code:count", &pairs(summary.status_codes.iter()));
    if !summary.failures.is_empty() {
        row(&mut out, "Failures", "reason:count", &pairs(summary.failures.iter()));
        for example in summary.failure_examples.values() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  such as {example}");
        }
    }
    notes(&mut out, summary);
    out
}

/// Whether to believe the rest, and why not.
fn verdict(summary: &Summary) -> String {
    let mut out = match summary.verdict {
        Verdict::Sound => String::new(),
        Verdict::Degraded => {
            "GENERATOR DEGRADED: the figures below are coloured by this machine\n".to_owned()
        }
        Verdict::GeneratorLimited => {
            "GENERATOR LIMITED: the figures below say nothing about the target\n".to_owned()
        }
    };
    for finding in &summary.findings {
        let _ = writeln!(out, "  {}: {}", finding.check, finding.measured);
    }
    out
}

fn rates(out: &mut String, summary: &Summary) {
    let counts = format!("{}, {}, {}", summary.offered, summary.sent, summary.good);
    row(out, "Requests", "offered, sent, good", &counts);
    let rates =
        [summary.offered_rate, summary.achieved_rate, summary.good_rate].map(|rate| format!("{rate:.2}"));
    row(out, "Rate", "offered, achieved, good /s", &rates.join(", "));
}

/// What is in no rate.
fn after(out: &mut String, summary: &Summary) {
    let After { ended, good } = summary.after;
    if ended > 0 {
        let time = duration(summary.elapsed.saturating_sub(summary.duration));
        row(out, "After it", "ended, good, in", &format!("{ended}, {good}, {time}"));
    }
}

fn notes(out: &mut String, summary: &Summary) {
    let facts = [
        (summary.unsent, "hits of the schedule were not sent"),
        (summary.retried, "sent again: the server had closed an idle connection, or not looked at them"),
        (summary.redirects, "redirects followed"),
        (summary.other_length, "answers with another length than the first of their target"),
        (summary.unrecorded, "results lost to a slow reader"),
    ];
    for (count, what) in facts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(out, "Note: {count} {what}");
    }
    if summary.stalled > 0 {
        let _ = writeln!(
            out,
            "Note: senders waited {} for a slow reader of the results",
            duration(summary.stalled)
        );
    }
}

/// For standard error when no summary is asked for: only what the results do not show of themselves.
pub(crate) fn warnings(summary: &Summary) -> String {
    let mut out = verdict(summary);
    let given_up = ["dropped", "shed", "template"].iter().filter_map(|kind| summary.failures.get(kind));
    let unsent = summary.unsent.saturating_sub(given_up.sum());
    if unsent > 0 {
        let _ = writeln!(out, "seawall: {unsent} hits of the schedule were not sent before its end");
    }
    if summary.unrecorded > 0 {
        let _ = writeln!(out, "seawall: {} results were lost to a slow reader", summary.unrecorded);
    }
    out
}

fn latencies(out: &mut String, name: &str, times: &Latencies) {
    let Latencies { min, mean, p50, p90, p95, p99, p999, max, .. } = *times;
    let values = [min, mean, p50, p90, p95, p99, p999, max].map(duration).join(", ");
    row(out, name, "min, mean, 50, 90, 95, 99, 99.9, max", &values);
}

fn row(out: &mut String, name: &str, columns: &str, values: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{name:<14}{:<39}{values}", format!("[{columns}]"));
}

fn pairs<K: std::fmt::Display>(counts: impl Iterator<Item = (K, impl std::fmt::Display)>) -> String {
    counts.map(|(key, count)| format!("{key}:{count}")).collect::<Vec<_>>().join("  ")
}

fn duration(ns: u64) -> String {
    Duration(i64::try_from(ns).unwrap_or(i64::MAX)).rounded().to_string()
}
