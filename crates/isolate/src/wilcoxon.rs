//! Wilcoxon's signed rank test: whether differences lie above or below a value, whatever their distribution looks like.
//!
//! Exact up to [`MAX_EXACT`] differences, ties included, because the ranks that there are stay what they are and only their signs are
//! chance. Beyond that normal, with the variance that ties leave and a correction for continuity.

use crate::normal;

/// Most differences for which all ways to set their signs are counted. R's `wilcox.test` draws the line at the same number.
pub const MAX_EXACT: usize = 50;

/// Ranks of the differences from a value, by their sign. Those that are that value say nothing and have none.
#[derive(Debug, Clone, PartialEq)]
pub struct SignedRanks {
    /// Twice each rank, so that what ties share is a whole number.
    doubled: Vec<u32>,
    /// Twice the sum of the ranks of those above it.
    above: u32,
}

impl SignedRanks {
    /// Of differences from `from`.
    #[must_use]
    pub fn of(differences: &[f64], from: f64) -> Self {
        let mut off: Vec<_> = differences.iter().map(|one| one - from).filter(|off| *off != 0.0).collect();
        off.sort_unstable_by(|one, other| one.abs().total_cmp(&other.abs()));
        let (mut doubled, mut above, mut first) = (Vec::with_capacity(off.len()), 0, 0);
        for tied in off.chunk_by(|one, other| one.abs() == other.abs()) {
            let rank = u32::try_from(2 * first + tied.len() + 1).unwrap_or(u32::MAX);
            first += tied.len();
            doubled.extend(tied.iter().map(|_| rank));
            above += tied.iter().filter(|off| **off > 0.0).count() as u32 * rank;
        }
        Self { doubled, above }
    }

    /// How many have a rank.
    #[must_use]
    pub fn len(&self) -> usize {
        self.doubled.len()
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.doubled.is_empty()
    }

    /// Sum of the ranks above the value: T+.
    #[must_use]
    pub fn sum_above(&self) -> f64 {
        f64::from(self.above) / 2.0
    }

    /// Probability of as much above the value or more, if the differences lie evenly around it.
    #[must_use]
    pub fn p_above(&self) -> f64 {
        self.upper_tail(self.above)
    }

    /// Probability of as much below it or more.
    #[must_use]
    pub fn p_below(&self) -> f64 {
        self.upper_tail(self.doubled.iter().sum::<u32>() - self.above)
    }

    fn upper_tail(&self, sum: u32) -> f64 {
        match self.len() {
            0 => 1.0,
            1..=MAX_EXACT => tail(&self.doubled, sum),
            _ => self.normal_tail(sum),
        }
    }

    /// (Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods", 3rd edition, 3.1): with midranks the variance is a quarter of
    /// the sum of their squares.
    fn normal_tail(&self, sum: u32) -> f64 {
        let ranks = || self.doubled.iter().map(|&doubled| f64::from(doubled) / 2.0);
        let (mean, variance) =
            (ranks().sum::<f64>() / 2.0, ranks().map(|rank| rank * rank).sum::<f64>() / 4.0);
        normal::below((mean + 0.5 - f64::from(sum) / 2.0) / variance.sqrt())
    }
}

/// Share of all ways to give these numbers a sign of which the positive ones sum up to so much or more.
fn tail(numbers: &[u32], least: u32) -> f64 {
    let ways = ways(numbers);
    let tail: f64 = ways.iter().skip(least as usize).sum();
    tail / ways.iter().sum::<f64>()
}

/// For each sum in how many ways some of these numbers have it. Exact in a double for up to 53 numbers.
fn ways(numbers: &[u32]) -> Vec<f64> {
    let total = numbers.iter().sum::<u32>() as usize;
    let mut ways = vec![0.0; total + 1];
    ways[0] = 1.0;
    let mut reached = 0;
    for number in numbers.iter().map(|&number| number as usize) {
        reached += number;
        for sum in (number..=reached).rev() {
            ways[sum] += ways[sum - number];
        }
    }
    ways
}

/// The largest sum of the ranks 1 to `n` that is so unlikely, or less likely, to be undercut or met: P(T ≤ t) ≤ `level`; none if any
/// sum is likelier. Of many ranks by the normal distribution.
#[must_use]
pub fn critical_sum(n: usize, level: f64) -> Option<usize> {
    if n > MAX_EXACT {
        let n = n as f64;
        let (mean, variance) = (n * (n + 1.0) / 4.0, n * (n + 1.0) * (2.0 * n + 1.0) / 24.0);
        let sum = mean - 0.5 + normal::quantile(level) * variance.sqrt();
        return (sum >= 0.0).then_some(sum as usize);
    }
    let ways = ways(&(1..=n as u32).collect::<Vec<_>>());
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    let within = ways.iter().take_while(|ways| {
        below += **ways;
        below / all <= level
    });
    within.count().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Critical values of T for two-sided 5 % (Siegel, "Nonparametric Statistics", 1956, table G; Wilcoxon and Wilcox, "Some Rapid
    /// Approximate Statistical Procedures", 1964, table 2).
    #[test]
    fn critical_values_are_those_of_the_printed_tables() {
        let printed = [0, 2, 3, 5, 8, 10, 13, 17, 21, 25, 29, 34, 40, 46, 52, 58, 65, 73, 81, 89];
        for (n, expected) in (6..).zip(printed) {
            assert_eq!(critical_sum(n, 0.025), Some(expected), "{n}");
        }
        assert_eq!(critical_sum(5, 0.025), None);
        assert_eq!(
            [critical_sum(10, 0.05), critical_sum(20, 0.05), critical_sum(25, 0.005)],
            [Some(10), Some(60), Some(68)]
        );
    }

    /// Differences in height of cross- and self-fertilised maize, in eighths of an inch (Darwin, "The Effects of Cross and Self
    /// Fertilisation in the Vegetable Kingdom", 1876; Fisher, "The Design of Experiments", 1935, section 17). The documentation of
    /// `scipy.stats.wilcoxon` has T = 24 and p = 0.041259765625.
    #[test]
    fn darwins_maize() {
        let maize =
            [49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0, -48.0];
        let ranks = SignedRanks::of(&maize, 0.0);
        assert_eq!((ranks.len(), ranks.sum_above()), (15, 96.0));
        assert_eq!(2.0 * ranks.p_above(), 0.041_259_765_625);
        assert!(ranks.p_below() > 0.97);
    }

    /// Depression scale at the first and second visit (Hollander and Wolfe, 1973, page 29; R's `example(wilcox.test)`: V = 40,
    /// p = 0.01953 one-sided).
    #[test]
    fn the_depression_scale() {
        let ranks = SignedRanks::of(&DEPRESSION, 0.0);
        assert_eq!((ranks.len(), ranks.sum_above()), (9, 40.0));
        assert!((ranks.p_above() - 0.019_53).abs() < 5e-6, "{}", ranks.p_above());
    }

    pub(crate) const DEPRESSION: [f64; 9] = [0.952, -0.147, 1.022, 0.43, 0.62, 0.59, 0.49, -0.08, 0.01];

    /// Ten pairs with a tie and a zero (Wikipedia, "Wilcoxon signed-rank test", the example of its older versions: nine ranks, T+ = 18
    /// and T- = 27). By the printed table of nine differences neither is remarkable.
    #[test]
    fn ties_share_their_ranks_and_zeros_have_none() {
        let pairs = [15.0, -7.0, 5.0, 20.0, 0.0, -9.0, 17.0, -12.0, 5.0, -10.0];
        let ranks = SignedRanks::of(&pairs, 0.0);
        assert_eq!((ranks.len(), ranks.sum_above()), (9, 27.0));
        assert!((0.3..0.35).contains(&ranks.p_above()), "{}", ranks.p_above());
        let shifted: Vec<_> = pairs.iter().map(|one| one + 3.0).collect();
        assert_eq!(SignedRanks::of(&shifted, 3.0), ranks);
    }

    #[test]
    fn all_signs_alike_are_one_way_of_all() {
        let ranks = SignedRanks::of(&[0.3; 10], 0.0);
        assert_eq!((ranks.p_above(), ranks.p_below()), (1.0 / 1024.0, 1.0));
        let nothing = SignedRanks::of(&[1.0, 1.0], 1.0);
        assert!(nothing.is_empty());
        assert_eq!((nothing.p_above(), nothing.p_below()), (1.0, 1.0));
    }

    #[test]
    fn the_normal_approximation_meets_the_exact_count() {
        for every in [1.0, 7.0] {
            // Of the second kind most are tied.
            let differences: Vec<_> =
                (0..50).map(|at| (f64::from(at * 29 % 50) / every).floor() + 1.0 - 25.0 / every).collect();
            let ranks = SignedRanks::of(&differences, 0.0);
            let (exact, normal) = (ranks.p_above(), ranks.normal_tail(ranks.above));
            assert!((exact / normal - 1.0).abs() < 0.03, "{exact} {normal}");
        }
    }
}
