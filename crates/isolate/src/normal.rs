//! The standard normal distribution with nearly double precision, because p-values of many cells need its far tails.

/// Returns the probability that a draw is below `z`.
#[must_use]
pub(crate) fn cdf(z: f64) -> f64 {
    if z > 0.0 {
        1.0 - cdf(-z)
    } else if z > -3.0 {
        0.5 + z * density(z) * series(z)
    } else {
        density(z) * mills(-z)
    }
}

/// Returns the `p` quantile for 0 < p < 1, by bisection, because it is rarely needed.
#[must_use]
pub(crate) fn quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-40.0_f64, 40.0_f64);
    while high - low > 1e-12 * (1.0 + low.abs()) {
        let middle = f64::midpoint(low, high);
        if cdf(middle) < p { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

fn density(z: f64) -> f64 {
    (-z * z / 2.0).exp() * 0.398_942_280_401_432_7
}

/// Computes (P(z) - 1/2) / (z times the density) for |z| ≤ 3 (Abramowitz and Stegun, 26.2.11).
fn series(z: f64) -> f64 {
    let (mut sum, mut term, mut odd) = (1.0, 1.0, 1.0);
    while term > 1e-17 * sum {
        odd += 2.0;
        term *= z * z / odd;
        sum += term;
    }
    sum
}

/// Returns the upper tail divided by the density for z ≥ 3, as Laplace's continued fraction (Abramowitz and Stegun, 26.2.14).
fn mills(z: f64) -> f64 {
    (1..=60).rev().fold(z, |tail, step| z + f64::from(step) / tail).recip()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are from Abramowitz and Stegun, tables 26.1 and 26.2.
    #[test]
    fn the_distribution_agrees_with_tables() {
        for (z, expected) in [
            (0.0, 0.5),
            (-1.0, 0.158_655_253_931_457),
            (-2.0, 0.022_750_131_948_179),
            (-2.999, 0.001_354_3),
            (-4.0, 3.167_124_183_311_99e-5),
            (-6.0, 9.865_876_450_376_98e-10),
        ] {
            assert!((cdf(z) / expected - 1.0).abs() < 1e-4, "{z}: {}", cdf(z));
        }
        assert!((cdf(-4.0) / 3.167_124_183_311_99e-5 - 1.0).abs() < 1e-12);
        assert!((cdf(1.0) - 0.841_344_746_068_543).abs() < 1e-14);
    }

    #[test]
    fn quantiles_are_the_inverse() {
        for (p, z) in [(0.975, 1.959_963_984_540_054), (0.5, 0.0), (0.008, -2.408_915_545_815_46)] {
            assert!((quantile(p) - z).abs() < 1e-9, "{p}: {}", quantile(p));
        }
    }
}
