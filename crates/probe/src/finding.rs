//! The findings of checks: the measurement, its limit, the meaning and the fix.

use serde::Serialize;

use crate::file_reader::ProbeError;

/// The grade of a finding, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingGrade {
    /// There is no problem.
    Ok,
    /// A fact that explains the results; the generator did not cause it.
    Info,
    /// The check was not possible.
    Unknown,
    /// The generator's own delay is part of the results.
    Degraded,
    /// The generator was the limit, so the results say nothing about the target.
    Invalid,
}

/// The result of one check.
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

/// The definition of a check: its name and its limit.
#[derive(Debug, Clone, Copy)]
pub struct CheckDefinition {
    /// The stable name.
    pub id: &'static str,
    /// The unit of the measurement.
    pub unit: &'static str,
    /// The limit in `unit`; values up to it are ok.
    pub limit: f64,
}

impl CheckDefinition {
    pub(crate) fn finding(&self, grade: FindingGrade, measured: f64, text: String) -> MachineFinding {
        let Self { id, unit, limit } = *self;
        MachineFinding { id, grade, measured: Some(measured), limit: Some(limit), unit, text }
    }

    pub(crate) fn unknown_finding(&self, why: &ProbeError) -> MachineFinding {
        let Self { id, unit, limit } = *self;
        let text = format!("could not be tested: {why}");
        MachineFinding { id, grade: FindingGrade::Unknown, measured: None, limit: Some(limit), unit, text }
    }
}
