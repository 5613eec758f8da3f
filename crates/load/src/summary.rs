//! A run's figures as a person or a program wants them: rates, quantiles, counts. Whether to believe them others say.
//!
//! Made once, at the end, of an [`RunOutcome`]; the search methods read the fields, the tool prints them. All times are in
//! nanoseconds, all rates per second over [`Summary::duration`]: what ended in it counts, and what came after it is said apart.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::by_variant::VariantTotals;
use crate::clock::{Nanos, SECOND};
use crate::evidence::ResponseSample;
use crate::fault::{OutcomeClass, RequestFault};
use crate::outcome::RunOutcome;
use crate::stats::{AfterSchedule, FailureExample, LatencyHistogram, RequestTimes};

/// Everything worth saying about a run.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// `open` or `closed`: latencies of the two do not compare (Schroeder et al., NSDI 2006).
    pub model: &'static str,
    /// For how long hits were counted.
    pub duration: Nanos,
    /// The same with the wait for the last answers.
    pub elapsed: Nanos,
    /// What the schedule asked for; in a closed loop what there was room for.
    pub offered_rate: f64,
    /// What was sent and came to an end, well or badly.
    pub achieved_rate: f64,
    /// What was answered with a status from 200 to 399.
    pub good_rate: f64,
    /// What came in the rest of [`Summary::elapsed`], and is in no rate.
    pub after: AfterSchedule,
    /// Hits that the schedule made due; in a closed loop those that there was room for.
    pub offered: u64,
    /// Requests sent.
    pub sent: u64,
    /// Answers from 200 to 399.
    pub good: u64,
    /// Hits due and not to be sent, dropped and shed ones included.
    pub unsent: u64,
    /// Hits that were to be sent and never had a connection.
    pub unconnected: u64,
    /// The share of offered hits that did not get a good answer, from 0 to 1.
    pub error_ratio: f64,
    /// Response times as objectives judge them.
    pub judged: SloLatencies,
    /// From the intended instant, all outcomes.
    pub response: Latencies,
    /// From the real send, all outcomes.
    pub service: Latencies,
    /// Between the two.
    pub lag: Latencies,
    /// That of requests that had room when they were due: the generator's own.
    pub own_lag: Latencies,
    /// How late the generator looked at its clock, ten times a second, whatever was in flight.
    pub clock_lag: Latencies,
    /// Response times by class, where there were any.
    pub response_by_class: BTreeMap<&'static str, Latencies>,
    /// Where the time went.
    pub phases: Phases,
    /// Answers by status.
    pub status_codes: BTreeMap<u16, u64>,
    /// Failures by kind.
    pub failures: BTreeMap<&'static str, u64>,
    /// One failure of each kind, in words.
    pub failure_examples: BTreeMap<&'static str, String>,
    /// Most requests in flight at once (the sum of each thread's most).
    pub in_flight_peak: u64,
    /// Connections opened.
    pub connections: u64,
    /// Requests sent again after the server had closed an idle connection, or had not looked at them.
    pub retried: u64,
    /// Redirects followed.
    pub redirects: u64,
    /// Answers with another length than the first of their target.
    pub other_length: u64,
    /// Bytes of response bodies.
    pub bytes_in: u64,
    /// Bytes of request bodies.
    pub bytes_out: u64,
    /// Records lost to a slow reader.
    pub unrecorded: u64,
    /// Time that senders waited for a slow reader.
    pub stalled: Nanos,
    /// Figures of variants, where targets have any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variants: BTreeMap<String, VariantSummary>,
    /// Some answers of each outcome, where the run was to keep any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<SampleText>,
}

/// What became of the requests of a variant.
#[derive(Debug, Clone, Serialize)]
pub struct VariantSummary {
    /// Requests of which the outcome is known.
    pub done: u64,
    /// Answers from 200 to 399.
    pub good: u64,
    /// Those from the intended instant.
    pub response: Latencies,
    /// Those from the real send.
    pub service: Latencies,
}

impl From<&VariantTotals> for VariantSummary {
    fn from(figures: &VariantTotals) -> Self {
        let VariantTotals { done, good, times } = figures;
        Self {
            done: *done,
            good: *good,
            response: (&times.response).into(),
            service: (&times.service).into(),
        }
    }
}

/// An answer as text; bytes that are none become U+FFFD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SampleText {
    /// When the request ended, in run time.
    pub at: Nanos,
    /// The status; 0 without an answer.
    pub status: u16,
    /// The failure in words, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The start of the head.
    pub head: String,
    /// The start of the body.
    pub body: String,
}

impl From<&ResponseSample> for SampleText {
    fn from(sample: &ResponseSample) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            at: sample.at,
            status: sample.status,
            failure: sample.fault.map(|fault| fault.to_string()),
            head: text(&sample.head),
            body: text(&sample.body),
        }
    }
}

/// One distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latencies {
    /// How many values.
    pub count: u64,
    /// The smallest.
    pub min: Nanos,
    /// The mean.
    pub mean: Nanos,
    /// Half are no larger.
    pub p50: Nanos,
    /// 90 % are no larger.
    pub p90: Nanos,
    /// 95 % are no larger.
    pub p95: Nanos,
    /// 99 % are no larger.
    pub p99: Nanos,
    /// 99.9 % are no larger.
    #[serde(rename = "p99.9")]
    pub p999: Nanos,
    /// 99.99 % are no larger.
    #[serde(rename = "p99.99")]
    pub p9999: Nanos,
    /// The largest.
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

/// Response times over all offered hits, of which one without a good answer (failed, refused, given up, dropped, shed or
/// never sent) is slower than any bound. A quantile is none where such a hit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SloLatencies {
    /// Hits.
    pub offered: u64,
    /// Those with a good answer.
    pub good: u64,
    /// The mean of the good answers.
    pub mean: Option<Nanos>,
    /// Half are no slower.
    pub p50: Option<Nanos>,
    /// 90 % are no slower.
    pub p90: Option<Nanos>,
    /// 95 % are no slower.
    pub p95: Option<Nanos>,
    /// 99 % are no slower.
    pub p99: Option<Nanos>,
    /// 99.9 % are no slower.
    #[serde(rename = "p99.9")]
    pub p999: Option<Nanos>,
    /// 99.99 % are no slower.
    #[serde(rename = "p99.99")]
    pub p9999: Option<Nanos>,
    /// None is slower.
    pub max: Option<Nanos>,
}

impl SloLatencies {
    fn new(good: &LatencyHistogram, offered: u64) -> Self {
        let offered = offered.max(good.count());
        // Of whole parts, because 0.999 times a count may be a hair above a rank.
        let quantile = |of_ten_thousand: u128| {
            let rank = (u128::from(offered) * of_ten_thousand).div_ceil(10_000);
            good.at_rank(u64::try_from(rank).unwrap_or(u64::MAX))
        };
        Self {
            offered,
            good: good.count(),
            mean: (good.count() > 0).then(|| good.mean()),
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

/// Where the time of a request went. Lookup, connect and TLS are per connection, the rest per request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Phases {
    /// Name lookup.
    pub lookup: Latencies,
    /// TCP handshake.
    pub connect: Latencies,
    /// TLS handshake.
    pub tls: Latencies,
    /// From the send to the last byte of the request.
    pub write: Latencies,
    /// From the send to the first byte of the answer.
    pub first_byte: Latencies,
    /// From the first to the last byte of the answer.
    pub body: Latencies,
}

impl Summary {
    /// Sums up.
    #[must_use]
    pub fn new(outcome: &RunOutcome) -> Self {
        let total = &outcome.total;
        let seconds = outcome.scheduled_for as f64 / SECOND as f64;
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let offered = outcome.offered();
        let good = total.good();
        let RequestTimes { service, response } = total.all_times();
        Self {
            model: if outcome.scheduled.is_some() { "open" } else { "closed" },
            duration: outcome.scheduled_for,
            elapsed: outcome.elapsed,
            offered_rate: per_second(offered),
            achieved_rate: per_second(total.ended().saturating_sub(total.after.ended)),
            good_rate: per_second(good.saturating_sub(total.after.good)),
            after: total.after,
            offered,
            sent: total.sent,
            good,
            unsent: offered.saturating_sub(total.sent).saturating_sub(total.unconnected),
            unconnected: total.unconnected,
            error_ratio: if offered == 0 { 0.0 } else { 1.0 - good.min(offered) as f64 / offered as f64 },
            judged: SloLatencies::new(&total.class(OutcomeClass::Good).response, offered),
            response: (&response).into(),
            service: (&service).into(),
            lag: (&total.lag).into(),
            own_lag: (&total.own_lag).into(),
            clock_lag: (&total.clock_lag).into(),
            response_by_class: by_class(outcome),
            phases: Phases {
                lookup: (&total.lookup).into(),
                connect: (&total.connect).into(),
                tls: (&total.tls).into(),
                write: (&total.write).into(),
                first_byte: (&total.first_byte).into(),
                body: (&total.body).into(),
            },
            status_codes: total.statuses.iter().collect(),
            failures: failures(&total.faults),
            failure_examples: examples(&total.examples),
            in_flight_peak: total.in_flight_peak,
            connections: total.connections,
            retried: total.retried,
            redirects: total.redirects,
            other_length: total.other_length,
            variants: total
                .variants
                .iter()
                .map(|(name, figures)| (name.to_owned(), figures.into()))
                .collect(),
            evidence: total.evidence.iter().map(SampleText::from).collect(),
            bytes_in: total.bytes_in,
            bytes_out: total.bytes_out,
            unrecorded: total.unrecorded,
            stalled: total.stalled,
        }
    }
}

fn by_class(outcome: &RunOutcome) -> BTreeMap<&'static str, Latencies> {
    let times =
        OutcomeClass::ALL.map(|class| (class.name(), Latencies::from(&outcome.total.class(class).response)));
    times.into_iter().filter(|(_, latencies)| latencies.count > 0).collect()
}

fn failures(faults: &[u64; RequestFault::KINDS]) -> BTreeMap<&'static str, u64> {
    let named = faults.iter().enumerate().map(|(kind, count)| (RequestFault::name(kind), *count));
    named.filter(|(_, count)| *count > 0).collect()
}

fn examples(examples: &[Option<FailureExample>; RequestFault::KINDS]) -> BTreeMap<&'static str, String> {
    let named = examples.iter().enumerate();
    named
        .filter_map(|(kind, example)| Some((RequestFault::name(kind), example.as_ref()?.to_string())))
        .collect()
}
