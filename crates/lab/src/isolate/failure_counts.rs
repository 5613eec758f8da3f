//! Counts of one variant's requests: how many were sent, and how many failed for which reason.

use seawall_load::completed_request::CompletedRequest;
use seawall_load::request_failure_reason::RequestFault;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Counts of one variant's requests, in whatever time buckets they were. The number of reasons is bounded because statuses
/// and faults are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// The number of requests that have ended.
    pub requests: u64,
    /// The number of requests that failed. Requests that were aborted at the end are not among them.
    pub failed: u64,
    /// The number of requests that were aborted at the end without a response.
    pub aborted_at_end: u64,
    /// The number of requests that were sent again because their connection had been closed.
    pub retried: u64,
    by_reason: Vec<(Reason, u64)>,
}

/// The reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    Status(u16),
    Fault(RequestFault),
    /// A reason in words from another generator.
    RemoteText(String),
}

/// The counts as a pod writes them in one line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    requests: u64,
    failed: u64,
    no_response: u64,
    retried: u64,
    failures: Vec<FailureCount>,
}

impl Serialize for RequestCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { requests, failed, aborted_at_end: no_response, retried, .. } = *self;
        Line { requests, failed, no_response, retried, failures: self.failures_by_reason() }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RequestCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Line { requests, failed, no_response, retried, failures } = Line::deserialize(deserializer)?;
        let by_reason = failures
            .into_iter()
            .map(|FailureCount { reason, count }| (Reason::RemoteText(reason), count))
            .collect();
        Ok(Self { requests, failed, aborted_at_end: no_response, retried, by_reason })
    }
}

/// The number of requests that failed for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// The HTTP status, or the reason in words.
    pub reason: String,
    /// The number of requests.
    pub count: u64,
}

impl RequestCounts {
    /// Counts a request that has ended.
    pub(super) fn add(&mut self, fate: &CompletedRequest) {
        self.requests += 1;
        self.retried += u64::from(fate.retries > 0);
        if fate.outcome == Err(RequestFault::Aborted) {
            self.aborted_at_end += 1;
        } else if !fate.is_good() {
            self.failed += 1;
            self.count(&fate.outcome.map_or_else(Reason::Fault, Reason::Status), 1);
        }
    }

    /// Adds the counts of another load.
    pub fn merge(&mut self, others: &Self) {
        self.requests += others.requests;
        self.failed += others.failed;
        self.aborted_at_end += others.aborted_at_end;
        self.retried += others.retried;
        others.by_reason.iter().for_each(|(reason, count)| self.count(reason, *count));
    }

    fn count(&mut self, reason: &Reason, more: u64) {
        match self.by_reason.iter_mut().find(|(known, _)| known == reason) {
            Some((_, count)) => *count += more,
            None => self.by_reason.push((reason.clone(), more)),
        }
    }

    /// Returns the failures by reason, the most frequent reason first.
    #[must_use]
    pub fn failures_by_reason(&self) -> Vec<FailureCount> {
        let what = |reason: &Reason| match reason {
            Reason::Status(status) => status.to_string(),
            Reason::Fault(fault) => fault.to_string(),
            Reason::RemoteText(what) => what.clone(),
        };
        let mut told: Vec<_> = self
            .by_reason
            .iter()
            .map(|(reason, count)| FailureCount { reason: what(reason), count: *count })
            .collect();
        told.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.reason.cmp(&other.reason)));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_counted_by_status_or_reason_and_what_nobody_waited_for_apart() {
        let mut counts = RequestCounts::default();
        let mut add = |outcome, times| {
            let fate = CompletedRequest {
                target_index: 0,
                due: 0,
                sent_at: Some(0),
                generator_lag: 0,
                end: 1,
                outcome,
                response_body_bytes: 0,
                retries: 0,
                connection_timings: None,
            };
            (0..times).for_each(|time| counts.add(&CompletedRequest { retries: time % 2, ..fate }));
        };
        add(Ok(200), 9);
        add(Ok(503), 2);
        add(Err(RequestFault::Timeout), 3);
        add(Err(RequestFault::Aborted), 4);
        let mut all = RequestCounts::default();
        all.merge(&counts);
        all.merge(&counts);
        assert_eq!((all.requests, all.failed, all.aborted_at_end, all.retried), (36, 10, 8, 16));
        let told: Vec<_> =
            all.failures_by_reason().into_iter().map(|failure| (failure.reason, failure.count)).collect();
        assert_eq!(told, [(RequestFault::Timeout.to_string(), 6), ("503".to_owned(), 4)]);
        let read: RequestCounts = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!(
            (read.requests, read.aborted_at_end, read.failures_by_reason()),
            (36, 8, all.failures_by_reason())
        );
    }
}
