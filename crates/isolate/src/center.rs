//! Estimates the location of differences: the Hodges–Lehmann estimate, with the interval of Wilcoxon's test (Tukey).
//!
//! The interval contains the values that the test does not reject. It needs the sorted averages of all pairs (Walsh averages): half a
//! million for a thousand differences, which takes some milliseconds.

use crate::wilcoxon;

/// An estimate with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocationEstimate {
    /// The lower end.
    pub lower: f64,
    /// The estimate.
    pub point: f64,
    /// The upper end.
    pub upper: f64,
}

impl LocationEstimate {
    /// Estimates the location of these differences. Each end misses the truth with a probability of at most `level`. With too few
    /// differences the ends are infinite; without differences the result is none.
    #[must_use]
    pub fn of(differences: &[f64], level: f64) -> Option<Self> {
        let averages = walsh(differences);
        let point = median(&averages)?;
        let within = wilcoxon::critical_sum(differences.len(), level);
        let (lower, upper) = within.map_or((f64::NEG_INFINITY, f64::INFINITY), |outside| {
            let outside = outside.min((averages.len() - 1) / 2);
            (averages[outside], averages[averages.len() - 1 - outside])
        });
        Some(Self { lower, point, upper })
    }

    /// Exponentiates the estimate, which turns differences of logarithms into a ratio.
    #[must_use]
    pub fn exp(self) -> Self {
        Self { lower: self.lower.exp(), point: self.point.exp(), upper: self.upper.exp() }
    }

    /// Returns whether both ends are finite.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.lower.is_finite() && self.upper.is_finite()
    }
}

/// Returns the sorted averages of all pairs, including each number with itself.
fn walsh(differences: &[f64]) -> Vec<f64> {
    let pairs = differences.iter().enumerate();
    let mut averages: Vec<_> = pairs
        .flat_map(|(at, one)| differences[at..].iter().map(move |other| f64::midpoint(*one, *other)))
        .collect();
    averages.sort_unstable_by(f64::total_cmp);
    averages
}

/// Returns the median of sorted numbers.
#[must_use]
pub fn median(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The depression scale of Hollander and Wolfe (1973), examples 3.3 and 3.4: an estimate of 0.46, and an interval from 0.010 to 0.786
    /// with 96.1 % coverage. The differences are second visit minus first, with the sign reversed.
    #[test]
    fn the_depression_scale() {
        let differences = [0.952, -0.147, 1.022, 0.43, 0.62, 0.59, 0.49, -0.08, 0.01];
        let center = LocationEstimate::of(&differences, 0.02).unwrap();
        let near = |one: f64, other: f64| (one - other).abs() < 6e-4;
        assert!(near(center.point, 0.46), "{center:?}");
        assert!(near(center.lower, 0.01) && near(center.upper, 0.786), "{center:?}");
    }

    /// Darwin's maize, as in `wilcoxon`. The interval contains the values that the test does not reject.
    #[test]
    fn the_interval_holds_what_the_test_does_not_refuse() {
        let maize =
            [49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0, -48.0];
        let center = LocationEstimate::of(&maize, 0.025).unwrap();
        let ranks = |from| wilcoxon::SignedRanks::of(&maize, from);
        assert!(ranks(center.lower - 0.01).p_above() <= 0.025, "{center:?}");
        assert!(ranks(center.lower + 0.01).p_above() > 0.025, "{center:?}");
        assert!(ranks(center.upper + 0.01).p_below() <= 0.025, "{center:?}");
        assert!(ranks(center.upper - 0.01).p_below() > 0.025, "{center:?}");
    }

    #[test]
    fn few_differences_have_no_ends() {
        assert_eq!(LocationEstimate::of(&[], 0.025), None);
        let center = LocationEstimate::of(&[1.0, 2.0, 4.0], 0.025).unwrap();
        assert!(!center.is_bounded());
        assert_eq!(center.point, 2.25);
    }
}
