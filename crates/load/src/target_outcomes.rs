//! Outcomes by target and status, in a few wide buckets, for a metrics endpoint that shows a run while it goes on.
//!
//! [`crate::stats`] distinguishes a few classes of outcomes and keeps fine histograms of each; a scraper needs the exact status
//! and eleven buckets. The senders fill it only if [`crate::plan::LoadSpec::collect_target_outcomes`] asks for it. The module knows no names:
//! the caller has the list of targets. All sizes are bounded, because a server chooses its statuses.

mod json;

use crate::clock::{Nanos, SECOND};
use crate::request_failure_reason::RequestFault;
use crate::stats::FinishedRequest;

/// The upper bounds of the buckets: the defaults of Prometheus' Go client, which vegeta uses (`prometheus/client_golang`,
/// `DefBuckets`). One more bucket holds larger values.
pub const BUCKET_BOUNDS: [Nanos; 11] = [
    SECOND / 200,
    SECOND / 100,
    SECOND / 40,
    SECOND / 20,
    SECOND / 10,
    SECOND / 4,
    SECOND / 2,
    SECOND,
    SECOND * 5 / 2,
    SECOND * 5,
    SECOND * 10,
];

/// The maximum number of targets that are counted separately. Further targets share the last entry, so a million URLs cost no
/// more.
pub const MAX_TARGETS: usize = 64;

/// The maximum number of statuses that are counted separately for one target.
const MOST_STATUSES: usize = 16;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestOutcome {
    /// A complete response with this status.
    Status(u16),
    /// A complete response with a status beyond the maximum number of statuses.
    OtherStatus,
    /// A failure, by [`RequestFault::kind_index`].
    Fault(usize),
}

/// The requests to one target with one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// The outcome.
    pub kind: RequestOutcome,
    /// The number of requests with this outcome.
    pub count: u64,
    /// The response times of the sent requests, by [`BUCKET_BOUNDS`]; not cumulative.
    pub buckets: [u64; BUCKET_BOUNDS.len() + 1],
    /// The sum of those response times, in nanoseconds.
    pub total_time: u128,
    /// Bytes of response bodies.
    pub bytes_in: u64,
    /// Bytes of request bodies.
    pub bytes_out: u64,
}

/// Every outcome of every target.
#[derive(Debug, Clone, Default)]
pub struct TargetOutcomes(Vec<Vec<OutcomeCounts>>);

impl TargetOutcomes {
    /// Counts one finished request.
    #[inline]
    pub fn record_finished(&mut self, finished: &FinishedRequest) {
        let kind = match finished.outcome {
            Ok(status) => RequestOutcome::Status(status),
            Err(fault) => RequestOutcome::Fault(fault.kind_index()),
        };
        let was_sent = finished.outcome.err().is_none_or(RequestFault::was_attempted);
        let outcome = self.outcome(finished.target_index, kind);
        outcome.count += 1;
        outcome.bytes_in += finished.bytes_in;
        if was_sent {
            let response = finished.end.saturating_sub(finished.due);
            outcome.bytes_out += if finished.sent_at.is_some() { finished.bytes_out } else { 0 };
            outcome.total_time += u128::from(response);
            outcome.buckets[BUCKET_BOUNDS.partition_point(|&bound| bound < response)] += 1;
        }
    }

    /// Adds the counts of another thread or another interval.
    pub fn merge(&mut self, other: &Self) {
        for (target, theirs) in other.filled() {
            self.outcome(target, theirs.kind).merge(theirs);
        }
    }

    /// Sets the counts to 0 and keeps the entries.
    pub(crate) fn clear(&mut self) {
        self.0.iter_mut().flatten().for_each(|outcome| *outcome = OutcomeCounts::new(outcome.kind));
    }

    /// Returns targets and outcomes; the last of [`MAX_TARGETS`] stands for all further targets.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &OutcomeCounts)> {
        self.0.iter().enumerate().flat_map(|(target, outcomes)| outcomes.iter().map(move |one| (target, one)))
    }

    /// Returns the outcomes that were counted, without entries whose count is 0.
    fn filled(&self) -> impl Iterator<Item = (usize, &OutcomeCounts)> {
        self.iter().filter(|(_, outcome)| outcome.count > 0)
    }

    fn outcome(&mut self, target: usize, kind: RequestOutcome) -> &mut OutcomeCounts {
        let target = target.min(MAX_TARGETS - 1);
        if target >= self.0.len() {
            self.0.resize_with(target + 1, Vec::new);
        }
        place(&mut self.0[target], kind)
    }
}

/// Two values are equal if their counts are equal; empty entries and the order of entries do not matter.
impl PartialEq for TargetOutcomes {
    fn eq(&self, other: &Self) -> bool {
        let sorted = |outcomes: &Self| {
            let mut all: Vec<_> = outcomes.filled().map(|(target, one)| (target, one.clone())).collect();
            all.sort_unstable_by_key(|(target, one)| (*target, one.kind));
            all
        };
        sorted(self) == sorted(other)
    }
}

/// Returns the index of the entry of an outcome, and adds the entry if there is room for one more status.
fn place(outcomes: &mut Vec<OutcomeCounts>, kind: RequestOutcome) -> &mut OutcomeCounts {
    let at = find(outcomes, kind).unwrap_or_else(|| {
        let statuses = outcomes.iter().filter(|one| matches!(one.kind, RequestOutcome::Status(_))).count();
        let is_beyond = matches!(kind, RequestOutcome::Status(_)) && statuses >= MOST_STATUSES;
        let kind = if is_beyond { RequestOutcome::OtherStatus } else { kind };
        find(outcomes, kind).unwrap_or_else(|| {
            outcomes.push(OutcomeCounts::new(kind));
            outcomes.len() - 1
        })
    });
    &mut outcomes[at]
}

fn find(outcomes: &[OutcomeCounts], kind: RequestOutcome) -> Option<usize> {
    outcomes.iter().position(|one| one.kind == kind)
}

impl OutcomeCounts {
    /// Adds the figures of another entry; counters saturate, and the kind stays.
    pub fn merge(&mut self, other: &Self) {
        let buckets = self.buckets.iter_mut().zip(other.buckets);
        buckets.for_each(|(ours, theirs)| *ours = ours.saturating_add(theirs));
        self.count = self.count.saturating_add(other.count);
        self.total_time = self.total_time.saturating_add(other.total_time);
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
    }

    /// Returns the largest of its counters.
    pub(crate) fn largest_counter(&self) -> u64 {
        self.buckets.into_iter().fold(self.count.max(self.bytes_in).max(self.bytes_out), u64::max)
    }

    fn new(kind: RequestOutcome) -> Self {
        Self {
            kind,
            count: 0,
            buckets: [0; BUCKET_BOUNDS.len() + 1],
            total_time: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(target: usize, outcome: Result<u16, RequestFault>, end: Nanos) -> FinishedRequest {
        FinishedRequest {
            target_index: target,
            outcome,
            due: 0,
            sent_at: Some(0),
            first_response_byte_at: None,
            end,
            bytes_in: 1,
            bytes_out: 2,
        }
    }

    #[test]
    fn a_bound_belongs_to_its_bucket_and_what_was_not_sent_has_no_time() {
        let mut outcomes = TargetOutcomes::default();
        outcomes.record_finished(&finished(0, Ok(200), BUCKET_BOUNDS[0]));
        outcomes.record_finished(&finished(0, Ok(200), BUCKET_BOUNDS[0] + 1));
        outcomes.record_finished(&finished(0, Ok(200), SECOND * 60));
        outcomes.record_finished(&finished(0, Err(RequestFault::Dropped), 5));
        let all: Vec<_> = outcomes.iter().map(|(_, one)| one).collect();
        assert_eq!((all[0].count, all[0].buckets[0], all[0].buckets[1], all[0].buckets[11]), (3, 1, 1, 1));
        assert_eq!((all[1].count, all[1].buckets, all[1].bytes_out), (1, [0; 12], 0));
    }

    #[test]
    fn a_server_that_invents_statuses_and_a_list_of_a_million_targets_fill_no_memory() {
        let mut outcomes = TargetOutcomes::default();
        for status in 100..600 {
            outcomes.record_finished(&finished(1_000_000, Ok(status), 1));
        }
        assert_eq!(outcomes.iter().count(), MOST_STATUSES + 1);
        let (target, other) = outcomes.iter().last().unwrap();
        assert_eq!((target, other.kind), (MAX_TARGETS - 1, RequestOutcome::OtherStatus));
        assert_eq!(other.count, 500 - MOST_STATUSES as u64);
    }

    #[test]
    fn adding_is_exact_and_clearing_keeps_the_places() {
        let mut one = TargetOutcomes::default();
        one.record_finished(&finished(0, Ok(200), SECOND));
        let mut sum = one.clone();
        sum.merge(&one);
        assert_eq!(sum.iter().map(|(_, one)| (one.count, one.total_time)).next(), Some((2, 2_000_000_000)));
        sum.clear();
        assert_eq!(sum.iter().map(|(_, one)| one.count).collect::<Vec<_>>(), [0]);
    }
}
