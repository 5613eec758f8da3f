//! What a run came to, for people and for programs.

use std::fmt::Write as _;

use seawall_load::clock::SECOND;
use seawall_load::engine::Outcome;
use seawall_load::fault::{Class, Fault};
use seawall_load::stats::Histogram;

use crate::go::Duration;

/// Lines for people.
pub(crate) fn text(outcome: &Outcome) -> String {
    let total = &outcome.total;
    let mut out = String::new();
    let seconds = outcome.scheduled_for as f64 / SECOND as f64;
    let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let _ = match outcome.scheduled {
        Some(scheduled) => writeln!(
            out,
            "Requests      [offered, sent, good]          {scheduled}, {}, {}  ({:.2}/s, {:.2}/s, {:.2}/s)",
            total.sent,
            total.good(),
            per_second(scheduled),
            per_second(total.sent),
            per_second(total.good()),
        ),
        None => writeln!(
            out,
            "Requests      [sent, good]                   {}, {}  ({:.2}/s, {:.2}/s)",
            total.sent,
            total.good(),
            per_second(total.sent),
            per_second(total.good()),
        ),
    };
    let _ = writeln!(
        out,
        "Duration      [total, sending]               {}, {}",
        duration(outcome.elapsed),
        duration(outcome.scheduled_for)
    );
    let all = total.all();
    latency(&mut out, "Response time", &all.response);
    latency(&mut out, "Service time", &all.service);
    if outcome.scheduled.is_some() {
        latency(&mut out, "Lag", &total.lag);
    }
    for class in [Class::Refused, Class::TimedOut, Class::Failed] {
        let times = total.class(class);
        if times.response.count() > 0 {
            latency(&mut out, &format!("  {}", class.name()), &times.response);
        }
    }
    let _ = writeln!(out, "Connections   [opened]                       {}", total.connections);
    let _ =
        writeln!(out, "Bytes         [in, out]                      {}, {}", total.bytes_in, total.bytes_out);
    let statuses: Vec<String> =
        total.statuses.iter().map(|(code, count)| format!("{code}:{count}")).collect();
    let _ = writeln!(out, "Status codes  [code:count]                   {}", statuses.join("  "));
    failures(&mut out, outcome);
    out.push_str(&losses(outcome));
    out
}

fn failures(out: &mut String, outcome: &Outcome) {
    let total = &outcome.total;
    let failed: Vec<String> = total
        .faults
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(kind, count)| format!("{}:{count}", Fault::name(kind)))
        .collect();
    if !failed.is_empty() {
        let _ = writeln!(out, "Failures      [reason:count]                 {}", failed.join("  "));
    }
    let notes = [
        ("sent again after the server closed an idle connection", total.retried),
        ("redirects followed", total.redirects),
        ("answers with another length than the target's first", total.other_length),
    ];
    for (what, count) in notes {
        if count > 0 {
            let _ = writeln!(out, "Note          {count} {what}");
        }
    }
}

/// What the results do not show of themselves.
pub(crate) fn losses(outcome: &Outcome) -> String {
    let total = &outcome.total;
    let mut out = String::new();
    let unsent = outcome.scheduled.map_or(0, |scheduled| {
        scheduled.saturating_sub(total.sent + total.fault(Fault::Dropped) + total.fault(Fault::Shed))
    });
    if unsent > 0 {
        let _ =
            writeln!(out, "seawall: {unsent} hits of the schedule were not sent before the end of the run");
    }
    if total.stalled > 0 {
        let _ = writeln!(
            out,
            "seawall: senders waited {} for a slow reader of the results",
            duration(total.stalled)
        );
    }
    if total.unrecorded > 0 {
        let _ = writeln!(out, "seawall: {} results were lost to a slow reader", total.unrecorded);
    }
    out
}

fn latency(out: &mut String, name: &str, histogram: &Histogram) {
    let quantiles = [0.5, 0.9, 0.95, 0.99, 0.999].map(|quantile| duration(histogram.quantile(quantile)));
    let _ = writeln!(
        out,
        "{name:<13} [min, mean, 50, 90, 95, 99, 99.9, max]  {}, {}, {}, {}",
        duration(histogram.min()),
        duration(histogram.mean() as u64),
        quantiles.join(", "),
        duration(histogram.max()),
    );
}

fn duration(ns: u64) -> String {
    Duration(i64::try_from(ns).unwrap_or(i64::MAX)).rounded().to_string()
}

/// One line for programs.
pub(crate) fn json(outcome: &Outcome) -> String {
    format!("{{\"sent\":{}}}\n", outcome.total.sent)
}
