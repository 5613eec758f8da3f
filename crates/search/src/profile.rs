//! How much a search may spend, and how sure it must be for that.

use std::time::Duration;

/// Time, widths and lengths of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// What it is called.
    pub name: &'static str,
    /// Width of the cliff's bracket at which the search for it ends, as a share.
    pub width: f64,
    /// The same of the knee's.
    pub knee_width: f64,
    /// Time for the cliff, before it is checked on a rested target.
    pub budget: Duration,
    /// Time for the knee, beside it.
    pub knee_budget: Duration,
    /// Longest trial.
    pub most: Duration,
    /// Growth that may be overlooked, as a share of what is sent.
    pub tolerance: f64,
    /// How long the lower bound is held.
    pub confirm: Duration,
    /// How long to look whether the target recovers.
    pub recovery: Duration,
    /// By how much the credible bracket is widened to each side, as a share: what no trial of this length can see.
    pub margin: f64,
    /// The same of the knee's bracket.
    pub knee_margin: f64,
}

impl Profile {
    /// A minute, or little more.
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

    /// Some minutes.
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
