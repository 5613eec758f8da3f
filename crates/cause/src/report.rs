//! What is said of the cause: data for whoever shows it.

use crate::class::Class;
use crate::experiment::Experiment;
use crate::watched::Watched;

/// Everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// The causes: the likeliest first; two where two hold at once. Never empty at the end: [`Class::Unknown`] is one.
    pub causes: Vec<Cause>,
    /// Causes that fit as well, and what would tell.
    pub ties: Vec<Tie>,
    /// Causes that do not hold, and why.
    pub excluded: Vec<Excluded>,
    /// Causes of which nothing can be said, and why.
    pub untested: Vec<Untested>,
    /// The last experiment of which anything was answered, where the target answers nothing any more: what came after it, or at its end, is no
    /// sign of any cause.
    pub gone: Option<&'static str>,
    /// What was tried, in order.
    pub tried: Vec<Tried>,
}

/// A cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Which.
    pub class: Class,
    /// Its probability, between 0 and 1.
    pub confidence: f64,
    /// What speaks for it, the strongest first.
    pub evidence: Vec<Evidence>,
    /// What is known of its size: bucket, places, seconds.
    pub figures: Vec<Figure>,
}

/// A sign.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// What was seen, in words with its figures: "the second of two bursts admitted 2 of 18".
    pub seen: String,
    /// By which experiment.
    pub by: &'static str,
    /// How much likelier it is under this cause than under the next best.
    pub ratio: f64,
}

/// A figure of a cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What: "bucket", "fill", "workers", "places", "connections", "gives up after".
    pub name: &'static str,
    /// How much.
    pub value: f64,
    /// In which unit: "requests", "requests/s", "s", "".
    pub unit: &'static str,
}

/// Causes that cannot be told apart from here.
#[derive(Debug, Clone, PartialEq)]
pub struct Tie {
    /// They.
    pub between: Vec<Class>,
    /// What would tell: "look at --cgroup on the server".
    pub tell: String,
}

/// A cause that does not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Excluded {
    /// Which.
    pub class: Class,
    /// How it was excluded, in words.
    pub how: String,
}

/// A cause of which nothing can be said.
#[derive(Debug, Clone, PartialEq)]
pub struct Untested {
    /// Which.
    pub class: Class,
    /// Why, in words.
    pub why: String,
}

/// An experiment, and what was seen of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// What was asked for.
    pub experiment: Experiment,
    /// What came of it.
    pub watched: Watched,
    /// What it says, in words.
    pub says: String,
}
