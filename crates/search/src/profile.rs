//! Profiles: the time that a search may take and the precision that it needs.

use std::time::Duration;

/// The times, widths and durations of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// The name of the profile.
    pub name: &'static str,
    /// The width of the cliff's bracket, as a share, at which the search for the cliff ends.
    pub width: f64,
    /// The width of the knee's bracket, as a share, at which the search for the knee ends.
    pub knee_width: f64,
    /// The time for the cliff, without the check on a rested target.
    pub budget: Duration,
    /// The additional time for the knee.
    pub knee_budget: Duration,
    /// The longest trial.
    pub most: Duration,
    /// The growth that a trial may show and still be good, as a share of the sent requests.
    pub tolerance: f64,
    /// The duration of the trial that confirms the lower bound.
    pub confirm: Duration,
    /// The duration of the recovery trial.
    pub recovery: Duration,
    /// The margin added to each side of the cliff's bracket, as a share. It covers effects that trials of this length cannot show.
    pub margin: f64,
    /// The margin added to each side of the knee's bracket, as a share.
    pub knee_margin: f64,
}

impl Profile {
    /// A search of about a minute.
    pub const QUICK: Self = Self {
        name: "quick",
        width: 0.08,
        knee_width: 0.10,
        budget: Duration::from_secs(50),
        knee_budget: Duration::from_secs(20),
        most: Duration::from_secs(8),
        tolerance: 0.03,
        confirm: Duration::from_secs(8),
        recovery: Duration::from_secs(6),
        margin: 0.02,
        knee_margin: 0.04,
    };

    /// A search of several minutes.
    pub const THOROUGH: Self = Self {
        name: "thorough",
        width: 0.025,
        knee_width: 0.03,
        budget: Duration::from_secs(360),
        knee_budget: Duration::from_secs(200),
        most: Duration::from_secs(30),
        tolerance: 0.01,
        confirm: Duration::from_secs(60),
        recovery: Duration::from_secs(30),
        margin: 0.01,
        knee_margin: 0.02,
    };
}
