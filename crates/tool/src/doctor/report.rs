//! The findings for programs.

use seawall_doctor::{DoctorFinding, DoctorVerdict};
use serde::Serialize;

/// Of the fields: one that goes or changes its meaning makes it one more.
const SCHEMA: u32 = 1;

/// What is written.
#[derive(Debug, Serialize)]
pub(super) struct DoctorReport<'a> {
    schema: u32,
    /// The worst of all.
    verdict: DoctorVerdict,
    /// Each that was looked for, also those that are ok.
    findings: &'a [DoctorFinding],
}

impl<'a> DoctorReport<'a> {
    pub(super) fn new(verdict: DoctorVerdict, findings: &'a [DoctorFinding]) -> Self {
        Self { schema: SCHEMA, verdict, findings }
    }

    /// One line per value, and one at the end.
    pub(super) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}
