//! `-type=summary`, the default on a terminal: the same numbers as the text report, each with what it means.
//!
//! For a person, so it may change; programs read `-type=json`. One block per run.

use std::fmt::{self, Write};

use seawall_core::terminal_safe::is_unsafe;

use super::glossary::RESULTS_LIMITS_NOTE;
use super::json::format_to_second;
use super::rates::Rates;
use super::runs::{RunResults, Runs, TargetTotals};
use super::series::MIN_RESPONSES_ABOVE_QUANTILE;
use super::totals::Totals;
use crate::brief_time::format_brief_time;
use crate::go_format::{GoDuration, align_columns};

/// More lines of one kind than this push the rest off the screen; what is left out is counted.
const MOST_LINES: usize = 10;

/// Width of a bar that stands for all requests.
const BAR: f64 = 40.0;

/// The whole summary.
pub(crate) fn render(runs: &Runs) -> String {
    let mut out = String::new();
    let several = runs.iter_with_names().count() > 1;
    for (name, run) in runs.iter_with_names() {
        if several {
            let gap = if out.is_empty() { "" } else { "\n" };
            // Formatting into memory cannot fail.
            let _ = writeln!(out, "{gap}=== {name} ===");
        }
        let _ = block(&mut out, run);
    }
    if !out.is_empty() {
        let _ = writeln!(out, "\nNote: {RESULTS_LIMITS_NOTE}");
    }
    out
}

fn block(out: &mut String, run: &RunResults) -> fmt::Result {
    let totals = &run.totals;
    headline(out, run)?;
    out.push_str(&align_columns(&rates(run)));
    out.push_str(&align_columns(&latencies(totals)));
    out.push_str(&align_columns(&codes(totals)));
    errors(out, totals)?;
    if run.targets.iter().count() > 1 {
        out.push_str(&align_columns(&targets(run)));
    }
    Ok(())
}

fn headline(out: &mut String, run: &RunResults) -> fmt::Result {
    let totals = &run.totals;
    let start = format_to_second(totals.earliest()).map_or_else(String::new, |at| format!(", started {at}"));
    let attack = shown(totals.duration());
    writeln!(out, "{} requests scheduled in {attack}{start}", thousands(totals.requests))?;
    match run.targets.iter().map(TargetTotals::name).collect::<Vec<_>>().as_slice() {
        [only] => writeln!(out, "{only}"),
        many => writeln!(out, "{} targets", many.len()),
    }
}

fn rates(run: &RunResults) -> String {
    let totals = &run.totals;
    let mut rows = "\nRate\n".to_owned();
    let Rates { offered, achieved, good, after_schedule } = Rates::from_run(run);
    let failed = totals.requests - totals.successes;
    let _ = writeln!(
        rows,
        "  offered\t{offered:.2}/s\tscheduled requests per second, from the first to the last"
    );
    let _ =
        writeln!(rows, "  achieved\t{achieved:.2}/s\tresponses and failures during the schedule, per second");
    let _ = writeln!(
        rows,
        "  good\t{good:.2}/s\tresponses with status 200 to 399 during the schedule, per second"
    );
    if after_schedule.completed > 0 {
        let [ended, good] = [after_schedule.completed, after_schedule.good].map(thousands);
        let _ = writeln!(
            rows,
            "  afterwards\t{ended}\tresponses and failures after the schedule, not counted in the rates; {good} were good"
        );
    }
    let _ = writeln!(
        rows,
        "  good share\t{}\t{} of {} requests; {} were not good",
        percent(totals.successes, totals.requests),
        thousands(totals.successes),
        thousands(totals.requests),
        thousands(failed),
    );
    let wait = shown(totals.wait_duration());
    let _ = writeln!(rows, "  wait\t{wait}\tfrom the last scheduled send to the last response");
    let bytes = [totals.bytes_in, totals.bytes_out].map(|sum| format!("{:.1}", totals.mean_per_request(sum)));
    let _ = writeln!(rows, "  body bytes\t{}\tper response, and {} per request", bytes[0], bytes[1]);
    rows
}

fn latencies(totals: &Totals) -> String {
    let mut rows =
        "\nResponse time, from the scheduled send to the last byte, failures included\n".to_owned();
    let mut row = |name: &str, value: GoDuration, meaning: &str| {
        let _ = writeln!(rows, "  {name}\t{}\t{meaning}", shown(value));
    };
    row("smallest", GoDuration(totals.latency.min()), "");
    row("mean", totals.mean_latency(), "the percentiles below describe most requests better");
    row("50 %", totals.latency_quantile(0.5), "half of the requests took at most this time");
    for (q, name) in [(0.9, "90 %"), (0.95, "95 %"), (0.99, "99 %"), (0.999, "99.9 %")] {
        let slower = totals.requests as f64 * (1.0 - q);
        let slower = if slower < MIN_RESPONSES_ABOVE_QUANTILE {
            "too few responses".to_owned()
        } else {
            format!("{slower:.0} took longer")
        };
        row(name, totals.latency_quantile(q), &slower);
    }
    row("largest", totals.max_latency(), "the percentiles above are at most 0.1 % too high, never too low");
    rows
}

fn codes(totals: &Totals) -> String {
    let mut rows = "\nStatus codes\n".to_owned();
    for (code, count) in totals.codes.iter().take(MOST_LINES) {
        let name = if *code == 0 { "none".to_owned() } else { code.to_string() };
        let bar = "#".repeat((totals.mean_per_request(*count) * BAR).ceil() as usize);
        let _ =
            writeln!(rows, "  {name}\t{}\t{}\t{bar}", thousands(*count), percent(*count, totals.requests));
    }
    left_out(&mut rows, totals.codes.len(), "codes");
    rows
}

fn errors(out: &mut String, totals: &Totals) -> fmt::Result {
    let mut errors: Vec<_> = totals.errors.iter().collect();
    if errors.is_empty() {
        return Ok(());
    }
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    writeln!(out, "\nErrors")?;
    for (text, count) in errors.iter().take(MOST_LINES) {
        writeln!(out, "  {:>9}  {}", thousands(*count), printable(text))?;
    }
    left_out(out, errors.len(), "texts: -type=html lists them all");
    totals.errors.omitted_message().map_or(Ok(()), |note| writeln!(out, "  {note}"))
}

fn targets(run: &RunResults) -> String {
    let mut rows = "\nTargets\n  \trequests\tgood\t50 %\t99 %\tlargest\n".to_owned();
    for target in run.targets.iter().take(MOST_LINES) {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| shown(GoDuration(target.latency.quantile(q))));
        let _ = writeln!(
            rows,
            "  {}\t{}\t{}\t{p50}\t{p99}\t{max}",
            printable(&target.name()),
            thousands(target.requests),
            percent(target.successes, target.requests),
        );
    }
    left_out(&mut rows, run.targets.iter().count(), "targets: -type=html lists them");
    rows
}

fn left_out(out: &mut String, all: usize, what: &str) {
    if all > MOST_LINES {
        let _ = writeln!(out, "  and {} more {what}", all - MOST_LINES);
    }
}

/// A clock that was set back makes less than no time.
fn shown(time: GoDuration) -> String {
    format_brief_time(u64::try_from(time.0).unwrap_or(0))
}

/// Cut, not rounded, so that 100 % means all.
fn percent(part: u64, whole: u64) -> String {
    if part == whole {
        return "100%".to_owned();
    }
    let share = u128::from(part) * 100_000 / u128::from(whole.max(1));
    format!("{}.{:03}%", share / 1000, share % 1000)
}

/// `1,234,567`.
fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Replaces unsafe characters: text from a server must not move the cursor, recolour the terminal, or break the columns.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if is_unsafe(letter) { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_and_shares_cut() {
        assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(percent(999_999, 1_000_000), "99.999%");
        assert_eq!(percent(9_999_999, 10_000_000), "99.999%");
        assert_eq!(
            (percent(5, 5), percent(0, 5), percent(0, 0)),
            ("100%".into(), "0.000%".into(), "100%".into())
        );
    }

    #[test]
    fn a_hostile_error_text_cannot_drive_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\tc\n\u{202e}d"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}\u{fffd}d");
    }
}
