//! One number per question about a whole set of results, by vegeta's definitions.
//!
//! The definitions are `lib/metrics.go` of vegeta, so that reports can be compared; where one is odd (`rate` divides by
//! the time between the first and the last request, `throughput` by attack time plus wait) it is kept here under its old
//! name and explained by the summary. Quantiles come from an HDR histogram instead of a t-digest: at most 0.1 %
//! above the true value, at every quantile.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use seawall_load::latency_distribution::{Distribution, Precision};
use seawall_load::record::{Record, ZonedTimestamp};
use seawall_load::request_failure_reason::RequestFault;

use crate::go_format::GoDuration;

/// The largest number of different error texts. Texts can hold ports and addresses, so their number grows with that of the
/// requests; the rest is counted together.
const MAX_TEXTS: usize = 1000;

/// Everything that the text and JSON reports say.
#[derive(Debug, Clone)]
pub(crate) struct Totals {
    pub(crate) requests: u64,
    pub(crate) successes: u64,
    /// Requests that [`is_never_sent`] knows.
    pub(crate) unsent: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) latency: Distribution,
    pub(crate) codes: BTreeMap<u16, u64>,
    pub(crate) errors: ErrorCounts,
    earliest: ZonedTimestamp,
    latest: ZonedTimestamp,
    end_ns: i128,
    end: ZonedTimestamp,
    smallest: i64,
}

impl Default for Totals {
    fn default() -> Self {
        let unset = ZonedTimestamp::default();
        Self {
            requests: 0,
            successes: 0,
            unsent: 0,
            bytes_in: 0,
            bytes_out: 0,
            latency: Distribution::new(Precision::Three),
            codes: BTreeMap::new(),
            errors: ErrorCounts::default(),
            earliest: unset,
            latest: unset,
            end_ns: unset.unix_ns(),
            end: unset,
            smallest: 0,
        }
    }
}

impl Totals {
    /// Adds one result.
    pub(crate) fn add_record(&mut self, record: &Record) {
        self.requests += 1;
        self.successes += u64::from(record.is_success());
        self.unsent += u64::from(is_never_sent(record));
        self.bytes_in = self.bytes_in.wrapping_add(record.bytes_in);
        self.bytes_out = self.bytes_out.wrapping_add(record.bytes_out);
        self.latency.record(record.latency_ns);
        if record.latency_ns < self.smallest || self.smallest == 0 {
            self.smallest = record.latency_ns;
        }
        *self.codes.entry(record.code).or_default() += 1;
        self.errors.add(&record.error);
        self.stretch(record);
    }

    /// Go's zero time means "not set yet", as in vegeta.
    fn stretch(&mut self, record: &Record) {
        let at = record.due_timestamp.unix_ns();
        if self.earliest == ZonedTimestamp::default() || at < self.earliest.unix_ns() {
            self.earliest = record.due_timestamp;
        }
        if at > self.latest.unix_ns() {
            self.latest = record.due_timestamp;
        }
        let end_ns = record.end_unix_ns();
        if end_ns > self.end_ns {
            self.end_ns = end_ns;
            self.end = later(record.due_timestamp, record.latency_ns);
        }
    }

    /// The first request's instant.
    pub(crate) fn earliest(&self) -> ZonedTimestamp {
        self.earliest
    }

    /// The last request's instant.
    pub(crate) fn latest_request_start(&self) -> ZonedTimestamp {
        self.latest
    }

    /// The instant of the last answer.
    pub(crate) fn end_time(&self) -> ZonedTimestamp {
        self.end
    }

    /// Smallest latency other than 0, as vegeta has it.
    pub(crate) fn min_latency(&self) -> GoDuration {
        GoDuration(self.smallest)
    }

    /// Largest latency, never below 0.
    pub(crate) fn max_latency(&self) -> GoDuration {
        GoDuration(self.latency.max().max(0))
    }

    /// Mean latency.
    pub(crate) fn mean_latency(&self) -> GoDuration {
        GoDuration(self.latency.mean())
    }

    /// A quantile of latency.
    pub(crate) fn latency_quantile(&self, q: f64) -> GoDuration {
        GoDuration(self.latency.quantile(q))
    }

    /// From the first request to the last.
    pub(crate) fn duration(&self) -> GoDuration {
        between(self.earliest.unix_ns(), self.latest.unix_ns())
    }

    /// From the last request to the last answer.
    pub(crate) fn wait_duration(&self) -> GoDuration {
        between(self.latest.unix_ns(), self.end_ns)
    }

    /// Attack and wait together.
    pub(crate) fn duration_with_wait(&self) -> GoDuration {
        GoDuration(self.duration().0.saturating_add(self.wait_duration().0))
    }

    /// Requests per second of [`Self::duration`]; the plain count if that is 0.
    pub(crate) fn rate(&self) -> f64 {
        per_second(self.requests, self.duration(), self.duration())
    }

    /// Successes per second of [`Self::duration_with_wait`]; the plain count if [`Self::duration`] is 0.
    pub(crate) fn throughput(&self) -> f64 {
        per_second(self.successes, self.duration(), self.duration_with_wait())
    }

    /// Successes among all requests, 0 to 1.
    pub(crate) fn success_ratio(&self) -> f64 {
        self.mean_per_request(self.successes)
    }

    /// A sum per request; 0 without any.
    pub(crate) fn mean_per_request(&self, sum: u64) -> f64 {
        if self.requests == 0 { 0.0 } else { sum as f64 / self.requests as f64 }
    }
}

/// True for a request that our generator gave up before it sent it. A record has nothing but the text to tell.
pub(super) fn is_never_sent(record: &Record) -> bool {
    static TEXTS: LazyLock<[String; 3]> = LazyLock::new(|| {
        [RequestFault::DeadlineBeforeSend, RequestFault::Dropped, RequestFault::InvalidFilledTemplate]
            .map(|fault| fault.to_string())
    });
    record.code == 0 && TEXTS.contains(&record.error)
}

fn later(timestamp: ZonedTimestamp, ns: i64) -> ZonedTimestamp {
    let end = timestamp.unix_ns() + i128::from(ns);
    let seconds = i64::try_from(end.div_euclid(1_000_000_000)).ok();
    let nanos = u32::try_from(end.rem_euclid(1_000_000_000)).ok();
    let moved = seconds
        .zip(nanos)
        .and_then(|(seconds, nanos)| ZonedTimestamp::from_unix(seconds, nanos, timestamp.zone()));
    moved.unwrap_or(timestamp)
}

fn between(from: i128, to: i128) -> GoDuration {
    GoDuration(i64::try_from(to - from).unwrap_or(if to > from { i64::MAX } else { i64::MIN }))
}

fn per_second(count: u64, if_any: GoDuration, time: GoDuration) -> f64 {
    if if_any.0 > 0 { count as f64 / time.as_seconds() } else { count as f64 }
}

/// Error texts in the order of their first appearance, with their counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct ErrorCounts {
    texts: Vec<(String, u64)>,
    places: HashMap<String, usize>,
    others: u64,
}

impl ErrorCounts {
    fn add(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(&place) = self.places.get(text) {
            self.texts[place].1 += 1;
        } else if self.texts.len() < MAX_TEXTS {
            self.places.insert(text.to_owned(), self.texts.len());
            self.texts.push((text.to_owned(), 1));
        } else {
            self.others += 1;
        }
    }

    /// Texts and counts, by first appearance.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.texts.iter().map(|(text, count)| (text.as_str(), *count))
    }

    /// Said where texts had to be left out.
    pub(crate) fn omitted_message(&self) -> Option<String> {
        (self.others > 0)
            .then(|| format!("({} more errors with texts other than these {MAX_TEXTS})", self.others))
    }
}
