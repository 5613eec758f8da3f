//! What a target must do at a rate for that rate to be below a limit.

use std::time::Duration;

/// The greatest share of answers that may be later than a bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyGoal {
    /// Share of all requests that were due, between 0 and 1: 0.01 where the 99th percentile is held to the bound.
    pub share: f64,
    /// From the intended instant.
    pub than: Duration,
}

/// Two limits follow of it: the *cliff*, above which errors are too many or what is in flight grows without end, and the *knee*,
/// above which the lateness does not hold either.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchGoal {
    /// Greatest share of errors, between 0 and 1.
    pub errors: f64,
    /// None: only the cliff is searched.
    pub late: Option<LatencyGoal>,
}

impl SearchGoal {
    /// Errors in one answer of a thousand, and nothing of latency.
    pub const CLIFF: Self = Self { errors: 0.001, late: None };

    /// The greatest share that may be late; all, where nothing is said of latency.
    #[must_use]
    pub fn late_share(&self) -> f64 {
        self.late.map_or(1.0, |late| late.share)
    }
}
