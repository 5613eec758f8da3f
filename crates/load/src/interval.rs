//! Exact figures from one instant of a run to another, as data that can be written, read again, and added up.
//!
//! The live view, Prometheus metrics and the HDR log read intervals while a run goes on. Intervals add up in two directions:
//! *along* the run, one after the other, and *across* generators that each send a shard of one schedule with the same start. Both
//! lose nothing, because histograms are sums.
//!
//! A [`CompactInterval`] holds an interval where there is little room, such as in the log of a pod.

mod compact_interval;

use std::iter::Peekable;

use serde::{Deserialize, Serialize};

pub use self::compact_interval::CompactInterval;

use crate::clock::Nanos;
use crate::stats::LoadStats;

/// The figures of one interval of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "compact_interval::IntervalJson")]
pub struct IntervalStats {
    /// The start of the interval, counted from the start of the run.
    #[serde(rename = "start_seconds", with = "crate::duration_json")]
    pub from: Nanos,
    /// The end of the interval, counted from the start of the run. Figures of that instant are in the next interval.
    #[serde(rename = "end_seconds", with = "crate::duration_json")]
    pub to: Nanos,
    /// The figures of the interval.
    pub stats: LoadStats,
}

/// The error of intervals that do not follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an interval begins at {found_start} ns, but the interval before it ends at {expected_start} ns")]
pub struct IntervalGap {
    /// The expected start of the next interval.
    pub expected_start: Nanos,
    /// The real start of the next interval.
    pub found_start: Nanos,
}

impl IntervalStats {
    /// Adds the next interval of the same generator.
    ///
    /// # Errors
    /// [`IntervalGap`] if `next` does not start at the end of this interval, or ends before it starts; nothing was added then.
    pub fn append_next_interval(&mut self, next: &Self) -> Result<(), IntervalGap> {
        if next.from != self.to || next.to < next.from {
            return Err(IntervalGap { expected_start: self.to, found_start: next.from });
        }
        self.to = next.to;
        self.stats.merge(&next.stats);
        Ok(())
    }

    /// Adds the figures of another generator for the same time. The maximum in flight becomes the sum of both maximums.
    fn beside(&mut self, other: &Self) {
        self.to = self.to.max(other.to);
        self.stats.merge_concurrent(&other.stats);
    }
}

/// Merges the intervals of several generators into those of one run, one at a time. Each generator has the same start and no
/// gaps.
///
/// An interval of the result ends where an interval of each generator ends, or with the last generator; if generators have
/// intervals of different lengths, the result has the longer ones. After an [`IntervalGap`] error, the iterator must not be used
/// any more: the intervals of one generator do not follow each other from the start on.
#[derive(Debug)]
pub struct IntervalsMerge<I: Iterator<Item = IntervalStats>> {
    lines: Vec<Peekable<I>>,
    from: Nanos,
}

impl<I: Iterator<Item = IntervalStats>> IntervalsMerge<I> {
    /// Makes a merge of several generators, each with its intervals in order.
    pub fn new(generators: impl IntoIterator<Item = I>) -> Self {
        Self { lines: generators.into_iter().map(Iterator::peekable).collect(), from: 0 }
    }

    /// Returns the next interval, which ends at `to`, or later if an interval of a generator goes beyond `to`.
    fn until(&mut self, mut to: Nanos) -> Result<IntervalStats, IntervalGap> {
        let from = self.from;
        let empty = IntervalStats { from, to: from, ..IntervalStats::default() };
        let mut parts = vec![empty; self.lines.len()];
        // An interval that goes beyond the present end moves the end.
        while let Some((line, part)) = self.lines.iter_mut().zip(&mut parts).find_map(|(line, part)| {
            line.peek().is_some_and(|next| next.from < to || next.to <= to).then_some((line, part))
        }) {
            if let Some(next) = line.next() {
                part.append_next_interval(&next)?;
                to = to.max(next.to);
            }
        }
        let mut sum = IntervalStats { from, to, ..IntervalStats::default() };
        parts.iter().for_each(|part| sum.beside(part));
        self.from = to;
        Ok(sum)
    }
}

impl<I: Iterator<Item = IntervalStats>> Iterator for IntervalsMerge<I> {
    type Item = Result<IntervalStats, IntervalGap>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.lines.iter_mut().filter_map(|line| line.peek().map(|next| next.to)).min()?;
        Some(self.until(first))
    }
}

/// Returns all intervals of an [`IntervalsMerge`].
///
/// # Errors
/// [`IntervalGap`] if the intervals of one generator do not follow each other from the start on.
pub fn merge(generators: Vec<Vec<IntervalStats>>) -> Result<Vec<IntervalStats>, IntervalGap> {
    IntervalsMerge::new(generators.into_iter().map(Vec::into_iter)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::SECOND;
    use crate::request_failure_reason::{RequestFault, WrongAnswer};
    use crate::schedule::ScheduleShard;
    use crate::stats::FinishedRequest;

    /// Returns a drawn outcome: good, bad, failed, not connected or dropped, and sometimes slow.
    fn finished(seq: u64, seed: u64) -> FinishedRequest {
        let mut random = fastrand::Rng::with_seed(seed ^ (seq << 20));
        let outcome = match random.u32(..20) {
            0 => Err(RequestFault::Timeout),
            1 => Err(RequestFault::Dropped),
            2 => Err(RequestFault::NoConnection),
            3 => Ok(503),
            4 => Ok(404),
            5 => Err(RequestFault::WrongAnswer(WrongAnswer::BodyTooLong)),
            _ => Ok(200),
        };
        let due = seq * SECOND / 100;
        let was_sent = !matches!(outcome, Err(RequestFault::Dropped | RequestFault::NoConnection));
        let sent = was_sent.then(|| due + random.u64(..50_000));
        let took = 1 << random.u32(10..31);
        let first_byte = sent.filter(|_| outcome.is_ok()).map(|sent| sent + took / 2);
        let (target, end) = (random.usize(..70), sent.unwrap_or(due) + took + random.u64(..1000));
        FinishedRequest {
            target_index: target,
            outcome,
            due,
            sent_at: sent,
            first_response_byte_at: first_byte,
            end,
            bytes_in: random.u64(..99),
            bytes_out: 7,
        }
    }

    fn count(stats: &mut LoadStats, finished: &FinishedRequest, schedule_end: Nanos) {
        if let Err(RequestFault::WrongAnswer(_)) = finished.outcome {
            stats.wrong_answers.record(["a", "b"][finished.target_index % 2], 1);
            stats.wrong_answer_statuses.record(200, 1);
        }
        stats.record_finished(finished);
        stats.outcomes.record_finished(finished);
        if finished.end > schedule_end {
            stats.record_after_schedule(finished);
        }
        if let Some(sent) = finished.sent_at {
            stats.sent += 1;
            stats.send_lag.record(sent - finished.due);
            stats.generator_lag.record(sent - finished.due);
        }
        stats.connections += u64::from(finished.target_index == 3);
        stats.saturated_time += finished.end % 7;
    }

    /// Returns the intervals of a generator that sends this shard.
    fn measured(shard: ScheduleShard, hits: u64, seed: u64, length: Nanos) -> Vec<IntervalStats> {
        let mine = (0..hits).filter(|&seq| shard.thread_of(seq, 1).is_some()).map(|seq| finished(seq, seed));
        let mine: Vec<_> = mine.collect();
        let last = mine.iter().map(|finished| finished.end / length + 1).max().unwrap_or(0);
        let mut told: Vec<_> = (0..last)
            .map(|at| IntervalStats { from: at * length, to: (at + 1) * length, stats: LoadStats::default() })
            .collect();
        for finished in &mine {
            let at = usize::try_from(finished.end / length).unwrap();
            count(&mut told[at].stats, finished, hits * SECOND / 100);
        }
        told
    }

    fn total(intervals: &[IntervalStats]) -> LoadStats {
        let mut total = LoadStats::default();
        intervals.iter().for_each(|interval| total.merge(&interval.stats));
        total
    }

    fn json(interval: &IntervalStats) -> String {
        serde_json::to_string(interval).unwrap()
    }

    #[test]
    fn generators_with_other_intervals_merge_into_those_that_all_have() {
        let interval = |from, to, sent| IntervalStats {
            from,
            to,
            stats: LoadStats { sent, in_flight_peak: sent, ..LoadStats::default() },
        };
        let fine = vec![interval(0, 1, 1), interval(1, 2, 2), interval(2, 3, 4), interval(3, 5, 8)];
        let coarse = vec![interval(0, 2, 10), interval(2, 3, 20), interval(3, 3, 40)];
        let merged = merge(vec![fine, coarse]).unwrap();
        let told: Vec<_> = merged.iter().map(|one| (one.from, one.to, one.stats.sent)).collect();
        assert_eq!(told, [(0, 2, 13), (2, 3, 64), (3, 5, 8)]);
        assert_eq!(merged[0].stats.in_flight_peak, 12, "two at most in one, beside ten");
    }

    #[test]
    fn a_hole_in_a_generators_intervals_is_not_bridged() {
        let interval = |from, to| IntervalStats { from, to, ..IntervalStats::default() };
        let gap = merge(vec![vec![interval(0, 1)], vec![interval(0, 1), interval(2, 3)]]).unwrap_err();
        assert_eq!(gap, IntervalGap { expected_start: 1, found_start: 2 });
        assert!(merge(vec![vec![interval(1, 2)]]).is_err(), "the start is missing");
    }

    #[test]
    fn figures_that_contradict_themselves_are_refused() {
        let mut stats = LoadStats::default();
        stats.send_lag.record(1_000_000);
        stats.record_finished(&finished(1, 1));
        stats.outcomes.record_finished(&finished(1, 1));
        let good = json(&IntervalStats { from: 0, to: 1, stats });
        assert!(serde_json::from_str::<IntervalStats>(&good).is_ok(), "{good}");
        for (told, other) in [
            ("\"sum\":1000000", "\"sum\":1000001"),
            ("\"min\":1000000", "\"min\":7"),
            ("\"max\":1000000", "\"max\":-1"),
            ("\"hdr\":\"", "\"hdr\":\"A"),
            ("\"sent\":", "\"shent\":"),
            ("\"target\":", "\"target\":9"),
            ("\"response_time\":", "\"respond_time\":"),
        ] {
            let bad = good.replacen(told, other, 1);
            assert_ne!(bad, good, "{told}");
            assert!(serde_json::from_str::<IntervalStats>(&bad).is_err(), "{other}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn what_shards_measured_is_merged_what_the_whole_measures(
            seed: u64,
            hits in 1..400_u64,
            of in 1..6_u64,
            length in (1..40_u64).prop_map(|steps| steps * SECOND / 20),
        ) {
            let whole = measured(ScheduleShard::default(), hits, seed, length);
            let shards: Vec<_> = (0..of).map(|index| measured(ScheduleShard::new(index, of).unwrap(), hits, seed, length)).collect();
            let merged = merge(shards).unwrap();
            prop_assert_eq!(&merged, &whole);

            // Nothing is lost, whatever the interval length of each generator is.
            let mixed = (0..of).map(|index| {
                let length = length * (1 + index % 3);
                measured(ScheduleShard::new(index, of).unwrap(), hits, seed, length)
            });
            prop_assert_eq!(total(&merge(mixed.collect()).unwrap()), total(&whole));
        }

        #[test]
        fn intervals_return_from_json_as_they_were(seed: u64, hits in 0..300_u64, from: u64, length in 0..u64::from(u32::MAX)) {
            let mut stats = LoadStats::default();
            for seq in 0..hits {
                count(&mut stats, &finished(seq, seed), SECOND);
            }
            (stats.in_flight_peak, stats.retried, stats.output_blocked_time) = (seed, seed / 3, seed / 5);
            stats.tls.record(seed >> 1);
            let interval = IntervalStats { from, to: from.saturating_add(length), stats };
            let read: IntervalStats = serde_json::from_str(&json(&interval)).unwrap();
            prop_assert_eq!(json(&read), json(&interval));
            prop_assert_eq!(read, interval);
        }
    }
}
