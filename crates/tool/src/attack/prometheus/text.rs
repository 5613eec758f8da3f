//! Outcomes as Prometheus text: figures in, text out, in the two dialects that vegeta's endpoint negotiates.
//!
//! Sources: Prometheus "Text-based format" 0.0.4 and OpenMetrics 1.0. They differ here in the suffix of a counter's
//! sample, in whole numbers among the bounds, and in the last line. Written out by hand, because a registry of metric
//! objects speaks OpenMetrics only, and vegeta's plain names (`request_bytes_in`) are those of the other dialect.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use seawall_load::clock::SECOND;
use seawall_load::request_failure_reason::{OutcomeClass, RequestFault};
use seawall_load::target_outcomes::{BUCKET_BOUNDS, OutcomeCounts, RequestOutcome, TargetOutcomes};

use super::{OTHER, TargetLabel, TargetLabels};

/// The exposition format that a scraper accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScrapeFormat {
    /// Prometheus' own, 0.0.4.
    PrometheusText,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl ScrapeFormat {
    /// For the header of the answer.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::PrometheusText => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    fn counter_suffix(self) -> &'static str {
        match self {
            Self::PrometheusText => "",
            Self::OpenMetrics => "_total",
        }
    }

    fn bound(self, nanos: u64) -> String {
        let seconds = nanos as f64 / SECOND as f64;
        match self {
            Self::PrometheusText => format!("{seconds}"),
            Self::OpenMetrics => format!("{seconds:?}"),
        }
    }
}

/// The labels method, url and status.
type Labels = (TargetLabel, String);

type Requests = BTreeMap<Labels, OutcomeCounts>;

/// With the label message.
type Failures = BTreeMap<(Labels, &'static str), u64>;

/// Everything a scrape gets.
pub(super) fn format_metrics(
    names: &TargetLabels,
    outcomes: &TargetOutcomes,
    dialect: ScrapeFormat,
) -> String {
    let (requests, failures) = sum(names, outcomes);
    let mut out = String::new();
    header(&mut out, "request_seconds", "histogram", "Response time, from the scheduled send of the request");
    for (labels, request) in requests.iter().filter(|(_, request)| request.buckets.iter().any(|&n| n > 0)) {
        histogram(&mut out, &spell(labels), request, dialect);
    }
    let suffix = dialect.counter_suffix();
    let mut counter = |name: &str, help: &str, rows: &mut dyn Iterator<Item = (String, u64)>| {
        header(&mut out, name, "counter", help);
        rows.for_each(|(labels, value)| line(&mut out, &format!("{name}{suffix}"), &labels, value));
    };
    let bytes = |read: fn(&OutcomeCounts) -> u64| {
        requests.iter().map(move |(labels, request)| (spell(labels), read(request)))
    };
    counter("request_bytes_in", "Bytes of response bodies", &mut bytes(|request| request.bytes_in));
    counter("request_bytes_out", "Bytes of request bodies", &mut bytes(|request| request.bytes_out));
    let mut rows = failures
        .iter()
        .map(|((labels, message), count)| (format!("{},message=\"{message}\"", spell(labels)), *count));
    counter("request_fail_count", "Requests without a good response, by kind of failure", &mut rows);
    if dialect == ScrapeFormat::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

/// Targets of one method and URL are one series, and so are all kinds of failure, which have status 0.
fn sum(names: &TargetLabels, outcomes: &TargetOutcomes) -> (Requests, Failures) {
    let (mut requests, mut failures) = (Requests::new(), Failures::new());
    for (target, outcome) in outcomes.iter().filter(|(_, outcome)| outcome.count > 0) {
        let labels = (names.name(target), status(outcome.kind));
        if let Some(message) = message(outcome.kind) {
            *failures.entry((labels.clone(), message)).or_default() += outcome.count;
        }
        requests.entry(labels).and_modify(|sum| sum.merge(outcome)).or_insert_with(|| outcome.clone());
    }
    (requests, failures)
}

fn status(kind: RequestOutcome) -> String {
    match kind {
        RequestOutcome::Status(status) => status.to_string(),
        RequestOutcome::OtherStatus => OTHER.to_owned(),
        RequestOutcome::Fault(_) => "0".to_owned(),
    }
}

/// Returns the kind of failure, from a fixed set of texts; vegeta exports the text of the error instead.
fn message(kind: RequestOutcome) -> Option<&'static str> {
    match kind {
        RequestOutcome::Status(status) if OutcomeClass::of_status(status) == OutcomeClass::Good => None,
        RequestOutcome::Status(400..500) => Some("client error"),
        RequestOutcome::Status(500..600) => Some("server error"),
        RequestOutcome::Status(_) | RequestOutcome::OtherStatus => Some("unusual status"),
        RequestOutcome::Fault(kind) => Some(RequestFault::name_of_kind(kind)),
    }
}

fn spell((TargetLabel { method, url }, status): &Labels) -> String {
    format!("method=\"{}\",url=\"{}\",status=\"{status}\"", escape(method), escape(url))
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn histogram(out: &mut String, labels: &str, request: &OutcomeCounts, dialect: ScrapeFormat) {
    let bounds = BUCKET_BOUNDS.iter().map(|&bound| dialect.bound(bound)).chain(["+Inf".to_owned()]);
    let mut count = 0;
    for (bound, in_bucket) in bounds.zip(request.buckets) {
        count += in_bucket;
        line(out, "request_seconds_bucket", &format!("{labels},le=\"{bound}\""), count);
    }
    line(out, "request_seconds_sum", labels, request.total_time as f64 / SECOND as f64);
    line(out, "request_seconds_count", labels, count);
}

// Writing to a string cannot fail.
fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

#[cfg(test)]
mod tests {
    use seawall_load::stats::FinishedRequest;

    use super::*;

    /// Two targets of one name and a third that has none.
    fn run() -> (TargetLabels, TargetOutcomes) {
        let name = TargetLabel { method: "GET".to_owned(), url: "http://host/\"a\\".to_owned() };
        let mut outcomes = TargetOutcomes::default();
        let mut count = |target, outcome, end| {
            outcomes.record_finished(&FinishedRequest {
                target_index: target,
                outcome,
                due: 0,
                sent_at: Some(0),
                first_response_byte_at: None,
                end,
                bytes_in: 10,
                bytes_out: 3,
            });
        };
        count(0, Ok(200), SECOND / 1000);
        count(1, Ok(200), SECOND * 3 / 2);
        count(1, Ok(503), SECOND / 10);
        count(1, Err(RequestFault::Timeout), SECOND * 30);
        count(1, Err(RequestFault::Dropped), 0);
        count(2, Ok(204), SECOND / 1000);
        (TargetLabels(vec![name.clone(), name]), outcomes)
    }

    #[test]
    fn a_scrape_in_prometheus_own_dialect() {
        let (names, outcomes) = run();
        insta::assert_snapshot!(format_metrics(&names, &outcomes, ScrapeFormat::PrometheusText));
    }

    #[test]
    fn a_scrape_in_openmetrics() {
        let (names, outcomes) = run();
        insta::assert_snapshot!(format_metrics(&names, &outcomes, ScrapeFormat::OpenMetrics));
    }
}
