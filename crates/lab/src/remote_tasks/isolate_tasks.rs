//! The tasks of an experiment that compares variants, and the results of one generator's part of each.
//!
//! **A time bucket of all parts is one time bucket.** The experiment compares what happened in the same two seconds, and there
//! the parts are not independent. A variant whose server stalls for a second is slow for all generators, and in a block all of
//! them send the same variant to the same target.
//!
//! If each part had time buckets of its own, twenty parts would report one event twenty times. The interim looks assume
//! independent time buckets and would believe it. So the requests of all parts in a time bucket form one
//! [`CellStats`](seawall_isolate::cell::CellStats), as if one generator had sent them. The number, levels and lengths of time
//! buckets are those that the procedure was tested with, at the total rate.
//!
//! Differences between parts, such as their distance from the target, are the same for all variants, because each part sends each
//! variant equally often.

use std::collections::BTreeMap;

use seawall_isolate::cell::CellStatsByVariant;
use seawall_isolate::segment::{Segment, VariantOrder};
use seawall_load::clock::Nanos;
use seawall_load::stats::LatencyHistogram;
use serde::{Deserialize, Serialize};

use super::serde_mirrors::{DesignMirror, SegmentMirror};
use crate::isolate::cells::{CellShare, CompactTimes};
use crate::isolate::failure_counts::RequestCounts;
use crate::isolate::{IsolateStopReason, SegmentResult};

/// A task for a generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SegmentTask {
    /// Report the variants of this generator.
    Ways,
    /// Open the connections of a part of a segment.
    Open {
        /// The segment.
        #[serde(with = "SegmentMirror")]
        segment: Segment,
        /// The total requests per second of all parts.
        rate: f64,
    },
    /// Send over the open connections: all of an interleaved segment, or one block of this variant.
    Send(Option<usize>),
}

/// The result of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SegmentTaskResult {
    /// The variants of the generator.
    Ways(VariantList),
    /// The connections are open.
    Open,
    /// The observations of the requests that were sent.
    Sent(Box<SegmentPartResult>),
    /// The task was impossible, for this reason in words.
    Impossible(String),
}

/// The target and the variants that a pod has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantList {
    /// The target of all variants.
    pub target: String,
    /// The variants, the reference first.
    pub ways: Vec<VariantInfo>,
}

/// One variant of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantInfo {
    /// The name of the variant.
    pub name: String,
    /// The difference from the reference, in words.
    pub what: String,
    /// The design in which the variant takes turns.
    #[serde(with = "DesignMirror")]
    pub design: VariantOrder,
}

/// The observations of a part of a segment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentPartResult {
    /// The complete time buckets, by variant.
    #[serde(with = "deflated")]
    pub cells: Vec<Vec<Option<CellShare>>>,
    /// The response times by variant.
    #[serde(with = "deflated")]
    pub times: Vec<CompactTimes>,
    /// The outcomes of requests, by variant.
    pub counts: Vec<RequestCounts>,
    /// The reason why nothing more is to be sent.
    pub cut: Option<IsolateStopReason>,
    /// The reasons why this generator was the limit, in words.
    pub limits: Vec<String>,
}

/// Serialises a large value as one packed text.
mod deflated {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::super::packed_json::{pack, unpack};

    pub(super) fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        pack(value).ok_or_else(|| S::Error::custom("cannot be encoded"))?.serialize(to)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        unpack(&text).ok_or_else(|| D::Error::custom("expected statistics in base64"))
    }
}

/// The share of limited parts above which a time bucket is invalid. Up to that share, the limited parts are excluded for all
/// variants, so the comparison stays fair.
const LIMITED: f64 = 0.5;

/// The share of limited time buckets above which a part reports its limit. The same share makes a variant invalid.
const OFTEN: f64 = 0.2;

impl SegmentPartResult {
    /// Merges parts that were sent at the same time, each with the name of its generator. The result has no duration.
    #[must_use]
    pub fn merge(parts: &[(String, Self)]) -> SegmentResult {
        let cells = (0..).map_while(|at| cell(parts, at)).collect();
        let limits =
            parts.iter().flat_map(|(name, part)| part.said().map(move |why| format!("{name}: {why}")));
        let mut seen = SegmentResult {
            cells,
            generator_limits: limits.collect(),
            stop_reason: overloaded(parts),
            ..SegmentResult::default()
        };
        for (_, part) in parts {
            let ways = part.times.len().max(part.counts.len()).max(seen.response_times.len());
            seen.response_times.resize_with(ways, LatencyHistogram::default);
            seen.counts.resize_with(ways, RequestCounts::default);
            for (all, times) in seen.response_times.iter_mut().zip(&part.times) {
                times.each().for_each(|time: Nanos| all.record(time));
            }
            seen.counts.iter_mut().zip(&part.counts).for_each(|(all, one)| all.merge(one));
        }
        seen
    }

    /// Returns the remarks about this generator.
    fn said(&self) -> impl Iterator<Item = String> {
        let limited = self.cells.iter().filter(|cell| is_limited(cell)).count();
        let is_often = self.limits.is_empty() && limited as f64 > OFTEN * self.cells.len() as f64;
        let told = is_often.then(|| {
            format!("the generator sent its requests late in {limited} of {} time buckets", self.cells.len())
        });
        self.limits.iter().cloned().chain(told)
    }
}

/// Returns true if a generator was the limit of any variant in its part of a time bucket. Its part then does not count for any
/// other variant either.
fn is_limited(cell: &[Option<CellShare>]) -> bool {
    let reference = cell.first().and_then(Option::as_ref).map(CellShare::lateness);
    let differs = |share: &CellShare| reference.is_some_and(|reference| reference.differs(&share.lateness()));
    cell.iter().flatten().any(|share| share.limited || differs(share))
}

/// Returns this time bucket of all parts that have it; none if no part has it.
fn cell(parts: &[(String, SegmentPartResult)], at: usize) -> Option<CellStatsByVariant> {
    let all: Vec<_> = parts.iter().filter_map(|(_, part)| part.cells.get(at)).collect();
    let ways = all.iter().map(|cell| cell.len()).max()?;
    let fit: Vec<_> = all.iter().filter(|cell| !is_limited(cell)).copied().collect();
    let limited = (all.len() - fit.len()) as f64 > LIMITED * all.len() as f64;
    let counted = if limited { all } else { fit };
    let of = |way: usize| counted.iter().filter_map(|cell| cell.get(way)?.as_ref()).collect::<Vec<_>>();
    Some((0..ways).map(|way| CellShare::merge_into_stats(&of(way), limited)).collect())
}

/// Returns the overloaded variant that most parts name, if any part names one.
fn overloaded(parts: &[(String, SegmentPartResult)]) -> Option<IsolateStopReason> {
    let mut votes = BTreeMap::new();
    for (_, part) in parts {
        if let Some(IsolateStopReason::Overloaded(way)) = part.cut {
            *votes.entry(way).or_insert(0) += 1;
        }
    }
    votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(way, _)| IsolateStopReason::Overloaded(way))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seawall_isolate::segment::SegmentTimes;

    use super::*;

    fn share(limited: bool, requests: usize, time: Nanos) -> Option<CellShare> {
        let mut times = LatencyHistogram::default();
        (0..requests).for_each(|_| times.record(time));
        Some(CellShare {
            requests,
            failed: 0,
            limited,
            lag: 0.0,
            is_late: false,
            times: CompactTimes::from_histogram(&times),
        })
    }

    fn part(name: &str, cells: Vec<Vec<Option<CellShare>>>) -> (String, SegmentPartResult) {
        (name.to_owned(), SegmentPartResult { cells, ..SegmentPartResult::default() })
    }

    const MS: Nanos = 1_000_000;

    #[test]
    fn works_and_what_was_seen_are_read_as_they_were_written() {
        let times =
            SegmentTimes { idle_before_settle: Duration::from_millis(7), ..SegmentTimes::DEFAULT_DURATIONS };
        let segment = Segment::new(VariantOrder::OneVariantPerBlock, vec![0, 3], 70.0, times, 9);
        for work in [
            SegmentTask::Ways,
            SegmentTask::Open { segment, rate: 1e3 / 7.0 },
            SegmentTask::Send(None),
            SegmentTask::Send(Some(3)),
        ] {
            let read: SegmentTask = serde_json::from_str(&serde_json::to_string(&work).unwrap()).unwrap();
            assert_eq!(read, work);
        }
        let (_, mut sent) = part("a", vec![vec![share(true, 9, MS), None]; 3]);
        (sent.cut, sent.limits) = (Some(IsolateStopReason::Overloaded(3)), vec!["slow".to_owned()]);
        let done = SegmentTaskResult::Sent(Box::new(sent));
        let read: SegmentTaskResult = serde_json::from_str(&serde_json::to_string(&done).unwrap()).unwrap();
        assert_eq!(read, done);
    }

    #[test]
    fn a_cell_of_all_parts_is_one_with_the_requests_of_all() {
        let one = part("a", vec![vec![share(false, 10, MS), share(false, 10, 2 * MS)]; 2]);
        let other = part("b", vec![vec![share(false, 11, MS), share(false, 10, 2 * MS)]]);
        let seen = SegmentPartResult::merge(&[one, other]);
        let requests =
            |cell: &CellStatsByVariant| cell.iter().map(|slot| slot.unwrap().requests).collect::<Vec<_>>();
        assert_eq!(seen.cells.iter().map(requests).collect::<Vec<_>>(), [[21, 20], [10, 10]]);
        let middle = |way: usize| seen.cells[0][way].unwrap().interquartile_geometric_mean.unwrap();
        assert!((middle(1) / middle(0) - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_part_whose_generator_was_the_limit_is_left_out_in_all_ways_unless_they_are_many() {
        let cell = |limited| vec![vec![share(limited, 10, MS), share(false, 10, MS)]];
        let parts =
            |limited: usize| (0..6).map(|at| part(&at.to_string(), cell(at < limited))).collect::<Vec<_>>();
        let of = |limited| {
            let seen = SegmentPartResult::merge(&parts(limited));
            let slots =
                seen.cells[0].iter().map(|slot| slot.map(|slot| (slot.requests, slot.is_generator_limited)));
            (slots.collect::<Vec<_>>(), seen.generator_limits)
        };
        assert_eq!(of(0), (vec![Some((60, false)); 2], vec![]));
        assert_eq!(
            of(1),
            (
                vec![Some((50, false)); 2],
                vec!["0: the generator sent its requests late in 1 of 1 time buckets".to_owned()]
            )
        );
        assert_eq!(of(3).0, vec![Some((30, false)); 2]);
        assert_eq!(of(4).0, vec![Some((60, true)); 2]);
    }

    #[test]
    fn the_way_that_most_find_overloaded_is_named() {
        let cut = |cut| (String::new(), SegmentPartResult { cut, ..SegmentPartResult::default() });
        let told = [
            Some(IsolateStopReason::Overloaded(2)),
            None,
            Some(IsolateStopReason::Stopped),
            Some(IsolateStopReason::Overloaded(1)),
            Some(IsolateStopReason::Overloaded(2)),
        ];
        assert_eq!(
            SegmentPartResult::merge(&told.map(cut)).stop_reason,
            Some(IsolateStopReason::Overloaded(2))
        );
        assert_eq!(
            SegmentPartResult::merge(&[cut(Some(IsolateStopReason::Stopped))]).stop_reason,
            None,
            "whose end it was says why"
        );
    }
}
