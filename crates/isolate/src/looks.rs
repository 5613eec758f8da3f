//! When the cells are looked at, and how sure a look must be: who looks often finds something sooner or later.
//!
//! Chosen by simulation (`simulated`): with these levels the looks of a whole experiment together tell two equal ways apart, or call
//! ways equal that are as far apart as the margin, in less than 3 % of experiments.

/// Cells after which the first looks are; after them each has a third more than the one before.
const FIRST: [usize; 8] = [10, 15, 20, 25, 30, 40, 50, 60];

/// What a difference must exceed to be one, at least: ways that are this near are not told apart, whatever the time. Connections that differ
/// a little by chance are nearer.
pub const NULL_DIFFERENCE: f64 = 0.01;

/// The same of a margin: it is a fifth of the usual one, and of a wider one, too. Whoever calls a quarter no difference that matters has a path
/// on which a little is chance more often than not.
const PARTS: f64 = 5.0;

/// What a difference must exceed beside ways that are equal within this margin.
#[must_use]
pub fn null_difference(margin: f64) -> f64 {
    NULL_DIFFERENCE.max(margin / PARTS)
}

/// Tails that are no further apart than this share are equal: a narrower margin takes longer than anybody waits.
pub const TAIL_MARGIN: f64 = 0.2;

/// [`SignificanceLevels`] of the first eight.
const DIFFERENCE: f64 = 0.008;
const EQUALITY: f64 = 0.003;

/// Tails are so noisy that [`NULL_DIFFERENCE`] keeps nothing off: the level alone has to.
const TAIL: f64 = 4.0;

/// How often a look may err.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignificanceLevels {
    /// In telling a difference where there is none, to one side.
    pub difference: f64,
    /// In telling two ways equal that are as far apart as the margin.
    pub equality: f64,
}

/// One of the looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterimLook(usize);

impl InterimLook {
    /// The first of all.
    pub const FIRST: Self = Self(0);

    /// The one after.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Cells that it waits for.
    #[must_use]
    pub fn cells(self) -> usize {
        let beyond = (self.0 + 1).saturating_sub(FIRST.len());
        let last = FIRST[self.0.min(FIRST.len() - 1)];
        (0..beyond).fold(last, |cells, _| (cells * 4).div_ceil(3).next_multiple_of(5))
    }

    /// Errors that it may make about the middle of times.
    #[must_use]
    pub fn levels(self) -> SignificanceLevels {
        SignificanceLevels { difference: DIFFERENCE * self.share(), equality: EQUALITY * self.share() }
    }

    /// The same about 99th percentiles.
    #[must_use]
    pub fn p99_levels(self) -> SignificanceLevels {
        SignificanceLevels { difference: self.levels().difference / TAIL, ..self.levels() }
    }

    /// Looks beyond the first eight become stricter, so that all of them together, were there no end, add no more than a third to what the eight may err.
    fn share(self) -> f64 {
        let number = (self.0 + 1) as f64;
        (FIRST.len() as f64 / number).powi(3).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a path that wanders by a quarter, which its margin said, 11 % (4 to 21) were told of a hop that costs nothing.
    #[test]
    fn what_is_no_difference_is_1_percent_and_a_fifth_of_a_wider_margin() {
        assert_eq!(
            [0.02, 0.05, 0.1, 0.25, 0.5].map(null_difference),
            [NULL_DIFFERENCE, NULL_DIFFERENCE, 0.02, 0.05, 0.1]
        );
        let told = |margin: f64| {
            let differences: Vec<_> = (0..30).map(|cell| 0.03 + 0.001 * f64::from(cell % 7)).collect();
            crate::judge::p_beyond(&differences, null_difference(margin).ln_1p())
        };
        assert!(told(0.05) < 0.001 && told(0.25) > 0.5);
    }

    #[test]
    fn looks_are_further_and_further_apart_and_beyond_the_eighth_stricter() {
        let looks: Vec<_> =
            std::iter::successors(Some(InterimLook::FIRST), |look| Some(look.next())).take(12).collect();
        let cells: Vec<_> = looks.iter().map(|look| look.cells()).collect();
        assert_eq!(cells, [10, 15, 20, 25, 30, 40, 50, 60, 80, 110, 150, 200]);
        assert_eq!(looks[7].levels(), SignificanceLevels { difference: DIFFERENCE, equality: EQUALITY });
        assert!(looks[8].levels().difference < 0.75 * DIFFERENCE);
        let all = std::iter::successors(Some(InterimLook::FIRST), |look| Some(look.next()));
        let spent: f64 = all.take(100).map(|look| look.levels().difference).sum();
        assert!(spent < 12.0 * DIFFERENCE, "{spent}");
    }
}
