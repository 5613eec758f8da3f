//! Profiles: the time that a search may take and the precision that it needs.

use std::time::Duration;

/// The times, widths and durations of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// The name of the profile.
    pub name: &'static str,
    /// The width of the cliff's bracket, as a share, at which the search for the cliff ends.
    pub cliff_stop_bracket_width: f64,
    /// The width of the knee's bracket, as a share, at which the search for the knee ends.
    pub knee_stop_bracket_width: f64,
    /// The time for the cliff, without the check on a rested target.
    pub cliff_budget: Duration,
    /// The additional time for the knee.
    pub knee_budget: Duration,
    /// The longest trial.
    pub max_trial_duration: Duration,
    /// The growth that a trial may show and still be good, as a share of the sent requests.
    pub growth_tolerance: f64,
    /// The duration of the trial that confirms the lower bound.
    pub confirm_duration: Duration,
    /// The duration of the recovery trial.
    pub recovery_duration: Duration,
    /// The margin added to each side of the cliff's bracket, as a share. It covers effects that trials of this length cannot show.
    pub cliff_bracket_widening: f64,
    /// The margin added to each side of the knee's bracket, as a share.
    pub knee_margin: f64,
}

impl Profile {
    /// A search of about a minute.
    pub const QUICK: Self = Self {
        name: "quick",
        cliff_stop_bracket_width: 0.08,
        knee_stop_bracket_width: 0.10,
        cliff_budget: Duration::from_secs(50),
        knee_budget: Duration::from_secs(20),
        max_trial_duration: Duration::from_secs(8),
        growth_tolerance: 0.03,
        confirm_duration: Duration::from_secs(8),
        recovery_duration: Duration::from_secs(6),
        cliff_bracket_widening: 0.02,
        knee_margin: 0.04,
    };

    /// A search of several minutes.
    pub const THOROUGH: Self = Self {
        name: "thorough",
        cliff_stop_bracket_width: 0.025,
        knee_stop_bracket_width: 0.03,
        cliff_budget: Duration::from_secs(360),
        knee_budget: Duration::from_secs(200),
        max_trial_duration: Duration::from_secs(30),
        growth_tolerance: 0.01,
        confirm_duration: Duration::from_secs(60),
        recovery_duration: Duration::from_secs(30),
        cliff_bracket_widening: 0.01,
        knee_margin: 0.02,
    };
}
