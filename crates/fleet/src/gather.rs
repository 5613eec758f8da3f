//! Merges the intervals of many pods into those of one generator, while they arrive.
//!
//! Each interval is added to those of the other pods at once, so memory only holds the seconds that are not complete, whatever the number
//! of pods. A merged interval is complete when every running pod has reported it. Lost and late pods do
//! not delay an interval: it names them, and their requests are missing from its sums. Late reports count in the total.

use seawall_load::clock::{Nanos, SECOND};
use seawall_load::interval::{IntervalGap, IntervalStats};
use seawall_load::stats::LoadStats;

/// The wait for late pods after the end of an interval. With the interval's own second, a pod that fell silent at its start is missed 1.8 s
/// later.
pub const LATE_AFTER: Nanos = 8 * SECOND / 10;

/// A merged interval of all pods.
#[derive(Debug, Clone, PartialEq)]
pub struct MergedInterval {
    /// The sum over the pods that have reported.
    pub interval: IntervalStats,
    /// The pods whose report is missing or incomplete.
    pub missing_pods: Vec<usize>,
}

/// The state of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The pod reports intervals.
    Reporting,
    /// The pod has reported its whole run.
    Finished,
    /// The pod is lost.
    Lost,
}

/// The progress of one pod.
#[derive(Debug, Clone, Copy)]
struct Pod {
    state: State,
    /// The time up to which the pod has reported.
    to: Nanos,
}

/// A part of the run that was not passed on yet.
#[derive(Debug)]
struct MergeCell {
    from: Nanos,
    to: Nanos,
    stats: LoadStats,
    /// The peak requests in flight of each pod.
    peaks: Vec<(usize, u64)>,
}

/// Merges the reports of all pods.
#[derive(Debug)]
pub struct IntervalMerger {
    pods: Vec<Pod>,
    /// The cells in order, without overlaps.
    cells: Vec<MergeCell>,
    told: Nanos,
    total: LoadStats,
    /// The peak requests in flight of each pod over the whole run.
    peaks: Vec<u64>,
}

impl IntervalMerger {
    /// Creates a merger for this many pods, whose run starts at 0.
    #[must_use]
    pub fn new(pods: usize) -> Self {
        let pod = Pod { state: State::Reporting, to: 0 };
        Self {
            pods: vec![pod; pods],
            cells: Vec::new(),
            told: 0,
            total: LoadStats::default(),
            peaks: vec![0; pods],
        }
    }

    /// Adds the next interval of a pod.
    ///
    /// # Errors
    /// [`IntervalGap`] if the interval does not follow the pod's last one. Nothing is added then.
    pub fn add(&mut self, pod: usize, interval: &IntervalStats) -> Result<(), IntervalGap> {
        let Some(known) = self.pods.get_mut(pod) else { return Ok(()) };
        if interval.from != known.to || interval.to < interval.from {
            return Err(IntervalGap { expected_start: known.to, found_start: interval.from });
        }
        known.to = interval.to;
        self.peaks[pod] = self.peaks[pod].max(interval.stats.in_flight_peak);
        if interval.to > self.told || interval.from >= self.told {
            self.enter(pod, interval.from.max(self.told), interval);
        } else {
            // An interval that was passed on stays unchanged, so a late report only counts in the total.
            self.total.merge(&interval.stats);
        }
        Ok(())
    }

    /// Marks a pod that has reported its whole run.
    pub fn mark_finished(&mut self, pod: usize) {
        self.set(pod, State::Finished);
    }

    /// Marks a pod that will report nothing more before the end of its run.
    pub fn mark_lost(&mut self, pod: usize) {
        self.set(pod, State::Lost);
    }

    fn set(&mut self, pod: usize, state: State) {
        if let Some(pod) = self.pods.get_mut(pod).filter(|pod| pod.state == State::Reporting) {
            pod.state = state;
        }
    }

    fn enter(&mut self, pod: usize, from: Nanos, interval: &IntervalStats) {
        let mut cell = MergeCell { from, to: interval.to, stats: LoadStats::default(), peaks: Vec::new() };
        let touching = |other: &MergeCell| {
            let both_empty = other.from == other.to || from == interval.to;
            other.from < interval.to && from < other.to
                || both_empty && other.from <= interval.to && from <= other.to
        };
        let mut at = self.cells.partition_point(|other| other.to <= from && !touching(other));
        while self.cells.get(at).is_some_and(touching) {
            cell.join(self.cells.remove(at));
        }
        cell.stats.merge(&interval.stats);
        cell.peak(pod, interval.stats.in_flight_peak);
        at = at.min(self.cells.len());
        self.cells.insert(at, cell);
    }

    /// Returns the next merged interval, if it is complete or overdue. `now` is a time of the run.
    pub fn next(&mut self, now: Nanos) -> Option<MergedInterval> {
        let first = self.cells.first()?;
        let to = first.to;
        let has_told = |pod: &Pod| pod.state == State::Finished || pod.to >= to;
        let is_awaited = |pod: &Pod| pod.state == State::Reporting && !has_told(pod);
        if self.pods.iter().any(is_awaited) && now < to.saturating_add(LATE_AFTER) {
            return None;
        }
        let missing =
            self.pods.iter().enumerate().filter(|(_, pod)| !has_told(pod)).map(|(at, _)| at).collect();
        let mut cell = self.cells.remove(0);
        cell.stats.in_flight_peak = cell.peaks.iter().map(|(_, peak)| peak).sum();
        self.total.merge(&cell.stats);
        let from = std::mem::replace(&mut self.told, to);
        Some(MergedInterval {
            interval: IntervalStats { from, to, stats: cell.stats },
            missing_pods: missing,
        })
    }

    /// Returns whether every pod has finished or is lost, and everything was passed on.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.cells.is_empty() && self.pods.iter().all(|pod| pod.state != State::Reporting)
    }

    /// Returns the end of the last merged interval.
    #[must_use]
    pub fn merged_until(&self) -> Nanos {
        self.told
    }

    /// Returns the total without the sum of the peaks.
    #[must_use]
    pub fn running_total(&self) -> &LoadStats {
        &self.total
    }

    /// Returns the total of all reports, including late ones.
    #[must_use]
    pub fn total(&self) -> LoadStats {
        LoadStats { in_flight_peak: self.peaks.iter().sum(), ..self.total.clone() }
    }
}

impl MergeCell {
    fn join(&mut self, other: Self) {
        self.from = self.from.min(other.from);
        self.to = self.to.max(other.to);
        // The other side has the larger histograms, so reusing them avoids allocations.
        let own = std::mem::replace(&mut self.stats, other.stats);
        self.stats.merge(&own);
        for (pod, peak) in other.peaks {
            self.peak(pod, peak);
        }
    }

    fn peak(&mut self, pod: usize, peak: u64) {
        match self.peaks.iter_mut().find(|(of, _)| *of == pod) {
            Some((_, most)) => *most = (*most).max(peak),
            None => self.peaks.push((pod, peak)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(from: Nanos, to: Nanos, sent: u64) -> IntervalStats {
        IntervalStats { from, to, stats: LoadStats { sent, in_flight_peak: sent, ..LoadStats::default() } }
    }

    fn seconds(from: Nanos, to: Nanos, sent: u64) -> IntervalStats {
        interval(from * SECOND, to * SECOND, sent)
    }

    /// Returns all intervals that are available at this time, as (from, to, sent, missing).
    fn told(gather: &mut IntervalMerger, now: Nanos) -> Vec<(Nanos, Nanos, u64, Vec<usize>)> {
        std::iter::from_fn(|| gather.next(now))
            .map(|one| {
                let IntervalStats { from, to, stats } = one.interval;
                (from / SECOND, to / SECOND, stats.sent, one.missing_pods)
            })
            .collect()
    }

    #[test]
    fn an_interval_is_told_when_every_pod_has_told_its_part() {
        let mut gather = IntervalMerger::new(2);
        gather.add(0, &seconds(0, 1, 5)).unwrap();
        gather.add(0, &seconds(1, 2, 6)).unwrap();
        assert_eq!(told(&mut gather, SECOND), []);
        gather.add(1, &seconds(0, 1, 7)).unwrap();
        assert_eq!(told(&mut gather, SECOND), [(0, 1, 12, vec![])]);
        gather.add(1, &seconds(1, 2, 8)).unwrap();
        assert_eq!(told(&mut gather, SECOND), [(1, 2, 14, vec![])]);
        assert_eq!(gather.total().sent, 26);
    }

    #[test]
    fn a_pod_with_a_longer_interval_makes_one_of_all_longer() {
        let mut gather = IntervalMerger::new(2);
        gather.add(0, &seconds(0, 1, 1)).unwrap();
        gather.add(0, &seconds(1, 2, 2)).unwrap();
        gather.add(0, &seconds(2, 3, 4)).unwrap();
        gather.add(1, &seconds(0, 2, 10)).unwrap();
        gather.add(1, &seconds(2, 3, 20)).unwrap();
        assert_eq!(told(&mut gather, 0), [(0, 2, 13, vec![]), (2, 3, 24, vec![])]);
    }

    #[test]
    fn most_in_flight_is_the_sum_of_what_each_pod_had_at_most() {
        let mut gather = IntervalMerger::new(2);
        gather.add(0, &seconds(0, 1, 1)).unwrap();
        gather.add(0, &seconds(1, 2, 2)).unwrap();
        gather.add(1, &seconds(0, 2, 10)).unwrap();
        assert_eq!(gather.next(0).unwrap().interval.stats.in_flight_peak, 12);
        assert_eq!(gather.total().in_flight_peak, 12);
    }

    #[test]
    fn who_is_late_is_named_and_no_longer_waited_for_and_what_he_tells_later_is_in_the_total() {
        let mut gather = IntervalMerger::new(3);
        for pod in 0..2 {
            gather.add(pod, &seconds(0, 1, 5)).unwrap();
        }
        let due = SECOND + LATE_AFTER;
        assert_eq!(told(&mut gather, due - 1), []);
        assert_eq!(told(&mut gather, due), [(0, 1, 10, vec![2])]);
        gather.add(2, &seconds(0, 1, 5)).unwrap();
        assert_eq!(told(&mut gather, due), [], "what was told stays as it was");
        assert_eq!(gather.total().sent, 15);
        (0..3).for_each(|pod| gather.add(pod, &seconds(1, 2, 1)).unwrap());
        assert_eq!(told(&mut gather, 0), [(1, 2, 3, vec![])], "and it is whole again");
    }

    #[test]
    fn who_is_gone_is_missing_from_then_on_and_who_has_ended_is_not() {
        let mut gather = IntervalMerger::new(3);
        (0..3).for_each(|pod| gather.add(pod, &seconds(0, 1, 1)).unwrap());
        gather.mark_lost(0);
        gather.mark_finished(1);
        gather.add(2, &seconds(1, 2, 1)).unwrap();
        assert_eq!(told(&mut gather, 0), [(0, 1, 3, vec![]), (1, 2, 1, vec![0])]);
        assert!(!gather.is_over());
        gather.mark_finished(2);
        gather.mark_lost(1);
        assert!(gather.is_over());
    }

    #[test]
    fn a_hole_in_a_pods_intervals_is_not_bridged() {
        let mut gather = IntervalMerger::new(1);
        gather.add(0, &seconds(0, 1, 1)).unwrap();
        assert!(gather.add(0, &seconds(2, 3, 1)).is_err());
        assert!(gather.add(0, &seconds(1, 0, 1)).is_err());
        assert_eq!(told(&mut gather, 0), [(0, 1, 1, vec![])]);
        assert_eq!(gather.total().sent, 1);
    }

    #[test]
    fn what_is_gathered_is_what_is_merged_when_all_is_there() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let pods: Vec<Vec<IntervalStats>> = (0..4)
                .map(|_| {
                    let mut at = 0;
                    (0..random.u64(1..9))
                        .map(|_| {
                            let from = at;
                            at += random.u64(1..4);
                            seconds(from, at, random.u64(0..9))
                        })
                        .collect()
                })
                .collect();
            let mut gather = IntervalMerger::new(pods.len());
            let mut left: Vec<_> = pods.iter().map(|one| one.iter()).collect();
            let mut gathered = Vec::new();
            while left.iter().any(|one| one.len() > 0) {
                let pod = random.usize(0..left.len());
                match left[pod].next() {
                    Some(next) => gather.add(pod, next).unwrap(),
                    None => gather.mark_finished(pod),
                }
                gathered.extend(std::iter::from_fn(|| gather.next(0)).map(|one| one.interval));
            }
            (0..pods.len()).for_each(|pod| gather.mark_finished(pod));
            gathered.extend(std::iter::from_fn(|| gather.next(0)).map(|one| one.interval));
            let merged = seawall_load::interval::merge(pods).unwrap();
            let sums = |all: &[IntervalStats]| all.iter().map(|one| one.stats.sent).sum::<u64>();
            assert_eq!(sums(&gathered), sums(&merged));
            assert_eq!(gathered.last().map(|one| one.to), merged.last().map(|one| one.to));
            assert!(gathered.windows(2).all(|pair| pair[0].to == pair[1].from));
            assert!(gather.is_over());
        }
    }
}
