//! Holm's adjustment for several hypotheses. The probability of any wrong rejection stays as low as for a single test.

/// Returns the adjusted p-values in the given order, each for comparison with the level itself (Holm, "A Simple Sequentially
/// Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979).
#[must_use]
pub fn adjust(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<_> = (0..p_values.len()).collect();
    order.sort_by(|&one, &other| p_values[one].total_cmp(&p_values[other]));
    let (mut adjusted, mut largest) = (vec![1.0; p_values.len()], 0.0_f64);
    for (before, at) in order.into_iter().enumerate() {
        largest = largest.max((p_values.len() - before) as f64 * p_values[at]).min(1.0);
        adjusted[at] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Wikipedia, "Holm–Bonferroni method": of 0.01, 0.04, 0.03 and 0.005, the first and the last are rejected at 5 %.
    #[test]
    fn the_example_of_four() {
        let told = adjust(&[0.01, 0.04, 0.03, 0.005]);
        for (one, expected) in told.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((one - expected).abs() < 1e-12, "{told:?}");
        }
    }

    /// Fifteen p-values of Benjamini and Hochberg ("Controlling the False Discovery Rate", Journal of the Royal Statistical Society B 57,
    /// 1995, section 4). A step-down procedure rejects three of them at 5 %, as they state for Hochberg's and Bonferroni's procedures.
    #[test]
    fn the_fifteen_of_thrombolysis() {
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
            0.6528, 0.7590, 1.0,
        ];
        let refused = adjust(&p).iter().filter(|&&adjusted| adjusted <= 0.05).count();
        assert_eq!(refused, 3);
    }

    #[test]
    fn one_alone_stays_what_it_is_and_none_exceeds_one() {
        assert_eq!(adjust(&[0.04]), [0.04]);
        assert_eq!(adjust(&[0.7, 0.6]), [1.0, 1.0]);
        assert_eq!(adjust(&[]), [0.0; 0]);
    }
}
