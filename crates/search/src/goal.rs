//! The goal that a target must meet at a rate below its limits.

use std::time::Duration;

/// The largest share of responses that may exceed a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyGoal {
    /// The share of all due requests, between 0 and 1. For the 99th percentile it is 0.01.
    pub max_late_share: f64,
    /// The longest time of a timely response, from the instant when its request was due.
    pub latency_limit: Duration,
}

/// The goal of a search. It defines two limits. Above the *cliff*, errors exceed the goal or the requests in flight grow without bound.
/// Above the *knee*, too many responses are late.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchGoal {
    /// The largest share of errors, between 0 and 1.
    pub max_error_share: f64,
    /// The latency goal; none if only the cliff is searched.
    pub latency_goal: Option<LatencyGoal>,
}

impl SearchGoal {
    /// The goal without latency: at most one error in a thousand requests.
    pub const ERRORS_ONLY: Self = Self { max_error_share: 0.001, latency_goal: None };

    /// Returns the largest share of late responses; 1 without a latency goal.
    #[must_use]
    pub fn max_late_share(&self) -> f64 {
        self.latency_goal.map_or(1.0, |late| late.max_late_share)
    }
}
