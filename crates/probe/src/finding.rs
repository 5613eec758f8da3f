//! The answer of every check: what was measured, against which limit, what it means, and what to do.

use serde::Serialize;

use crate::files::Unread;

/// What a check came to, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing wrong.
    Fine,
    /// Worth knowing, and not the generator's doing.
    Noted,
    /// Could not be tested.
    Untested,
    /// It coloured the figures.
    Degraded,
    /// It made the figures say nothing about the target.
    Invalid,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// A stable name.
    pub id: &'static str,
    /// What it means.
    pub verdict: Verdict,
    /// What was measured, in `unit`.
    pub measured: Option<f64>,
    /// The value above which the verdict would be worse than fine, in `unit`.
    pub limit: Option<f64>,
    /// Of both.
    pub unit: &'static str,
    /// One sentence with the numbers and what to do.
    pub text: String,
}

impl Finding {
    pub(crate) fn untested(id: &'static str, why: &Unread) -> Self {
        let text = format!("could not be tested: {why}");
        Self { id, verdict: Verdict::Untested, measured: None, limit: None, unit: "", text }
    }
}
