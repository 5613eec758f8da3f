//! `-type=text`: vegeta's lines, letter by letter.

use std::fmt::Write;

use super::totals::Totals;
use crate::go_format::{GoDuration, align_columns};

/// The whole report.
pub(crate) fn render(totals: &Totals) -> String {
    let mut rows = String::new();
    // Formatting into memory cannot fail.
    let _ = rows_of(&mut rows, totals);
    align_columns(&rows)
}

fn rows_of(out: &mut String, totals: &Totals) -> std::fmt::Result {
    let (rate, throughput) = (totals.rate(), totals.throughput());
    writeln!(out, "Requests\t[total, rate, throughput]\t{}, {rate:.2}, {throughput:.2}", totals.requests)?;
    let times = joined(&[totals.duration_with_wait(), totals.duration(), totals.wait_duration()]);
    writeln!(out, "Duration\t[total, attack, wait]\t{times}")?;
    writeln!(out, "Latencies\t[min, mean, 50, 90, 95, 99, max]\t{}", latencies(totals))?;
    for (name, total) in [("Bytes In", totals.bytes_in), ("Bytes Out", totals.bytes_out)] {
        writeln!(out, "{name}\t[total, mean]\t{total}, {:.2}", totals.mean_per_request(total))?;
    }
    writeln!(out, "Success\t[ratio]\t{:.2}%", totals.success_ratio() * 100.0)?;
    write!(out, "Status Codes\t[code:count]\t")?;
    for (code, count) in sorted_codes(totals) {
        write!(out, "{code}:{count}  ")?;
    }
    writeln!(out, "\nError Set:")?;
    totals.errors.iter().try_for_each(|(text, _)| writeln!(out, "{text}"))?;
    totals.errors.omitted_message().map_or(Ok(()), |note| writeln!(out, "{note}"))
}

fn latencies(totals: &Totals) -> String {
    let [p50, p90, p95, p99] = [0.5, 0.9, 0.95, 0.99].map(|q| totals.latency_quantile(q));
    joined(&[totals.min_latency(), totals.mean_latency(), p50, p90, p95, p99, totals.max_latency()])
}

fn joined(durations: &[GoDuration]) -> String {
    durations.iter().map(|duration| duration.rounded().to_string()).collect::<Vec<_>>().join(", ")
}

/// Codes sorted as text, so 0 comes before 1xx and 1000 before 200.
pub(super) fn sorted_codes(totals: &Totals) -> Vec<(String, u64)> {
    let mut codes: Vec<_> = totals.codes.iter().map(|(code, count)| (code.to_string(), *count)).collect();
    codes.sort();
    codes
}
