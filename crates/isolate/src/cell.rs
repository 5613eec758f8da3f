//! The measurements of one variant in one cell.

/// The least number of responses for a centre.
const LEAST: usize = 8;
/// The least number of responses for a 99th percentile.
pub const MIN_TAIL_ANSWERS: usize = 200;

/// The times and failures of one variant in one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CellStats {
    /// The requests that were due, including failed ones.
    pub requests: usize,
    /// The requests without a good response.
    pub failed: usize,
    /// The geometric mean of the middle half of the times, in seconds; none with few responses. For symmetric times it estimates the
    /// median, but needs only three quarters of the responses. For times in two clusters it does not jump.
    pub interquartile_geometric_mean: Option<f64>,
    /// The 99th percentile of the times; none with fewer than [`MIN_TAIL_ANSWERS`] responses.
    pub tail: Option<f64>,
    /// True if the generator was the limit, so that the cell does not count.
    pub is_generator_limited: bool,
    /// The generator's lateness. It matters if it differs from that of the other variant.
    pub lateness: SendLateness,
}

/// The delay with which a generator sent the requests of one variant in one cell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SendLateness {
    /// The lag that a tenth of the requests had or exceeded, in seconds.
    pub p90_lag_seconds: f64,
    /// True if the lag is more than a cell may have by itself.
    pub is_late: bool,
}

/// Lags within this factor of each other are alike.
const ALIKE: f64 = 2.0;

impl SendLateness {
    /// Returns whether the lateness of two variants differs enough to look like a difference between the variants. If the
    /// generator was as late for both, the lateness is only noise, which widens the interval.
    #[must_use]
    pub fn differs(&self, other: &Self) -> bool {
        let (less, more) = (
            self.p90_lag_seconds.min(other.p90_lag_seconds),
            self.p90_lag_seconds.max(other.p90_lag_seconds),
        );
        (self.is_late || other.is_late) && more > ALIKE * less
    }
}

impl CellStats {
    /// Computes the measurements from the response times in seconds, in any order.
    #[must_use]
    pub fn from_response_times(mut times: Vec<f64>, requests: usize, failed: usize, limited: bool) -> Self {
        times.sort_unstable_by(f64::total_cmp);
        let middle = (times.len() >= LEAST).then(|| middle(&times)).filter(|middle| *middle > 0.0);
        let tail = (times.len() >= MIN_TAIL_ANSWERS).then(|| times[times.len() * 99 / 100]);
        Self {
            requests,
            failed,
            interquartile_geometric_mean: middle,
            tail,
            is_generator_limited: limited,
            lateness: SendLateness::default(),
        }
    }

    /// Returns the same measurements with this lateness.
    #[must_use]
    pub fn with_lateness(self, lateness: SendLateness) -> Self {
        Self { lateness, ..self }
    }

    /// Returns the share of requests without a good response.
    #[must_use]
    pub fn failure_share(&self) -> f64 {
        self.failed as f64 / self.requests.max(1) as f64
    }
}

/// Returns the geometric mean of the middle half of sorted times.
fn middle(sorted: &[f64]) -> f64 {
    let outside = sorted.len() / 4;
    let half = &sorted[outside..sorted.len() - outside];
    let logarithms: f64 = half.iter().map(|time| time.ln()).sum();
    (logarithms / half.len() as f64).exp()
}

/// The measurements of one cell by variant, the reference first; none for variants that took no part.
pub type CellStatsByVariant = Vec<Option<CellStats>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_middle_and_a_tail_are_told_of_as_many_answers_as_have_them() {
        let of = |answers: usize| {
            CellStats::from_response_times(
                (1..=answers).rev().map(|at| at as f64).collect(),
                answers,
                0,
                false,
            )
        };
        assert_eq!((of(7).interquartile_geometric_mean, of(7).tail), (None, None));
        assert_eq!((of(199).interquartile_geometric_mean.map(f64::round), of(199).tail), (Some(95.0), None));
        assert_eq!(of(200).tail, Some(199.0));
        assert_eq!(CellStats::from_response_times(Vec::new(), 4, 3, false).failure_share(), 0.75);
    }

    #[test]
    fn what_lies_outside_the_middle_half_does_not_move_it() {
        let slot =
            CellStats::from_response_times(vec![1e-9, 1e-9, 2.0, 8.0, 2.0, 8.0, 1e9, 1e9], 8, 0, false);
        assert!((slot.interquartile_geometric_mean.unwrap() - 4.0).abs() < 1e-12);
    }
}
