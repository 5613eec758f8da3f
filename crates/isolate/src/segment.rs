//! A segment of the experiment: some cells over connections that are opened at its start.
//!
//! Connections differ at random (worker, queue, path). A connection that lasts for the whole experiment would look like a difference
//! between variants. So each segment opens its own connections, and the first requests on them do not count.

use std::time::Duration;

/// The order in which variants send their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VariantOrder {
    /// Request by request, in a random order per round, so that a disturbance affects all variants.
    Interleaved,
    /// Each variant alone for a block of one second, in a random order per cell. This suits variants that would disturb the others.
    OneVariantPerBlock,
}

/// The durations in an experiment. The levels of [`crate::looks`] were tested with [`SegmentTimes::DEFAULT_DURATIONS`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SegmentTimes {
    /// The time for which connections are used.
    pub segment_duration: Duration,
    /// The duration of a cell with interleaved variants.
    pub cell: Duration,
    /// The time for which a variant has the target alone.
    pub block: Duration,
    /// The time at the start of a segment or block that does not count.
    pub settle: Duration,
    /// The time before that without requests, in which remote generators receive their orders.
    pub idle_before_settle: Duration,
}

impl SegmentTimes {
    /// The usual durations: segments of 10 s with cells of 2 s or blocks of 1 s.
    pub const DEFAULT_DURATIONS: Self = Self {
        segment_duration: Duration::from_secs(10),
        cell: Duration::from_secs(2),
        block: Duration::from_secs(1),
        settle: Duration::from_millis(200),
        idle_before_settle: Duration::ZERO,
    };
}

/// The least number of requests per variant in an interleaved cell. With fewer requests, the centre of the times is mostly chance.
pub const MIN_CELL_REQUESTS: f64 = 30.0;

/// A segment of the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// The order of the variants.
    pub design: VariantOrder,
    /// The variants that take part: the reference, which is 0, and others.
    pub members: Vec<usize>,
    /// The number of cells.
    pub cell_count: usize,
    /// The time for which a variant is measured in each cell, together with the others or alone.
    pub measured_time_per_variant: Duration,
    /// The time before the first cell, or before each block, that does not count.
    pub settle: Duration,
    /// The time before that without requests.
    pub idle_before_settle: Duration,
    /// The seed of the random order.
    pub seed: u64,
}

impl Segment {
    /// Creates a segment with these variants at a total rate in requests per second.
    #[must_use]
    pub fn new(design: VariantOrder, members: Vec<usize>, rate: f64, times: SegmentTimes, seed: u64) -> Self {
        let each = each(design, members.len(), rate, times);
        let one = Self {
            design,
            members,
            cell_count: 1,
            measured_time_per_variant: each,
            settle: times.settle,
            idle_before_settle: times.idle_before_settle,
            seed,
        };
        let cells =
            times.segment_duration.as_secs_f64() / one.duration().saturating_sub(one.opening()).as_secs_f64();
        Self { cell_count: (cells as usize).max(1), ..one }
    }

    /// Returns the duration without opening connections.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let members = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        match self.design {
            VariantOrder::Interleaved => self.idle_before_settle + self.send_duration(),
            VariantOrder::OneVariantPerBlock => {
                (self.idle_before_settle + self.send_duration()) * members * self.cells()
            }
        }
    }

    /// Returns the duration of continuous sending: the whole segment, or one block.
    #[must_use]
    pub fn send_duration(&self) -> Duration {
        match self.design {
            VariantOrder::Interleaved => self.settle + self.measured_time_per_variant * self.cells(),
            VariantOrder::OneVariantPerBlock => self.settle + self.measured_time_per_variant,
        }
    }

    fn cells(&self) -> u32 {
        u32::try_from(self.cell_count).unwrap_or(u32::MAX)
    }

    fn opening(&self) -> Duration {
        if self.design == VariantOrder::Interleaved {
            self.idle_before_settle + self.settle
        } else {
            Duration::ZERO
        }
    }

    /// Returns the order of the blocks in each cell.
    #[must_use]
    pub fn blocks(&self) -> Vec<Vec<usize>> {
        self.rounds(self.cell_count)
    }

    /// Returns the order of the variants in each round. Each variant occurs once per round.
    #[must_use]
    pub fn rounds(&self, rounds: usize) -> Vec<Vec<usize>> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let shuffled = |_| {
            let mut round = self.members.clone();
            random.shuffle(&mut round);
            round
        };
        (0..rounds).map(shuffled).collect()
    }
}

fn each(design: VariantOrder, members: usize, rate: f64, times: SegmentTimes) -> Duration {
    match design {
        VariantOrder::Interleaved => times.cell.max(
            Duration::try_from_secs_f64(MIN_CELL_REQUESTS * members as f64 / rate).unwrap_or(Duration::MAX),
        ),
        VariantOrder::OneVariantPerBlock => {
            times.block.max(Duration::try_from_secs_f64(MIN_CELL_REQUESTS / rate).unwrap_or(Duration::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(design: VariantOrder, members: usize, rate: f64) -> Segment {
        Segment::new(design, (0..members).collect(), rate, SegmentTimes::DEFAULT_DURATIONS, 7)
    }

    #[test]
    fn a_segment_has_cells_for_ten_seconds_and_where_requests_are_few_longer_ones() {
        let told = |segment: Segment| {
            (
                segment.cell_count,
                segment.measured_time_per_variant.as_secs_f64(),
                segment.duration().as_secs_f64(),
            )
        };
        assert_eq!(told(segment(VariantOrder::Interleaved, 2, 200.0)), (5, 2.0, 10.2));
        assert_eq!(told(segment(VariantOrder::Interleaved, 10, 50.0)), (1, 6.0, 6.2));
        assert_eq!(told(segment(VariantOrder::OneVariantPerBlock, 2, 200.0)), (4, 1.0, 9.6));
        assert_eq!(told(segment(VariantOrder::OneVariantPerBlock, 3, 10.0)), (1, 3.0, 9.6));
    }

    #[test]
    fn what_goes_by_before_anything_is_sent_is_planned_for_and_sends_nothing() {
        let times =
            SegmentTimes { idle_before_settle: Duration::from_secs(1), ..SegmentTimes::DEFAULT_DURATIONS };
        let of = |design| Segment::new(design, vec![0, 1], 200.0, times, 7);
        let told = |segment: Segment| {
            (segment.cell_count, segment.send_duration().as_secs_f64(), segment.duration().as_secs_f64())
        };
        assert_eq!(told(of(VariantOrder::Interleaved)), (5, 10.2, 11.2));
        assert_eq!(told(of(VariantOrder::OneVariantPerBlock)), (2, 1.2, 8.8));
    }

    #[test]
    fn each_round_has_each_member_once_in_an_order_of_its_own() {
        let rounds = segment(VariantOrder::Interleaved, 4, 200.0).rounds(50);
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        let first = |member| rounds.iter().filter(|round| round[0] == member).count();
        assert!((0..4).all(|member| (3..25).contains(&first(member))));
        assert_eq!(segment(VariantOrder::Interleaved, 4, 200.0).rounds(50), rounds, "the seed says it");
    }
}
