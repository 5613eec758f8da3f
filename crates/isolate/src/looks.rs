//! The schedule of the interim looks and their significance levels. More looks need stricter levels.
//!
//! The levels were chosen by simulation (`simulated`). Over all looks of an experiment, less than 3 % of experiments find a difference
//! between equal variants, or call variants equal that differ by the margin.

/// The numbers of cells at the first looks. Each later look has a third more cells than the one before.
const FIRST: [usize; 8] = [10, 15, 20, 25, 30, 40, 50, 60];

/// The smallest difference that counts. Variants within it are never called different. Random differences between connections are smaller.
pub const NULL_DIFFERENCE: f64 = 0.01;

/// The divisor of the margin that gives the null difference of wide margins. A wide margin means a noisy path, on which small differences
/// are often chance.
const PARTS: f64 = 5.0;

/// Returns the difference that counts as none for this margin.
#[must_use]
pub fn null_difference(margin: f64) -> f64 {
    NULL_DIFFERENCE.max(margin / PARTS)
}

/// The margin for equal tails, as a share. A narrower margin would take too long.
pub const TAIL_MARGIN: f64 = 0.2;

/// The [`SignificanceLevels`] of the first eight looks.
const DIFFERENCE: f64 = 0.008;
const EQUALITY: f64 = 0.003;

/// The divisor of the level for tails. Tails are so noisy that [`NULL_DIFFERENCE`] does not help.
const TAIL: f64 = 4.0;

/// The error probabilities of one look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignificanceLevels {
    /// The probability of a false difference, on one side.
    pub difference: f64,
    /// The probability of calling two variants equal that differ by the margin.
    pub equality: f64,
}

/// An interim look by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterimLook(usize);

impl InterimLook {
    /// The first look.
    pub const FIRST: Self = Self(0);

    /// Returns the next look.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the number of cells that this look needs.
    #[must_use]
    pub fn cells(self) -> usize {
        let beyond = (self.0 + 1).saturating_sub(FIRST.len());
        let last = FIRST[self.0.min(FIRST.len() - 1)];
        (0..beyond).fold(last, |cells, _| (cells * 4).div_ceil(3).next_multiple_of(5))
    }

    /// Returns the error probabilities for the centre of the times.
    #[must_use]
    pub fn levels(self) -> SignificanceLevels {
        SignificanceLevels { difference: DIFFERENCE * self.share(), equality: EQUALITY * self.share() }
    }

    /// Returns the error probabilities for the 99th percentile.
    #[must_use]
    pub fn p99_levels(self) -> SignificanceLevels {
        SignificanceLevels { difference: self.levels().difference / TAIL, ..self.levels() }
    }

    /// Returns the factor of the levels. Looks after the eighth are stricter, so that all of them together add at most a third to
    /// the error of the first eight.
    fn share(self) -> f64 {
        let number = (self.0 + 1) as f64;
        (FIRST.len() as f64 / number).powi(3).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: on a path with a noise of a quarter, which was its margin, a hop without a cost was reported as 11 % slower (4 to 21).
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
