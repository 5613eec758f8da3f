//! What became of the requests of a way: how many were sent, and how they failed, by what was answered or why nothing was. Pure.

use seawall_load::fate::CompletedRequest;
use seawall_load::fault::RequestFault;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Of one way, whatever became of the cells that they were in. Bounded, as statuses and faults are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// All that have ended.
    pub requests: u64,
    /// Of them without a good answer, for another reason than that nobody waited any more.
    pub failed: u64,
    /// Of them those that nobody waited for any more.
    pub unanswered: u64,
    /// All that were sent again, whatever became of them: the connection that they were on had been closed.
    pub resent: u64,
    by_reason: Vec<(Reason, u64)>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    Status(u16),
    Fault(RequestFault),
    /// What another generator said of it.
    Told(String),
}

/// Counts as they stand in a line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    requests: u64,
    failed: u64,
    unanswered: u64,
    resent: u64,
    failures: Vec<FailureCount>,
}

impl Serialize for RequestCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { requests, failed, unanswered, resent, .. } = *self;
        Line { requests, failed, unanswered, resent, failures: self.failures() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RequestCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Line { requests, failed, unanswered, resent, failures } = Line::deserialize(deserializer)?;
        let by_reason =
            failures.into_iter().map(|FailureCount { what, count }| (Reason::Told(what), count)).collect();
        Ok(Self { requests, failed, unanswered, resent, by_reason })
    }
}

/// Requests that failed alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// The status that was answered, or the reason in words.
    pub what: String,
    /// Requests.
    pub count: u64,
}

impl RequestCounts {
    /// A hit that has ended.
    pub(super) fn add(&mut self, fate: &CompletedRequest) {
        self.requests += 1;
        self.resent += u64::from(fate.retries > 0);
        if fate.outcome == Err(RequestFault::Aborted) {
            self.unanswered += 1;
        } else if !fate.is_good() {
            self.failed += 1;
            self.count(&fate.outcome.map_or_else(Reason::Fault, Reason::Status), 1);
        }
    }

    /// Those of another time, too.
    pub fn merge(&mut self, others: &Self) {
        self.requests += others.requests;
        self.failed += others.failed;
        self.unanswered += others.unanswered;
        self.resent += others.resent;
        others.by_reason.iter().for_each(|(reason, count)| self.count(reason, *count));
    }

    fn count(&mut self, reason: &Reason, more: u64) {
        match self.by_reason.iter_mut().find(|(known, _)| known == reason) {
            Some((_, count)) => *count += more,
            None => self.by_reason.push((reason.clone(), more)),
        }
    }

    /// How they failed in words, the most frequent first.
    #[must_use]
    pub fn failures(&self) -> Vec<FailureCount> {
        let what = |reason: &Reason| match reason {
            Reason::Status(status) => status.to_string(),
            Reason::Fault(fault) => fault.to_string(),
            Reason::Told(what) => what.clone(),
        };
        let mut told: Vec<_> = self
            .by_reason
            .iter()
            .map(|(reason, count)| FailureCount { what: what(reason), count: *count })
            .collect();
        told.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.what.cmp(&other.what)));
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
                target: 0,
                due: 0,
                sent: Some(0),
                own_lag: 0,
                end: 1,
                outcome,
                bytes_in: 0,
                retries: 0,
                carrier: None,
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
        assert_eq!((all.requests, all.failed, all.unanswered, all.resent), (36, 10, 8, 16));
        let told: Vec<_> = all.failures().into_iter().map(|failure| (failure.what, failure.count)).collect();
        assert_eq!(told, [(RequestFault::Timeout.to_string(), 6), ("503".to_owned(), 4)]);
        let read: RequestCounts = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!((read.requests, read.unanswered, read.failures()), (36, 8, all.failures()));
    }
}
