//! Random durations.

use fastrand::Rng;

use super::NanosSinceStart;

/// A random duration with a mean and a distribution.
#[derive(Clone, Copy, Debug)]
pub(super) struct RandomDuration {
    /// The mean in nanoseconds.
    mean: f64,
    spread: DurationDistribution,
}

#[derive(Clone, Copy, Debug)]
enum DurationDistribution {
    Fixed,
    Exponential,
    /// The standard deviation of the logarithm.
    Lognormal(f64),
}

impl RandomDuration {
    /// Creates a distribution with this coefficient of variation: 0 is fixed, 1 exponential, any other lognormal.
    pub(super) fn new(mean: NanosSinceStart, cv: f64) -> Self {
        let spread = match cv {
            0.0 => DurationDistribution::Fixed,
            1.0 => DurationDistribution::Exponential,
            cv => DurationDistribution::Lognormal((1.0 + cv * cv).ln().sqrt()),
        };
        Self { mean: mean as f64, spread }
    }

    pub(super) fn draw(self, rng: &mut Rng) -> NanosSinceStart {
        let times = match self.spread {
            DurationDistribution::Fixed => 1.0,
            DurationDistribution::Exponential => -(1.0 - rng.f64()).ln(),
            DurationDistribution::Lognormal(sigma) => (sigma * normal(rng) - sigma * sigma / 2.0).exp(),
        };
        (self.mean * times).round() as NanosSinceStart
    }
}

/// Draws from the standard normal distribution (Box and Muller).
pub(super) fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spread_has_the_mean_and_the_variation_that_it_was_given() {
        for cv in [0.0, 0.05, 0.2, 1.0, 2.0] {
            let (mut rng, time, draws) = (Rng::with_seed(1), RandomDuration::new(1_000_000, cv), 400_000);
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..draws {
                let drawn = time.draw(&mut rng) as f64 / 1e6;
                (sum, squares) = (sum + drawn, squares + drawn * drawn);
            }
            let mean = sum / f64::from(draws);
            let deviation = (squares / f64::from(draws) - mean * mean).max(0.0).sqrt();
            assert!((mean - 1.0).abs() < 0.02, "{cv}: {mean}");
            assert!((deviation - cv).abs() <= 0.05 * cv + 1e-6, "{cv}: {deviation}");
        }
    }
}
