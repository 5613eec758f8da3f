//! Poisson arrivals: positions with exponential gaps. A seed always gives the same positions, and any position takes some hundred
//! steps.
//!
//! Gaps stand in *blocks*: [`LEAF`] gaps are a leaf, and each block after the first two is twice as long as the one before it.
//! The sum of `n` exponential gaps has a Gamma distribution. Its division between the two halves of the block has a symmetric
//! Beta distribution that does not depend on the sum (Johnson, Kotz, Balakrishnan, *Continuous Univariate Distributions*, chapter
//! 17). So a block's length is drawn without its gaps, and the block is halved until the requested leaf is left: counting unsent
//! requests does not draw 10^9 gaps. Every draw has a generator of its own, seeded by its place.

use super::{HIT, ONE, Position};

/// The number of gaps in a leaf. Finding a leaf costs some draws for each doubling of the request's number; all gaps of the leaf
/// share them.
const LEAF: u64 = 1 << 8;

/// A Poisson process of rate one.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoissonProcess {
    seed: u64,
}

/// A block of the process.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// The number of its first gap.
    first: u64,
    /// The number of gaps: a power of two, at least a leaf.
    gaps: u64,
    start: Position,
    length: Position,
}

impl PoissonProcess {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns the number of arrivals before a position.
    pub(super) fn arrivals_before(self, position: Position) -> u64 {
        let leaf = self.leaf(|block| block.start.saturating_add(block.length) >= position);
        let mut walk = PoissonCursor::into(self, leaf);
        while walk.next < leaf.first.saturating_add(leaf.gaps) && walk.step() < position {}
        if walk.position < position { walk.next } else { walk.next - 1 }
    }

    /// Returns the position of the request with this number.
    pub(super) fn position(self, hit: u64) -> Position {
        PoissonCursor::at_hit(self, hit).position
    }

    /// Returns the first leaf that satisfies a condition. All blocks after it must satisfy the condition, too.
    fn leaf(self, reaches: impl Fn(&Block) -> bool) -> Block {
        let block =
            self.blocks().find(|block| reaches(block) || block.first.checked_add(block.gaps).is_none());
        let mut block = block.unwrap_or_else(|| self.root());
        while block.gaps > LEAF {
            let [left, right] = self.halves(block);
            block = if reaches(&left) { left } else { right };
        }
        block
    }

    fn root(self) -> Block {
        Block { first: 0, gaps: LEAF, start: 0, length: self.length(0, LEAF) }
    }

    /// Returns the blocks from the first on.
    fn blocks(self) -> impl Iterator<Item = Block> {
        std::iter::successors(Some(self.root()), move |before| {
            let first = before.first.checked_add(before.gaps)?;
            let start = before.start.saturating_add(before.length);
            Some(Block { first, gaps: first, start, length: self.length(first, first) })
        })
    }

    /// Returns the sum of a block's gaps.
    fn length(self, first: u64, gaps: u64) -> Position {
        (gamma(&mut self.random(first, gaps), gaps as f64) * ONE) as Position
    }

    fn halves(self, block: Block) -> [Block; 2] {
        let gaps = block.gaps / 2;
        let mut random = self.random(block.first, !block.gaps);
        let [a, b] = [(); 2].map(|()| gamma(&mut random, gaps as f64));
        let length = part(block.length, a / (a + b));
        let left = Block { gaps, length, ..block };
        let right = Block {
            first: block.first + gaps,
            gaps,
            start: block.start.saturating_add(length),
            length: block.length - length,
        };
        [left, right]
    }

    /// Returns the random generator of a place. Neighbouring places must not have similar seeds.
    fn random(self, first: u64, what: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(mixed(mixed(mixed(self.seed) ^ first) ^ what))
    }
}

/// Walks from one arrival to the next.
#[derive(Debug, Clone)]
pub(super) struct PoissonCursor {
    process: PoissonProcess,
    leaf: Block,
    random: fastrand::Rng,
    /// The number of the next gap.
    next: u64,
    /// The position of the arrival at the end of the gap before.
    position: Position,
}

impl PoissonCursor {
    /// Makes a cursor at the request with this number.
    pub(super) fn at_hit(process: PoissonProcess, hit: u64) -> Self {
        let leaf = process.leaf(|block| block.first.saturating_add(block.gaps) > hit);
        let mut walk = Self::into(process, leaf);
        walk.step_to(hit);
        walk
    }

    fn into(process: PoissonProcess, leaf: Block) -> Self {
        let random = process.random(leaf.first, LEAF / 2);
        Self { process, leaf, random, next: leaf.first, position: leaf.start }
    }

    /// Returns the position.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// Goes on by this number of requests.
    #[inline]
    pub(super) fn skip(&mut self, count: u64) {
        let hit = (self.next - 1).saturating_add(count);
        if hit < self.leaf.first.saturating_add(self.leaf.gaps) {
            self.step_to(hit);
        } else {
            *self = Self::at_hit(self.process, hit);
        }
    }

    fn step_to(&mut self, hit: u64) {
        while self.next <= hit && self.next < self.leaf.first.saturating_add(self.leaf.gaps) {
            self.step();
        }
    }

    /// Draws one gap of the rest of the leaf: the first of `n` such shares is distributed as `1 - u^(1/(n-1))`. The last gap
    /// takes the rest, so that the leaf has the length that its block gave it.
    #[inline]
    fn step(&mut self) -> Position {
        let rest = self.leaf.start.saturating_add(self.leaf.length) - self.position;
        let others = self.leaf.gaps - 1 - (self.next - self.leaf.first);
        let share = -((1.0 - self.random.f64()).ln() / others as f64).exp_m1();
        self.position += if others == 0 { rest } else { part(rest, share) };
        self.next += 1;
        self.position
    }
}

/// Returns a share, from 0 to 1, of a length.
fn part(length: Position, share: f64) -> Position {
    // The product is made in two halves, because a float has fewer digits than a position.
    let (whole, fraction) = (length >> HIT, length as u64);
    let exact = (whole as f64 * share * ONE) + fraction as f64 * share;
    (exact as Position).min(length)
}

/// Implements splitmix64's finalizer (Steele, Lea, Flood 2014).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Draws a sum of `shape` exponential variables, by Marsaglia and Tsang ("A simple method for generating gamma variables", ACM
/// TOMS 26, 2000), for large shapes. Their difference is rearranged, because at a shape of 2^57 a float would leave nothing of
/// it.
fn gamma(random: &mut fastrand::Rng, shape: f64) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let step = c * x;
        if step <= -1.0 {
            continue;
        }
        let above_one = step * (3.0 + step * (3.0 + step));
        let bound = 0.5 * x * x + d * (above_one.ln_1p() - above_one);
        if (1.0 - random.f64()).ln() < bound {
            return d * (1.0 + above_one);
        }
    }
}

/// Draws a normal variable by Box and Muller (1958), one of the two.
fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    fn positions(process: PoissonProcess, count: u64) -> Vec<Position> {
        let mut walk = PoissonCursor::at_hit(process, 0);
        let positions = (0..count).map(|_| {
            let position = walk.position();
            walk.skip(1);
            position
        });
        positions.collect()
    }

    #[test]
    fn a_walk_by_ones_meets_every_arrival_where_it_is_asked_for() {
        let process = PoissonProcess::new(11);
        let walked = positions(process, 5 * LEAF + 3);
        assert!(walked.is_sorted());
        for (hit, &position) in (0..).zip(&walked) {
            assert_eq!(process.position(hit), position, "{hit}");
            assert_eq!(
                (process.arrivals_before(position), process.arrivals_before(position + 1)),
                (hit, hit + 1)
            );
        }
    }

    /// The variance of the counts of a Poisson process is their mean, in windows shorter and longer than a leaf.
    #[test]
    fn counts_vary_as_much_as_they_should_however_wide_the_window() {
        let process = PoissonProcess::new(5);
        for window in [1_u64, 32, 300, 5000] {
            let counts: Vec<f64> = (0..2000)
                .map(|at| [at, at + 1].map(|at| process.arrivals_before(Position::from(at * window) << HIT)))
                .map(|[from, to]| (to - from) as f64)
                .collect();
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            let variance =
                counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
            assert!((mean / window as f64 - 1.0).abs() < 0.1, "{mean} in {window}");
            assert!((variance / mean - 1.0).abs() < 0.15, "{variance} of {mean} in {window}");
        }
    }

    #[test]
    fn any_arrival_is_found_in_some_hundred_steps() {
        for hit in [0, LEAF, 1_000_000_000, 1_000_000_000_000_000_000, u64::MAX - 1, u64::MAX] {
            let steps = Cell::new(0);
            let leaf = PoissonProcess::new(3).leaf(|block| {
                steps.set(steps.get() + 1);
                block.first.saturating_add(block.gaps) > hit
            });
            assert!(steps.get() <= 2 * u64::BITS, "{} for {hit}", steps.get());
            assert_eq!((leaf.gaps, leaf.first), (LEAF, hit / LEAF * LEAF), "{hit}");
        }
    }

    #[test]
    fn no_position_is_too_late_to_be_counted_up_to() {
        assert_eq!(PoissonProcess::new(1).arrivals_before(0), 0);
        assert!(PoissonProcess::new(1).arrivals_before(Position::MAX) > u64::MAX / 2);
    }

    proptest! {
        #[test]
        fn whoever_takes_every_nth_arrival_takes_the_same_ones(seed: u64, stride in 1..2000_u64, index in 0..2000_u64) {
            let process = PoissonProcess::new(seed);
            let mut walk = PoissonCursor::at_hit(process, index);
            for turn in 0..50 {
                prop_assert_eq!(walk.position(), process.position(index + turn * stride));
                walk.skip(stride);
            }
        }
    }
}
