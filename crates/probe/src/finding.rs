//! The answer of every check: what was measured, against which limit, what it means, and what to do.

use serde::Serialize;

use crate::files::ProbeError;

/// What a check came to, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingGrade {
    /// Nothing is wrong.
    Ok,
    /// Something explains the figures, and the generator did not cause it.
    Info,
    /// The check could not be made.
    Unknown,
    /// The generator's own delay is part of the figures.
    Degraded,
    /// The generator was the limit: the figures say nothing about the target.
    Invalid,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachineFinding {
    /// The stable name of the check.
    pub id: &'static str,
    /// The result of the check.
    #[serde(rename = "status")]
    pub grade: FindingGrade,
    /// The measured value, in `unit`.
    pub measured: Option<f64>,
    /// The value above which the status is worse than ok, in `unit`.
    pub limit: Option<f64>,
    /// The unit of `measured` and `limit`.
    pub unit: &'static str,
    /// A sentence with the numbers and what to do.
    pub text: String,
}

/// A check: its name, and the value up to which nothing is wrong.
#[derive(Debug, Clone, Copy)]
pub struct CheckDefinition {
    /// A stable name.
    pub id: &'static str,
    /// Of what is measured.
    pub unit: &'static str,
    /// In `unit`.
    pub limit: f64,
}

impl CheckDefinition {
    pub(crate) fn finding(&self, grade: FindingGrade, measured: f64, text: String) -> MachineFinding {
        let Self { id, unit, limit } = *self;
        MachineFinding { id, grade, measured: Some(measured), limit: Some(limit), unit, text }
    }

    pub(crate) fn unknown(&self, why: &ProbeError) -> MachineFinding {
        let Self { id, unit, limit } = *self;
        let text = format!("could not be tested: {why}");
        MachineFinding { id, grade: FindingGrade::Unknown, measured: None, limit: Some(limit), unit, text }
    }
}
