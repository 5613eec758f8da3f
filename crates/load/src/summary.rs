//! The summary of a run as data: rates, quantiles and counts. It does not judge whether the generator can be believed.
//!
//! A summary is made once, at the end, of a [`RunOutcome`]. The search methods read its fields, and the tool prints it. Fields
//! hold nanoseconds, and the document of `attack --summary=json` seconds. Rates are per second over [`Summary::counted_duration`]:
//! requests that ended later are in no rate, but in [`Summary::after_schedule`].

use std::collections::BTreeMap;

use serde::Serialize;

use crate::by_variant::VariantTotals;
use crate::clock::{Nanos, SECOND};
use crate::request_failure_reason::{OutcomeClass, RequestFault};
use crate::response_samples::ResponseSample;
use crate::run_outcome::RunOutcome;
use crate::stats::{AfterSchedule, LatencyHistogram, RequestTimes};

/// All figures of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// `open` or `closed`: latencies of the two do not compare (Schroeder et al., NSDI 2006).
    pub model: &'static str,
    /// The time in which requests were counted.
    #[serde(rename = "duration_seconds", with = "crate::duration_json")]
    pub counted_duration: Nanos,
    /// The duration and the wait for the last responses.
    #[serde(rename = "elapsed_seconds", with = "crate::duration_json")]
    pub elapsed: Nanos,
    /// Requests per second that the schedule asked for. In a closed loop: requests for which a client was free.
    pub offered_rate: f64,
    /// Sent requests per second that ended, with or without a good response.
    pub achieved_rate: f64,
    /// Responses per second with a status from 200 to 399 that are not wrong answers.
    pub goodput: f64,
    /// Requests that ended between the end of the schedule and the end of the run. They are in no rate.
    pub after_schedule: AfterSchedule,
    /// Requests that the schedule made due. In a closed loop: requests for which a client was free.
    pub offered: u64,
    /// Requests sent.
    pub sent: u64,
    /// Responses with a status from 200 to 399 that are not wrong answers.
    pub good: u64,
    /// Requests that were due and not sent, including those that were dropped or shed.
    pub not_sent: u64,
    /// Requests that ended before their first byte was sent, such as those that waited for a connection in vain.
    pub no_connection: u64,
    /// The share of offered requests without a good response, from 0 to 1.
    pub error_ratio: f64,
    /// Response times as an SLO counts them.
    pub slo: LatenciesOfAllOffered,
    /// Times from the intended instant to the end, of all outcomes but failures without a connection.
    pub response_time: Latencies,
    /// Times from the real send to the end, of all outcomes.
    pub service_time: Latencies,
    /// Times from the intended instant to the real send.
    pub send_lag: Latencies,
    /// The send lag of requests that had room when they were due: this generator caused it.
    pub generator_lag: Latencies,
    /// The delay with which sending threads looked at their clock, ten times a second. It does not depend on the requests in
    /// flight.
    pub scheduler_lag: Latencies,
    /// Response times by class of outcome, of classes that have any.
    pub response_time_by_class: BTreeMap<&'static str, Latencies>,
    /// Times of the steps of a request.
    pub phases: Phases,
    /// Responses by status, wrong answers included.
    pub status_codes: BTreeMap<u16, u64>,
    /// Failed requests by kind.
    pub failures: BTreeMap<&'static str, u64>,
    /// Wrong answers by reason: which condition of `--expect` failed how often, or which gRPC status came.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub wrong_answers: BTreeMap<String, u64>,
    /// The error text of one failure of each kind.
    pub failure_examples: BTreeMap<&'static str, String>,
    /// The maximum number of requests in flight (the sum of the maximums of all threads).
    pub in_flight_peak: u64,
    /// Connections opened.
    pub connections: u64,
    /// Requests sent again because the server had closed an idle connection or had not processed them.
    pub retried: u64,
    /// Redirects followed.
    pub redirects: u64,
    /// Responses whose body length differs from the first response of their target.
    pub length_mismatch: u64,
    /// Bytes of response bodies.
    pub bytes_in: u64,
    /// Bytes of request bodies.
    pub bytes_out: u64,
    /// Records that were dropped because the results output blocked.
    pub records_dropped: u64,
    /// Time that sending threads waited because the results output blocked, summed over the threads.
    #[serde(rename = "output_blocked_seconds", with = "crate::duration_json")]
    pub output_blocked_time: Nanos,
    /// Figures by variant, for targets that have variants.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variants: BTreeMap<String, VariantSummary>,
    /// Some responses of each outcome, if the run was asked to keep any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sample_responses: Vec<ResponseSampleText>,
}

/// The figures of one variant.
#[derive(Debug, Clone, Serialize)]
pub struct VariantSummary {
    /// Requests whose outcome is known.
    pub completed: u64,
    /// Responses with a status from 200 to 399 that are not wrong answers.
    pub good: u64,
    /// Times of good responses from the intended instant to the end.
    pub response_time: Latencies,
    /// Times of good responses from the real send to the end.
    pub service_time: Latencies,
}

impl From<&VariantTotals> for VariantSummary {
    fn from(figures: &VariantTotals) -> Self {
        let VariantTotals { completed, good, times } = figures;
        Self {
            completed: *completed,
            good: *good,
            response_time: (&times.response_time).into(),
            service_time: (&times.service_time).into(),
        }
    }
}

/// A response as text. Bytes that are not UTF-8 become U+FFFD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResponseSampleText {
    /// The end of the request, counted from the start of the run.
    #[serde(rename = "end_seconds", with = "crate::duration_json")]
    pub ended_at: Nanos,
    /// The status; 0 without a response.
    pub status: u16,
    /// The error text, if the request failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The start of the response head.
    pub head: String,
    /// The start of the response body.
    pub body: String,
}

impl From<&ResponseSample> for ResponseSampleText {
    fn from(sample: &ResponseSample) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            ended_at: sample.ended_at,
            status: sample.status,
            failure: sample.fault.map(|fault| fault.to_string()),
            head: text(&sample.header_lines),
            body: text(&sample.body),
        }
    }
}

/// The distribution of a time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latencies {
    /// The number of values.
    pub count: u64,
    /// The smallest value.
    #[serde(rename = "min_seconds", with = "crate::duration_json")]
    pub min: Nanos,
    /// The mean.
    #[serde(rename = "mean_seconds", with = "crate::duration_json")]
    pub mean: Nanos,
    /// The median.
    #[serde(rename = "p50_seconds", with = "crate::duration_json")]
    pub p50: Nanos,
    /// The 90th percentile.
    #[serde(rename = "p90_seconds", with = "crate::duration_json")]
    pub p90: Nanos,
    /// The 95th percentile.
    #[serde(rename = "p95_seconds", with = "crate::duration_json")]
    pub p95: Nanos,
    /// The 99th percentile.
    #[serde(rename = "p99_seconds", with = "crate::duration_json")]
    pub p99: Nanos,
    /// The percentile 99.9.
    #[serde(rename = "p99_9_seconds", with = "crate::duration_json")]
    pub p999: Nanos,
    /// The percentile 99.99.
    #[serde(rename = "p99_99_seconds", with = "crate::duration_json")]
    pub p9999: Nanos,
    /// The largest value.
    #[serde(rename = "max_seconds", with = "crate::duration_json")]
    pub max: Nanos,
}

impl From<&LatencyHistogram> for Latencies {
    fn from(values: &LatencyHistogram) -> Self {
        Self {
            count: values.count(),
            min: values.min(),
            mean: values.mean(),
            p50: values.quantile(0.5),
            p90: values.quantile(0.9),
            p95: values.quantile(0.95),
            p99: values.quantile(0.99),
            p999: values.quantile(0.999),
            p9999: values.quantile(0.9999),
            max: values.max(),
        }
    }
}

/// Response times over all offered requests, in nanoseconds.
///
/// A request without a good response (failed, given up, dropped, shed or never sent) counts as slower than any limit. A quantile
/// is `None` where such a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LatenciesOfAllOffered {
    /// Offered requests.
    pub offered: u64,
    /// Offered requests with a good response.
    pub good: u64,
    /// The mean of the good responses.
    #[serde(rename = "mean_seconds", with = "crate::duration_json")]
    pub mean_of_good_responses: Option<Nanos>,
    /// The median.
    #[serde(rename = "p50_seconds", with = "crate::duration_json")]
    pub p50: Option<Nanos>,
    /// The 90th percentile.
    #[serde(rename = "p90_seconds", with = "crate::duration_json")]
    pub p90: Option<Nanos>,
    /// The 95th percentile.
    #[serde(rename = "p95_seconds", with = "crate::duration_json")]
    pub p95: Option<Nanos>,
    /// The 99th percentile.
    #[serde(rename = "p99_seconds", with = "crate::duration_json")]
    pub p99: Option<Nanos>,
    /// The percentile 99.9.
    #[serde(rename = "p99_9_seconds", with = "crate::duration_json")]
    pub p999: Option<Nanos>,
    /// The percentile 99.99.
    #[serde(rename = "p99_99_seconds", with = "crate::duration_json")]
    pub p9999: Option<Nanos>,
    /// The largest value.
    #[serde(rename = "max_seconds", with = "crate::duration_json")]
    pub max: Option<Nanos>,
}

impl LatenciesOfAllOffered {
    fn new(good: &LatencyHistogram, offered: u64) -> Self {
        let offered = offered.max(good.count());
        // The share is a ratio of whole numbers, because 0.999 times a count may be slightly above a rank.
        let quantile = |of_ten_thousand: u128| {
            let rank = (u128::from(offered) * of_ten_thousand).div_ceil(10_000);
            good.at_rank(u64::try_from(rank).unwrap_or(u64::MAX))
        };
        Self {
            offered,
            good: good.count(),
            mean_of_good_responses: (good.count() > 0).then(|| good.mean()),
            p50: quantile(5_000),
            p90: quantile(9_000),
            p95: quantile(9_500),
            p99: quantile(9_900),
            p999: quantile(9_990),
            p9999: quantile(9_999),
            max: quantile(10_000),
        }
    }
}

/// Times of the steps of a request. Lookup, connect and TLS are per connection, the rest per request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Phases {
    /// Name lookups.
    pub lookup: Latencies,
    /// TCP handshakes.
    pub connect: Latencies,
    /// TLS handshakes.
    pub tls: Latencies,
    /// Times from the send to the last byte of the request.
    pub write: Latencies,
    /// Times from the send to the first byte of the response.
    pub first_byte: Latencies,
    /// Times from the first to the last byte of the response.
    pub body: Latencies,
}

impl Summary {
    /// Makes the summary of an outcome.
    #[must_use]
    pub fn new(outcome: &RunOutcome) -> Self {
        let total = &outcome.total_stats;
        let window = outcome.rate_window.unwrap_or(outcome.counted_duration);
        let offered = outcome.offered_requests();
        let good = total.good_count();
        let RequestTimes { service_time, response_time } = total.all_times();
        Self {
            model: if outcome.scheduled_count.is_some() { "open" } else { "closed" },
            counted_duration: outcome.counted_duration,
            elapsed: outcome.elapsed_after_warm_up,
            offered_rate: per_second(offered, window),
            achieved_rate: rate_in_schedule(
                outcome,
                total.ended_after_send_count(),
                total.after_schedule.completed,
                window,
            ),
            goodput: rate_in_schedule(outcome, good, total.after_schedule.good, window),
            after_schedule: total.after_schedule,
            offered,
            sent: total.sent,
            good,
            not_sent: offered.saturating_sub(total.sent).saturating_sub(total.no_connection),
            no_connection: total.no_connection,
            error_ratio: if offered == 0 {
                0.0
            } else {
                offered.saturating_sub(good) as f64 / offered as f64
            },
            slo: LatenciesOfAllOffered::new(&total.times_of_class(OutcomeClass::Good).response_time, offered),
            response_time: (&response_time).into(),
            service_time: (&service_time).into(),
            send_lag: (&total.send_lag).into(),
            generator_lag: (&total.generator_lag).into(),
            scheduler_lag: (&total.scheduler_lag).into(),
            response_time_by_class: by_class(outcome),
            phases: Phases {
                lookup: (&total.lookup).into(),
                connect: (&total.connect).into(),
                tls: (&total.tls).into(),
                write: (&total.write).into(),
                first_byte: (&total.first_byte).into(),
                body: (&total.body).into(),
            },
            status_codes: total.all_status_counts().iter().collect(),
            failures: failures(&total.failures),
            wrong_answers: total.wrong_answers.iter().map(|(why, count)| (why.to_owned(), count)).collect(),
            failure_examples: examples(&total.failure_examples),
            in_flight_peak: total.in_flight_peak,
            connections: total.connections,
            retried: total.retried,
            redirects: total.redirects,
            length_mismatch: total.length_mismatch,
            variants: total
                .variants
                .iter()
                .map(|(name, figures)| (name.to_owned(), figures.into()))
                .collect(),
            sample_responses: total.response_samples.iter().map(ResponseSampleText::from).collect(),
            bytes_in: total.bytes_in,
            bytes_out: total.bytes_out,
            records_dropped: total.records_dropped,
            output_blocked_time: total.output_blocked_time,
        }
    }
}

fn per_second(count: u64, over: Nanos) -> f64 {
    if over > 0 { count as f64 / (over as f64 / SECOND as f64) } else { 0.0 }
}

/// Returns the rate of the requests that ended within the schedule. A run with a fixed number of requests has no time of its own:
/// 20 requests may be due within 20 ns, so its rate is that of all responses until the last.
fn rate_in_schedule(outcome: &RunOutcome, all: u64, late: u64, window: Nanos) -> f64 {
    if outcome.ended_by_count {
        return per_second(all, window.max(outcome.elapsed_after_warm_up));
    }
    per_second(all.saturating_sub(late), window)
}

fn by_class(outcome: &RunOutcome) -> BTreeMap<&'static str, Latencies> {
    let times = OutcomeClass::ALL.map(|class| {
        (class.name(), Latencies::from(&outcome.total_stats.times_of_class(class).response_time))
    });
    times.into_iter().filter(|(_, latencies)| latencies.count > 0).collect()
}

fn failures(faults: &[u64; RequestFault::KIND_COUNT]) -> BTreeMap<&'static str, u64> {
    let named = faults.iter().enumerate().map(|(kind, count)| (RequestFault::name_of_kind(kind), *count));
    named.filter(|(_, count)| *count > 0).collect()
}

fn examples(examples: &[Option<Box<str>>; RequestFault::KIND_COUNT]) -> BTreeMap<&'static str, String> {
    let named = examples.iter().enumerate();
    named
        .filter_map(|(kind, example)| Some((RequestFault::name_of_kind(kind), example.as_ref()?.to_string())))
        .collect()
}
