//! The findings for programs.

use seawall_doctor::{Finding, Verdict};
use serde::Serialize;

/// Of the fields: one that goes or changes its meaning makes it one more.
const SCHEMA: u32 = 1;

/// What is written.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    schema: u32,
    /// The worst of all.
    verdict: Verdict,
    /// Each that was looked for, also those that are ok.
    findings: &'a [Finding],
}

impl<'a> Report<'a> {
    pub(super) fn new(verdict: Verdict, findings: &'a [Finding]) -> Self {
        Self { schema: SCHEMA, verdict, findings }
    }

    /// One line per value, and one at the end.
    pub(super) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}
