//! A summary as lines for people. The first lines say what was sent where, whether the objectives are met, and whether to believe
//! the rest.

use std::fmt::Write as _;

use seawall_lab::generator_verdict::GeneratorVerdict;
use seawall_lab::objective::CheckedObjective;
use seawall_lab::trial_judgement::Judgement;
use seawall_load::stats::AfterSchedule;
use seawall_load::summary::{Latencies, Summary};

use crate::brief_time::format_brief_time;
use crate::go_format::align_columns;

/// How a summary may begin, for programs that read one in place of records.
pub(crate) const POSSIBLE_SUMMARY_BEGINNINGS: [&str; 8] = [
    "STOPPED: ",
    "PASSED: ",
    "MISSED: ",
    "NOT JUDGED: ",
    "Load          [what was sent]",
    "GENERATOR ",
    "Requests      [offered, ",
    "{\"kind\":\"attack\"",
];

/// Everything, one fact per line.
pub(crate) fn format_summary(judgement: &Judgement, summary: &Summary) -> String {
    let mut out = verdict(judgement, summary);
    rates(&mut out, summary);
    row(
        &mut out,
        "Duration",
        "schedule, last response at",
        &format!("{}, {}", format_brief_time(summary.counted_duration), format_brief_time(summary.elapsed)),
    );
    after(&mut out, summary);
    out.push_str(&align_columns(&latencies(summary)));
    row(&mut out, "In flight", "most", &summary.in_flight_peak.to_string());
    row(&mut out, "Connections", "opened", &summary.connections.to_string());
    row(&mut out, "Bytes", "in, out", &format!("{}, {}", summary.bytes_in, summary.bytes_out));
    row(&mut out, "Status codes", "code:count", &pairs(summary.status_codes.iter()));
    if !summary.failures.is_empty() {
        row(&mut out, "Failures", "reason:count", &pairs(summary.failures.iter()));
        // The reasons of wrong answers follow, all of them.
        let is_listed = |kind: &str| kind == "wrong-answer" && !summary.wrong_answers.is_empty();
        for (_, example) in summary.failure_examples.iter().filter(|(kind, _)| !is_listed(kind)) {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  such as {example}");
        }
        for (reason, count) in &summary.wrong_answers {
            let _ = writeln!(out, "  wrong-answer: {reason}: {count}");
        }
    }
    notes(&mut out, summary);
    out
}

/// Why a run ended early that `--max-errors` ended.
pub(crate) const STOPPED_BY_MAX_ERRORS: &str = "stopped: there were more errors than --max-errors";

/// Whether the objectives are met (`PASSED`, `MISSED`, or `NOT JUDGED` where the generator was the limit), and the load.
///
/// A run that `--max-errors` ended (`has_spent_errors`) has not passed, whatever its objectives say.
pub(crate) fn format_headline(load: &str, judgement: &Judgement, has_spent_errors: bool) -> String {
    let mut out = String::new();
    if judgement.objectives.is_empty() {
        out.push_str(if has_spent_errors {
            "STOPPED: there were more errors than --max-errors\n"
        } else {
            ""
        });
    } else {
        let word = match judgement.meets_objectives() {
            Some(true) if has_spent_errors => {
                "STOPPED: there were more errors than --max-errors; until then, these objectives were met"
            }
            Some(true) => "PASSED",
            Some(false) => "MISSED",
            None => "NOT JUDGED",
        };
        let held = |checked: &CheckedObjective| {
            let without = checked
                .service_time_if_it_alone_meets_limit
                .as_ref()
                .filter(|_| judgement.meets_objectives().is_none());
            let without =
                without.map_or_else(String::new, |time| format!("; {time} without this machine's delay"));
            let measured = if checked.measured_value.is_some() { "measured " } else { "" };
            format!("{} ({measured}{}{without})", checked.objective, checked.measured_text)
        };
        let [missed, met] = [false, true].map(|is_met| {
            let of_kind = judgement.objectives.iter().filter(|checked| checked.is_met == is_met);
            of_kind.map(held).collect::<Vec<_>>().join(", ")
        });
        let separator = if missed.is_empty() || met.is_empty() { "" } else { "; met: " };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{word}: {missed}{separator}{met}");
    }
    row(&mut out, "Load", "what was sent", load);
    out
}

/// Returns the generator's verdict and its reasons; nothing if the generator kept up.
fn verdict(judgement: &Judgement, summary: &Summary) -> String {
    let mut out = match judgement.generator_verdict {
        GeneratorVerdict::Valid => String::new(),
        // The delay lengthens latencies, so objectives that are met with the delay are also met without it.
        GeneratorVerdict::Degraded if !judgement.objectives.is_empty() && judgement.meets_objectives() == Some(true) => {
            "Note: this machine was slow at times; the objectives are met although the latencies below include this machine's delay\n".to_owned()
        }
        // Without this machine's delay, the objectives are missed, too: else there is no verdict.
        GeneratorVerdict::Degraded if judgement.meets_objectives() == Some(false) => {
            "Note: this machine was slow at times; the objectives are missed even without this machine's delay, which the latencies below include\n"
                .to_owned()
        }
        GeneratorVerdict::Degraded if summary.sent > 0 && summary.status_codes.is_empty() => {
            "Note: this machine was slow at times; no response arrived, so the delay changed no latency\n".to_owned()
        }
        GeneratorVerdict::Degraded => {
            "GENERATOR DEGRADED: this machine was too slow; the latencies below include this machine's delay\n"
                .to_owned()
        }
        GeneratorVerdict::GeneratorLimited => {
            "GENERATOR LIMITED: this machine, not the target, was the limit; the results below say nothing about the target\n"
                .to_owned()
        }
    };
    for reason in &judgement.reasons {
        let _ = writeln!(out, "  {}: {}", reason.check, reason.measured);
    }
    out
}

fn rates(out: &mut String, summary: &Summary) {
    let counts = format!("{}, {}, {}", summary.offered, summary.sent, summary.good);
    row(out, "Requests", "offered, sent, good", &counts);
    let rates =
        [summary.offered_rate, summary.achieved_rate, summary.goodput].map(|rate| format!("{rate:.2}"));
    row(out, "Rate", "offered, achieved, good /s", &rates.join(", "));
}

/// What is in no rate.
fn after(out: &mut String, summary: &Summary) {
    let AfterSchedule { completed: ended, good } = summary.after_schedule;
    if ended > 0 {
        let time = format_brief_time(summary.elapsed.saturating_sub(summary.counted_duration));
        row(out, "Afterwards", "ended, good, in", &format!("{ended}, {good}, {time}"));
    }
}

fn notes(out: &mut String, summary: &Summary) {
    let facts = [
        (summary.not_sent, "requests of the schedule were not sent"),
        (summary.no_connection, "requests never had a connection"),
        (
            summary.retried,
            "requests were retried: the server had closed an idle connection or had not processed them",
        ),
        (summary.redirects, "redirects followed"),
        (summary.length_mismatch, "responses differ in length from the first response of their target"),
        (summary.records_dropped, "results were dropped because the reader of the results was slow"),
    ];
    for (count, what) in facts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(out, "Note: {count} {what}");
    }
    if summary.output_blocked_time > 0 {
        let _ = writeln!(
            out,
            "Note: senders waited {} for a slow reader of the results",
            format_brief_time(summary.output_blocked_time)
        );
    }
}

/// For standard error when no summary is asked for: only what the results do not show of themselves.
pub(crate) fn format_warnings(judgement: &Judgement, summary: &Summary) -> String {
    let mut out = verdict(judgement, summary);
    let given_up = ["dropped", "shed", "template"].iter().filter_map(|kind| summary.failures.get(kind));
    let unsent = summary.not_sent.saturating_sub(given_up.sum());
    if unsent > 0 {
        let _ = writeln!(
            out,
            "seawall: {unsent} requests of the schedule were not sent before the schedule ended"
        );
    }
    if summary.records_dropped > 0 {
        let _ = writeln!(
            out,
            "seawall: {} results were dropped because the reader of the results was slow",
            summary.records_dropped
        );
    }
    out
}

/// Every distribution that has values, in columns under one head. A percentile that so few values do not have is a dash: 99.9 % of four
/// is the largest by another name.
fn latencies(summary: &Summary) -> String {
    let mut rows = "\tmin\tmean\t50 %\t90 %\t95 %\t99 %\t99.9 %\tmax\n".to_owned();
    let phases = [
        ("  connect", &summary.phases.connect),
        ("  tls", &summary.phases.tls),
        ("  first byte", &summary.phases.first_byte),
    ];
    // Where all answers are good, the response time is theirs.
    let mixed = |class: &str| class != "good" || summary.response_time_by_class.len() > 1;
    let classes = summary.response_time_by_class.iter().filter(|(class, _)| mixed(class));
    let classes = classes.map(|(class, times)| (format!("  {class}"), times));
    let whole = [
        ("Response time", &summary.response_time),
        ("Service time", &summary.service_time),
        ("Lag", &summary.send_lag),
    ];
    let named = |(name, times): (&str, _)| (name.to_owned(), times);
    let [response, service, lag] = whole.map(named);
    let all = std::iter::once(response).chain(classes).chain([service, lag]).chain(phases.map(named));
    for (name, times) in all.filter(|(_, times)| times.count > 0) {
        let Latencies { count, min, mean, p50, p90, p95, p99, p999, max, .. } = *times;
        let columns =
            [(1, min), (1, mean), (2, p50), (10, p90), (20, p95), (100, p99), (1_000, p999), (1, max)];
        let shown = |(least, value)| if count < least { "-".to_owned() } else { format_brief_time(value) };
        let values = columns.map(shown).join("\t");
        // Writing to a string cannot fail.
        let _ = writeln!(rows, "{name}\t{values}");
    }
    rows
}

fn row(out: &mut String, name: &str, columns: &str, values: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{name:<14}{:<39}{values}", format!("[{columns}]"));
}

fn pairs<K: std::fmt::Display>(counts: impl Iterator<Item = (K, impl std::fmt::Display)>) -> String {
    counts.map(|(key, count)| format!("{key}:{count}")).collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use seawall_load::clock::SECOND;
    use seawall_load::engine::RunOutcome;
    use seawall_load::request_failure_reason::RequestFault;
    use seawall_load::stats::{FinishedRequest, LoadStats};
    use seawall_probe::{FindingGrade, MachineFinding};

    use super::*;

    fn outcome() -> RunOutcome {
        let mut total = LoadStats { sent: 3, ..LoadStats::default() };
        for (outcome, sent, end) in [
            (Ok(200), 1, 1_234_567),
            (Ok(200), 123, 987_654_321),
            (Err(RequestFault::Timeout), 1_999, 30 * SECOND),
        ] {
            total.send_lag.record(sent);
            let (first_byte, bytes_in, bytes_out) = (None, 0, 0);
            total.record_finished(&FinishedRequest {
                target_index: 0,
                outcome,
                due: 0,
                sent_at: Some(sent),
                first_response_byte_at: first_byte,
                end,
                bytes_in,
                bytes_out,
            });
        }
        RunOutcome {
            scheduled_count: Some(3),
            elapsed_after_warm_up: 30 * SECOND,
            ..RunOutcome::from_stats(total, SECOND)
        }
    }

    /// A passed gate of a busy build server began with a warning in capitals.
    #[test]
    fn a_delay_in_spite_of_which_all_objectives_hold_is_a_note() {
        let said = |objectives: &str| {
            let (outcome, objectives) = (outcome(), objectives.parse().ok());
            let summary = Summary::new(&outcome);
            let (grade, text) = (FindingGrade::Degraded, "text of the check".to_owned());
            let late = MachineFinding { id: "lag", grade, measured: None, limit: None, unit: "", text };
            verdict(&Judgement::new(&outcome, &summary, vec![late], objectives.as_ref()), &summary)
        };
        assert!(said("").starts_with("GENERATOR DEGRADED"));
        let missed = said("errors<10%");
        assert!(
            missed.starts_with("Note: this machine was slow at times; the objectives are missed"),
            "{missed}"
        );
        let held = said("errors<50%");
        assert!(held.starts_with("Note: this machine was slow at times; "), "{held}");
        assert!(held.contains("text of the check"), "{held}");
    }

    /// A run against a closed port began with a warning about latencies that did not exist.
    #[test]
    fn a_delay_is_a_note_if_no_request_got_a_response() {
        let mut total = LoadStats { sent: 1, ..LoadStats::default() };
        total.failures[RequestFault::Timeout.kind_index()] = 1;
        let outcome = RunOutcome::from_stats(total, SECOND);
        let (grade, text) = (FindingGrade::Degraded, "text of the check".to_owned());
        let late = MachineFinding { id: "lag", grade, measured: None, limit: None, unit: "", text };
        let summary = Summary::new(&outcome);
        let said = verdict(&Judgement::new(&outcome, &summary, vec![late], None), &summary);
        assert!(said.starts_with("Note: this machine was slow at times; no response arrived"), "{said}");
    }

    #[test]
    fn a_percentile_that_the_values_do_not_have_is_a_dash() {
        let summary = Summary::new(&outcome());
        let table = latencies(&summary);
        let row = table.lines().find(|line| line.starts_with("Response time")).unwrap();
        let cells: Vec<_> = row.split('\t').skip(3).collect();
        assert_eq!(cells, ["988ms", "-", "-", "-", "-", "30.0s"], "{table}");
    }

    #[test]
    fn the_first_line_says_whether_the_objectives_hold_and_what_was_measured() {
        let (outcome, summary) = (outcome(), Summary::new(&outcome()));
        let of = |objectives: Option<&str>| {
            let objectives = objectives.map(|text| text.parse().unwrap());
            let judgement = Judgement {
                reasons: Vec::new(),
                generator_verdict: GeneratorVerdict::Valid,
                ..Judgement::new(&outcome, &summary, Vec::new(), objectives.as_ref())
            };
            format_headline("GET http://127.0.0.1:8080/, open loop at 3/s", &judgement, false)
        };
        let sent =
            format!("{:<14}{:<39}GET http://127.0.0.1:8080/, open loop at 3/s\n", "Load", "[what was sent]");
        assert_eq!(of(None), sent);
        assert_eq!(of(Some("p50<1s")), format!("PASSED: p50 < 1s (measured 988ms)\n{sent}"));
        assert_eq!(
            of(Some("p50<1s,errors<1%")),
            format!("MISSED: errors < 1 % (measured 33.3 %); met: p50 < 1s (measured 988ms)\n{sent}")
        );
    }

    #[test]
    fn a_run_that_max_errors_ended_is_not_said_to_have_passed() {
        let (outcome, summary) = (outcome(), Summary::new(&outcome()));
        let of = |objectives: Option<&str>| {
            let objectives = objectives.map(|text| text.parse().unwrap());
            let judgement = Judgement {
                reasons: Vec::new(),
                generator_verdict: GeneratorVerdict::Valid,
                ..Judgement::new(&outcome, &summary, Vec::new(), objectives.as_ref())
            };
            format_headline("", &judgement, true).lines().next().unwrap().to_owned()
        };
        let stopped = "STOPPED: there were more errors than --max-errors";
        assert_eq!(of(None), stopped);
        assert_eq!(
            of(Some("p50<1s")),
            format!("{stopped}; until then, these objectives were met: p50 < 1s (measured 988ms)")
        );
        assert!(of(Some("errors<1%")).starts_with("MISSED: errors < 1 %"));
    }

    #[test]
    fn times_have_three_digits_and_stand_in_columns() {
        let (outcome, summary) = (outcome(), Summary::new(&outcome()));
        let text = format_summary(&Judgement::new(&outcome, &summary, Vec::new(), None), &summary);
        let rows: Vec<_> = text.lines().skip_while(|line| !line.contains(" mean ")).take(6).collect();
        let column = |row: &str, at: usize| row.char_indices().skip(at).map(|(_, c)| c).collect::<String>();
        let largest = rows[0].find("max").unwrap();
        let shown: Vec<_> = rows.iter().map(|row| column(row, largest)).collect();
        assert_eq!(shown, ["max", "30.0s", "988ms", "30.0s", "30.0s", "2.00µs"], "{text}");
        let named: Vec<_> = rows.iter().map(|row| row.trim_start().split("  ").next()).collect();
        let names = ["min", "Response time", "good", "timed-out", "Service time", "Lag"];
        assert_eq!(named, names.map(Some), "{text}");
    }
}
