//! A pod's clock beside ours, by round trips.
//!
//! A pod says what its clock showed somewhere between a question and the coming of its answer, so that it is off by what it showed less
//! the middle of the two, give or take half of what that took (Cristian, "Probabilistic clock synchronization", 1989). The quickest of
//! many trips says it best; clocks that drift are asked on.

use std::collections::VecDeque;
use std::time::Duration;

/// Trips of which the quickest counts: of a minute and more, one each second.
const KEPT: usize = 64;

/// How far a pod's clock is ahead of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// By so many nanoseconds, behind if negative.
    pub ahead_nanos: i64,
    /// Give or take so many.
    pub error_nanos: u64,
}

impl ClockOffset {
    /// What the pod's clock shows when ours shows this. An offset that may be chance is none: clocks of one machine, and most of a
    /// cluster, agree better than trips tell.
    #[must_use]
    pub fn to_pod_time(self, ours: i64) -> i64 {
        if self.is_insignificant() { ours } else { ours.saturating_add(self.ahead_nanos) }
    }

    /// What ours shows when the pod's shows this.
    #[must_use]
    pub fn to_local_time(self, theirs: i64) -> i64 {
        if self.is_insignificant() { theirs } else { theirs.saturating_sub(self.ahead_nanos) }
    }

    /// Whether both clocks may show the same.
    #[must_use]
    pub fn is_insignificant(self) -> bool {
        self.ahead_nanos.unsigned_abs() <= self.error_nanos
    }
}

/// Trips to one pod.
#[derive(Debug, Clone, Default)]
pub struct RoundTrips {
    latest: VecDeque<ClockOffset>,
}

impl RoundTrips {
    /// A question that left and came back then by our clock, and what the pod's showed in between; Unix nanoseconds.
    pub fn record(&mut self, left: i64, back: i64, theirs: i64) {
        if back < left {
            return;
        }
        let took = back.abs_diff(left);
        let middle = left.saturating_add(i64::try_from(took / 2).unwrap_or(i64::MAX));
        if self.latest.len() == KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(ClockOffset {
            ahead_nanos: theirs.saturating_sub(middle),
            error_nanos: took.div_ceil(2),
        });
    }

    /// What is known; none before the first trip.
    #[must_use]
    pub fn offset(&self) -> Option<ClockOffset> {
        self.latest.iter().copied().min_by_key(|offset| offset.error_nanos)
    }

    /// Trips so far, as far as they are kept.
    #[must_use]
    pub fn count(&self) -> usize {
        self.latest.len()
    }
}

/// How far from the instant that was agreed on a pod began: so much later, give or take so much; never more exact than its clock is known.
#[must_use]
pub fn start_delay(began: i64, agreed: i64, offset: ClockOffset) -> (i64, Duration) {
    (offset.to_local_time(began).saturating_sub(agreed), Duration::from_nanos(offset.error_nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn the_quickest_trip_says_how_far_a_clock_is_off_and_how_well_that_is_known() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.offset(), None);
        // 50 ms ahead; the answer waits on its way back, and then not.
        trips.record(0, 40 * MS, 51 * MS);
        trips.record(100 * MS, 102 * MS, 151 * MS);
        let offset = trips.offset().unwrap();
        assert_eq!(offset, ClockOffset { ahead_nanos: 50 * MS, error_nanos: MS as u64 });
        assert_eq!((offset.to_pod_time(0), offset.to_local_time(50 * MS)), (50 * MS, 0));
        assert_eq!(start_delay(1050 * MS + 7, 1000 * MS, offset), (7, Duration::from_millis(1)));
    }

    #[test]
    fn what_may_be_chance_is_no_offset() {
        let mut trips = RoundTrips::default();
        trips.record(0, 4 * MS, 3 * MS);
        let offset = trips.offset().unwrap();
        assert_eq!((offset.ahead_nanos, offset.error_nanos), (MS, 2 * MS as u64));
        assert_eq!((offset.to_pod_time(9), offset.to_local_time(9)), (9, 9));
    }

    #[test]
    fn trips_are_kept_for_as_long_as_clocks_keep_their_pace() {
        let mut trips = RoundTrips::default();
        trips.record(0, 0, 0);
        (0..100).for_each(|_| trips.record(0, 2 * MS, 9 * MS));
        assert_eq!(trips.count(), KEPT);
        assert_eq!(trips.offset().unwrap().ahead_nanos, 8 * MS, "the quickest was long ago");
        trips.record(5, 4, 0);
        assert_eq!(trips.offset().unwrap().ahead_nanos, 8 * MS, "an answer before its question is none");
    }
}
