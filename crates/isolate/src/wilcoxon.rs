//! Wilcoxon's signed-rank test: whether differences lie above or below a value, for any symmetric distribution.
//!
//! The test is exact for up to [`MAX_EXACT`] differences, even with ties, because it keeps the observed ranks and permutes only their
//! signs. For more differences it uses the normal distribution, with the variance under ties and a continuity correction.

use crate::normal;

/// The most differences for the exact test, as in R's `wilcox.test`.
pub const MAX_EXACT: usize = 50;

/// The ranks of the differences from a value, with their signs. Differences equal to the value have no rank.
#[derive(Debug, Clone, PartialEq)]
pub struct SignedRanks {
    /// Twice each rank, so that the mean ranks of ties are whole numbers.
    doubled: Vec<u32>,
    /// Twice the sum of the ranks above the value.
    above: u32,
}

impl SignedRanks {
    /// Ranks the differences from `from`.
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

    /// Returns the number of ranks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.doubled.len()
    }

    /// Returns whether there are no ranks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.doubled.is_empty()
    }

    /// Returns the sum of the ranks above the value, T+.
    #[must_use]
    pub fn sum_above(&self) -> f64 {
        f64::from(self.above) / 2.0
    }

    /// Returns the probability of such a large sum above the value, or a larger one, if the differences are symmetric around it.
    #[must_use]
    pub fn p_above(&self) -> f64 {
        self.upper_tail(self.above)
    }

    /// Returns the probability of such a large sum below the value, or a larger one.
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

    /// Returns the normal tail. With midranks, the variance is a quarter of the sum of their squares (Hollander, Wolfe and
    /// Chicken, "Nonparametric Statistical Methods", 3rd edition, 3.1).
    fn normal_tail(&self, sum: u32) -> f64 {
        let ranks = || self.doubled.iter().map(|&doubled| f64::from(doubled) / 2.0);
        let (mean, variance) =
            (ranks().sum::<f64>() / 2.0, ranks().map(|rank| rank * rank).sum::<f64>() / 4.0);
        normal::cdf((mean + 0.5 - f64::from(sum) / 2.0) / variance.sqrt())
    }
}

/// Returns the share of all sign combinations whose positive numbers sum to at least `least`.
fn tail(numbers: &[u32], least: u32) -> f64 {
    let ways = ways(numbers);
    let tail: f64 = ways.iter().skip(least as usize).sum();
    tail / ways.iter().sum::<f64>()
}

/// Returns the number of subsets for each sum. It is exact in a double for up to 53 numbers.
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

/// Returns the largest t with P(T ≤ t) ≤ `level` for the ranks 1 to `n`; none if there is none. For many ranks it uses the normal
/// distribution.
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

    /// The critical values of T for a two-sided level of 5 % are from Siegel, "Nonparametric Statistics", 1956, table G, and Wilcoxon and
    /// Wilcox, "Some Rapid Approximate Statistical Procedures", 1964, table 2.
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

    /// The differences in height of cross- and self-fertilised maize, in eighths of an inch (Darwin, "The Effects of Cross and Self
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

    /// The depression scale at the first and second visit (Hollander and Wolfe, 1973, page 29; R's `example(wilcox.test)`: V = 40, p =
    /// 0.01953 one-sided).
    #[test]
    fn the_depression_scale() {
        let ranks = SignedRanks::of(&DEPRESSION, 0.0);
        assert_eq!((ranks.len(), ranks.sum_above()), (9, 40.0));
        assert!((ranks.p_above() - 0.019_53).abs() < 5e-6, "{}", ranks.p_above());
    }

    pub(crate) const DEPRESSION: [f64; 9] = [0.952, -0.147, 1.022, 0.43, 0.62, 0.59, 0.49, -0.08, 0.01];

    /// Ten pairs with a tie and a zero (Wikipedia, "Wilcoxon signed-rank test", an example of older versions: nine ranks, T+ = 18 and T- =
    /// 27). Neither sum is significant in the printed table for nine differences.
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
            // Most differences of the second kind are tied.
            let differences: Vec<_> =
                (0..50).map(|at| (f64::from(at * 29 % 50) / every).floor() + 1.0 - 25.0 / every).collect();
            let ranks = SignedRanks::of(&differences, 0.0);
            let (exact, normal) = (ranks.p_above(), ranks.normal_tail(ranks.above));
            assert!((exact / normal - 1.0).abs() < 0.03, "{exact} {normal}");
        }
    }
}
