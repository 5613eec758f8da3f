//! The JSON document of `doctor`.

use seawall_doctor::{DoctorFinding, DoctorStatus};
use serde::Serialize;

/// The version rises when a field is removed or changes its meaning.
const VERSION: u32 = 1;

/// The JSON document.
#[derive(Debug, Serialize)]
pub(super) struct DoctorReport<'a> {
    /// The kind of the document: `doctor`.
    kind: &'static str,
    /// The version of the document's form.
    version: u32,
    /// The worst status of all findings.
    status: DoctorStatus,
    /// All findings, also those that are ok.
    findings: &'a [DoctorFinding],
}

impl<'a> DoctorReport<'a> {
    pub(super) fn new(status: DoctorStatus, findings: &'a [DoctorFinding]) -> Self {
        Self { kind: "doctor", version: VERSION, status, findings }
    }

    /// The document with one value per line and a final newline.
    pub(super) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}
