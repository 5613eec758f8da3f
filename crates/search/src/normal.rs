//! The normal distribution and reflected Brownian motion, which `std` lacks.

/// Returns the density of the standard normal distribution.
#[must_use]
pub fn density(z: f64) -> f64 {
    (-z * z / 2.0).exp() * 0.398_942_280_401_432_7
}

/// Returns the probability that a standard normal draw is below `z`, to nearly the precision of a double, as in
/// `seawall-isolate`.
#[must_use]
pub fn cdf(z: f64) -> f64 {
    if z > 0.0 {
        1.0 - cdf(-z)
    } else if z > -3.0 {
        0.5 + z * density(z) * series(z)
    } else {
        density(z) * mills(-z)
    }
}

/// Returns the logarithm of [`cdf`], even where `cdf` itself underflows.
#[must_use]
pub fn ln_cdf(z: f64) -> f64 {
    if z > -3.0 { cdf(z).ln() } else { -z * z / 2.0 - 0.918_938_533_204_672_7 + mills(-z).ln() }
}

/// (P(z) - 1/2) / (z times the density), for |z| ≤ 3 (Abramowitz and Stegun, 26.2.11).
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

/// A model of a queue: Brownian motion reflected at zero. Work arrives and is served at random, and the queue is never negative.
#[derive(Debug, Clone, Copy)]
pub struct ReflectedBrownian {
    /// The start in requests.
    pub from: f64,
    /// The mean growth in requests per second.
    pub drift: f64,
    /// The growth of the variance per second.
    pub variance: f64,
}

impl ReflectedBrownian {
    /// Returns the density of the position after this many seconds (Harrison, "Brownian Motion and Stochastic Flow Systems",
    /// 1985, section 1.8, differentiated).
    #[must_use]
    pub fn density(self, at: f64, seconds: f64) -> f64 {
        let Self { from, drift, variance } = self;
        let deviation = (variance * seconds).sqrt();
        let direct = density((at - from - drift * seconds) / deviation) / deviation;
        let tilt = 2.0 * drift * at / variance;
        let mirrored = (-at - from - drift * seconds) / deviation;
        let ln_density = tilt - mirrored * mirrored / 2.0;
        let image = ln_density.exp() * 0.398_942_280_401_432_7 / deviation;
        let held = 2.0 * drift / variance * (tilt + ln_cdf(mirrored)).exp();
        (direct + image - held).max(0.0)
    }
}

/// Returns the log-odds of a share.
#[must_use]
pub fn logit(share: f64) -> f64 {
    (share / (1.0 - share)).ln()
}

/// Returns the share with these log-odds.
#[must_use]
pub fn logistic(odds: f64) -> f64 {
    1.0 / (1.0 + (-odds).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tails_agree_with_tables() {
        for (z, expected) in [
            (0.0, 0.5),
            (-1.0, 0.158_655_25),
            (-2.9, 0.001_865_81),
            (-3.1, 9.676_03e-4),
            (-6.0, 9.865_88e-10),
        ] {
            assert!((cdf(z) / expected - 1.0).abs() < 1e-4, "{z}: {}", cdf(z));
            assert!((ln_cdf(z) - expected.ln()).abs() < 1e-4, "{z}");
        }
        assert!((cdf(2.0) - 0.977_249_868_051_821).abs() < 1e-14);
        assert!((cdf(-4.0) / 3.167_124_183_311_99e-5 - 1.0).abs() < 1e-12);
        assert!((ln_cdf(-40.0) + 804.608_442).abs() < 1e-3);
    }

    #[test]
    fn a_reflected_motion_is_somewhere() {
        for (from, drift, variance, seconds) in
            [(0.0, 0.0, 1.0, 1.0), (3.0, -2.0, 4.0, 5.0), (1.0, 20.0, 9.0, 3.0), (0.0, -50.0, 4.0, 8.0)]
        {
            let motion = ReflectedBrownian { from, drift, variance };
            let width = 1e-3;
            let total: f64 = (0..400_000)
                .map(|step| motion.density((f64::from(step) + 0.5) * width, seconds) * width)
                .sum();
            assert!((total - 1.0).abs() < 2e-3, "{motion:?}: {total}");
        }
    }
}
