//! Compares a pod's clock with the local clock by round trips.
//!
//! A pod reports its clock at some time between a question and the arrival of its answer. The offset is that time minus the middle of the
//! round trip, with an error of half its duration (Cristian, "Probabilistic clock synchronization", 1989). The shortest of many round trips
//! gives the best estimate. The comparison continues during a run, because clocks drift.

use std::collections::VecDeque;
use std::time::Duration;

/// The number of round trips of which the shortest counts: slightly more than a minute with one per second.
const KEPT: usize = 64;

/// The offset of a pod's clock from the local clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// The nanoseconds by which the pod's clock is ahead; negative if it is behind.
    pub ahead_nanos: i64,
    /// The error bound in nanoseconds.
    pub error_nanos: u64,
}

impl ClockOffset {
    /// Converts a local time to the pod's time. An offset within its error bound counts as 0: the clocks of one machine, and of most
    /// clusters, agree better than round trips can show.
    #[must_use]
    pub fn to_pod_time(self, ours: i64) -> i64 {
        if self.is_insignificant() { ours } else { ours.saturating_add(self.ahead_nanos) }
    }

    /// Converts a pod's time to the local time.
    #[must_use]
    pub fn to_local_time(self, theirs: i64) -> i64 {
        if self.is_insignificant() { theirs } else { theirs.saturating_sub(self.ahead_nanos) }
    }

    /// Returns whether the offset is within its error bound.
    #[must_use]
    pub fn is_insignificant(self) -> bool {
        self.ahead_nanos.unsigned_abs() <= self.error_nanos
    }
}

/// The round trips to one pod.
#[derive(Debug, Clone, Default)]
pub struct RoundTrips {
    latest: VecDeque<ClockOffset>,
}

impl RoundTrips {
    /// Records a round trip: when the question left and the answer came by the local clock, and the pod's time in between. All are Unix
    /// nanoseconds.
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

    /// Returns the offset; none before the first round trip.
    #[must_use]
    pub fn offset(&self) -> Option<ClockOffset> {
        self.latest.iter().copied().min_by_key(|offset| offset.error_nanos)
    }

    /// Returns the number of recorded round trips, up to the limit.
    #[must_use]
    pub fn count(&self) -> usize {
        self.latest.len()
    }
}

/// Returns the delay of a pod's start after the agreed instant, with its error bound. The error is at least that of the clock
/// offset.
#[must_use]
pub fn start_lateness(began: i64, agreed: i64, offset: ClockOffset) -> (i64, Duration) {
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
        // The clock is 50 ms ahead. The first answer is delayed on its way back, and the second is not.
        trips.record(0, 40 * MS, 51 * MS);
        trips.record(100 * MS, 102 * MS, 151 * MS);
        let offset = trips.offset().unwrap();
        assert_eq!(offset, ClockOffset { ahead_nanos: 50 * MS, error_nanos: MS as u64 });
        assert_eq!((offset.to_pod_time(0), offset.to_local_time(50 * MS)), (50 * MS, 0));
        assert_eq!(start_lateness(1050 * MS + 7, 1000 * MS, offset), (7, Duration::from_millis(1)));
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
