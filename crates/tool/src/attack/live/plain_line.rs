//! A row as one line of plain text: for logs, pipes and terminals that are shared.

use seawall_load::clock::SECOND;
use seawall_load::interval_row::{LiveRow, RunInfo};

use super::formatting::{format_clock, format_rate};
use crate::brief_time::format_brief_time;

/// Kinds of failure that a line names.
const NAMED: usize = 3;

/// Everything that matters in a second, and which pods have told of it, if there are any.
pub(super) fn format_plain_line(facts: &RunInfo, row: &LiveRow, pods: Option<&str>) -> String {
    let now = row.status;
    let end = facts.end.map(|end| format!("/{}", format_clock(end))).unwrap_or_default();
    let offered =
        row.offered_rate.map(|offered| format!("offered {}/s ", format_rate(offered))).unwrap_or_default();
    let lag = if facts.is_open_loop {
        format!(", lag p99 {}", format_brief_time(row.latencies.send_lag.p99))
    } else {
        String::new()
    };
    let response = row.latencies.response_time;
    // Percentiles of nothing are zeros, which read as very fast responses.
    let times = if response.count == 0 {
        "no response in this second".to_owned()
    } else {
        format!(
            "response p50 {} p99 {} max {}, service p99 {}",
            format_brief_time(response.p50),
            format_brief_time(response.p99),
            format_brief_time(response.max),
            format_brief_time(row.latencies.service_time.p99)
        )
    };
    format!(
        "{}{end} {offered}achieved {}/s good {}/s, {times}{lag}, in flight {}, {}{}{}",
        // The senders hand over a moment before the full second.
        format_clock(now.elapsed + SECOND / 2),
        format_rate(row.achieved_rate),
        format_rate(row.goodput),
        now.in_flight,
        errors(row),
        pods.map(|pods| format!(", {pods}")).unwrap_or_default(),
        state(facts, row),
    )
}

fn errors(row: &LiveRow) -> String {
    if row.errors.is_empty() && row.total_completed == 0 && row.status.in_flight > 0 {
        return "no response so far".to_owned();
    }
    if row.errors.is_empty() {
        return "no errors".to_owned();
    }
    let named = row.errors.iter().take(NAMED).map(|error| format!("{} {}", error.count, error.kind));
    let more = if row.errors.len() > NAMED { ", ..." } else { "" };
    let without = if row.is_unreachable() { "no connection so far, " } else { "" };
    format!("{without}errors {} ({}{more})", row.total_failed(), named.collect::<Vec<_>>().join(", "))
}

fn state(facts: &RunInfo, row: &LiveRow) -> &'static str {
    match row.status {
        now if now.ending => ", waiting for responses",
        now if now.elapsed < facts.warm_up_end => ", warming up",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use seawall_load::interval_row::ErrorCount;

    use super::super::test_fixtures::{sample_history, sample_run_info};
    use super::*;

    #[test]
    fn a_second_of_an_open_loop() {
        let history = sample_history(12);
        assert_eq!(
            format_plain_line(&sample_run_info(), history.last().unwrap(), None),
            "0:12/1:00 offered 1000/s achieved 1000/s good 990/s, response p50 2.58ms p99 5.03ms max 1.00s, \
             service p99 5.03ms, lag p99 19.8µs, in flight 12, errors 120 (72 timeout, 48 503)"
        );
    }

    /// A server that hung read as "response p50 0ns ... no errors" while 179 requests waited for it.
    #[test]
    fn a_second_without_a_response_has_no_times_and_is_not_called_free_of_errors() {
        let mut row = sample_history(1).last().unwrap().clone();
        row.latencies.response_time.count = 0;
        (row.total_completed, row.status.in_flight) = (0, 179);
        row.errors.clear();
        let line = format_plain_line(&sample_run_info(), &row, None);
        assert!(line.contains(", no response in this second, ") && !line.contains("p50"), "{line}");
        assert!(line.ends_with("in flight 179, no response so far"), "{line}");
    }

    /// "response p50 198 ns" was the time in which a name was not found.
    #[test]
    fn a_run_without_a_connection_says_so_and_shows_no_times() {
        let mut row = sample_history(1).last().unwrap().clone();
        (row.total_sent, row.total_completed, row.latencies.response_time.count) = (0, 50, 0);
        row.errors = vec![ErrorCount { kind: "resolve".to_owned(), count: 50, last_second_count: 50 }];
        let line = format_plain_line(&sample_run_info(), &row, None);
        assert!(line.contains(", no response in this second, ") && !line.contains("p50"), "{line}");
        assert!(line.ends_with("no connection so far, errors 50 (50 resolve)"), "{line}");
    }

    #[test]
    fn a_closed_loop_offers_nothing_and_has_no_lag() {
        let history = sample_history(1);
        let mut row = history.last().unwrap().clone();
        row.offered_rate = None;
        row.status.ending = true;
        row.errors.clear();
        let closed = RunInfo { end: None, is_open_loop: false, steerable: false, ..sample_run_info() };
        let line = format_plain_line(&closed, &row, Some("3 of 4 pods (lost: pod-2)"));
        assert!(line.starts_with("0:01 achieved 1000/s good 990/s, "), "{line}");
        assert!(
            line.ends_with(
                "service p99 2.07ms, in flight 12, no errors, 3 of 4 pods (lost: pod-2), waiting for responses"
            ),
            "{line}"
        );
    }
}
