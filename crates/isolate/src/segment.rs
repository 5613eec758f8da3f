//! What is carried out in one piece: some cells over connections that are new at its beginning.
//!
//! Connections differ by chance (a worker, a queue, a path), and one that is kept for a whole experiment looks like a difference
//! between variants. So each segment opens its own, and drops what is sent before they are warm.

use std::time::Duration;

/// How variants take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Design {
    /// Request by request, in an order drawn for each round: what disturbs one disturbs all.
    Interleaved,
    /// Each alone for a block of a second, in an order drawn for each cell: for what would disturb the others.
    Blocks,
}

/// Lengths. Those of [`SegmentTimes::USUAL`] are what the levels of [`crate::looks`] were tried with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SegmentTimes {
    /// For which connections are used.
    pub segment: Duration,
    /// Of a cell in which variants are interleaved.
    pub cell: Duration,
    /// For which a variant has the target alone.
    pub block: Duration,
    /// At the beginning of a segment and of a block, of which nothing counts.
    pub settle: Duration,
    /// Before that, in which nothing is sent: until whoever carries it out from elsewhere has been told.
    pub gap: Duration,
}

impl SegmentTimes {
    /// Ten seconds of cells of two, or of blocks of one.
    pub const USUAL: Self = Self {
        segment: Duration::from_secs(10),
        cell: Duration::from_secs(2),
        block: Duration::from_secs(1),
        settle: Duration::from_millis(200),
        gap: Duration::ZERO,
    };
}

/// Requests of each variant that an interleaved cell is to have: of fewer their middle is mostly chance.
pub const MIN_CELL_REQUESTS: f64 = 30.0;

/// A piece of the experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// How its variants take turns.
    pub design: Design,
    /// Which take part: the reference, which is 0, and some others.
    pub members: Vec<usize>,
    /// How many cells it has.
    pub cells: usize,
    /// How long a variant is looked at in each: together with the others, or alone.
    pub each: Duration,
    /// Before the first cell, or before each block.
    pub settle: Duration,
    /// Before that, in which nothing is sent.
    pub gap: Duration,
    /// For the order in which they take turns.
    pub seed: u64,
}

impl Segment {
    /// Of these members at so many requests a second together.
    #[must_use]
    pub fn new(design: Design, members: Vec<usize>, rate: f64, times: SegmentTimes, seed: u64) -> Self {
        let each = each(design, members.len(), rate, times);
        let one = Self { design, members, cells: 1, each, settle: times.settle, gap: times.gap, seed };
        let cells = times.segment.as_secs_f64() / one.duration().saturating_sub(one.opening()).as_secs_f64();
        Self { cells: (cells as usize).max(1), ..one }
    }

    /// How long it takes, opening connections aside.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let members = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        match self.design {
            Design::Interleaved => self.gap + self.send_duration(),
            Design::Blocks => (self.gap + self.send_duration()) * members * self.cells(),
        }
    }

    /// How long it sends in one piece: all of it, or one block.
    #[must_use]
    pub fn send_duration(&self) -> Duration {
        match self.design {
            Design::Interleaved => self.settle + self.each * self.cells(),
            Design::Blocks => self.settle + self.each,
        }
    }

    fn cells(&self) -> u32 {
        u32::try_from(self.cells).unwrap_or(u32::MAX)
    }

    fn opening(&self) -> Duration {
        if self.design == Design::Interleaved { self.gap + self.settle } else { Duration::ZERO }
    }

    /// Members in the order of their blocks, cell by cell.
    #[must_use]
    pub fn blocks(&self) -> Vec<Vec<usize>> {
        self.rounds(self.cells)
    }

    /// Members in the order in which they take turns, so many rounds of them: each once in a round.
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

fn each(design: Design, members: usize, rate: f64, times: SegmentTimes) -> Duration {
    match design {
        Design::Interleaved => times.cell.max(
            Duration::try_from_secs_f64(MIN_CELL_REQUESTS * members as f64 / rate).unwrap_or(Duration::MAX),
        ),
        Design::Blocks => {
            times.block.max(Duration::try_from_secs_f64(MIN_CELL_REQUESTS / rate).unwrap_or(Duration::MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(design: Design, members: usize, rate: f64) -> Segment {
        Segment::new(design, (0..members).collect(), rate, SegmentTimes::USUAL, 7)
    }

    #[test]
    fn a_segment_has_cells_for_ten_seconds_and_where_requests_are_few_longer_ones() {
        let told =
            |segment: Segment| (segment.cells, segment.each.as_secs_f64(), segment.duration().as_secs_f64());
        assert_eq!(told(segment(Design::Interleaved, 2, 200.0)), (5, 2.0, 10.2));
        assert_eq!(told(segment(Design::Interleaved, 10, 50.0)), (1, 6.0, 6.2));
        assert_eq!(told(segment(Design::Blocks, 2, 200.0)), (4, 1.0, 9.6));
        assert_eq!(told(segment(Design::Blocks, 3, 10.0)), (1, 3.0, 9.6));
    }

    #[test]
    fn what_goes_by_before_anything_is_sent_is_planned_for_and_sends_nothing() {
        let times = SegmentTimes { gap: Duration::from_secs(1), ..SegmentTimes::USUAL };
        let of = |design| Segment::new(design, vec![0, 1], 200.0, times, 7);
        let told = |segment: Segment| {
            (segment.cells, segment.send_duration().as_secs_f64(), segment.duration().as_secs_f64())
        };
        assert_eq!(told(of(Design::Interleaved)), (5, 10.2, 11.2));
        assert_eq!(told(of(Design::Blocks)), (2, 1.2, 8.8));
    }

    #[test]
    fn each_round_has_each_member_once_in_an_order_of_its_own() {
        let rounds = segment(Design::Interleaved, 4, 200.0).rounds(50);
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        let first = |member| rounds.iter().filter(|round| round[0] == member).count();
        assert!((0..4).all(|member| (3..25).contains(&first(member))));
        assert_eq!(segment(Design::Interleaved, 4, 200.0).rounds(50), rounds, "the seed says it");
    }
}
