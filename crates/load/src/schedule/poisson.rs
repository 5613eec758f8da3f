//! Poisson arrivals: positions with exponential gaps, the same for a seed whoever draws them.

use super::{ONE, Position};

/// The positions of a Poisson process of rate one. Every thread draws all of them and keeps its own: the arrivals
/// are then the same for any number of threads, and sequence numbers follow time.
#[derive(Debug, Clone)]
pub(super) struct Gaps {
    random: fastrand::Rng,
    /// Of the last hit drawn.
    pub(super) position: Position,
    pub(super) drawn: u64,
}

impl Gaps {
    fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), position: 0, drawn: 0 }
    }

    fn skip(&mut self, count: u64) {
        for _ in 0..count {
            let gap = -(1.0 - self.random.f64()).ln();
            self.position = self.position.saturating_add((gap * ONE) as Position);
        }
        self.drawn += count;
    }
}

/// Draws after which a mark is left: some milliseconds.
pub(super) const MARK: u64 = 1 << 20;

/// A Poisson process and where it was, so that what is asked about a moment ago need not be drawn again from the start:
/// after 10^9 hits that took seconds.
#[derive(Debug)]
pub(super) struct Trail {
    pub(super) gaps: Gaps,
    /// The older one first; at least [`MARK`] draws ago once there were as many.
    pub(super) marks: [Gaps; 2],
}

impl Trail {
    pub(super) fn new(seed: u64) -> Self {
        let gaps = Gaps::new(seed);
        Self { marks: [gaps.clone(), gaps.clone()], gaps }
    }

    #[inline]
    pub(super) fn skip(&mut self, count: u64) {
        self.gaps.skip(count);
        if self.gaps.drawn - self.marks[1].drawn >= MARK {
            self.marks = [self.marks[1].clone(), self.gaps.clone()];
        }
    }
}

/// Where Poisson arrivals have been drawn up to; nowhere by default.
#[derive(Debug, Clone, Default)]
pub struct Drawn(pub(super) Vec<Gaps>);

impl Drawn {
    /// What several know.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Draws on to the hit with this number, or to the first that is not before this position.
    pub(super) fn on_to(&self, seed: u64, hit: u64, position: Position) -> Gaps {
        let known = self.0.iter().filter(|mark| mark.drawn <= hit && mark.position < position);
        let mut gaps = known
            .max_by_key(|mark| mark.drawn)
            .filter(|mark| mark.drawn > 0)
            .cloned()
            .unwrap_or_else(|| Gaps::new(seed));
        while gaps.drawn == 0 || gaps.drawn <= hit && gaps.position < position {
            gaps.skip(1);
        }
        gaps
    }
}
