//! Findings of checks: what was measured, its status, the reason and the fix.

use std::fmt;

use seawall_probe::ProbeError;
use serde::Serialize;

/// The status of a finding. The order is from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoctorStatus {
    /// Nothing is wrong.
    Ok,
    /// The check could not see the state. The fix says where to look.
    Unknown,
    /// The state does no visible harm now, but will under load or after a change.
    Warning,
    /// The state does harm now, or is about to.
    Error,
}

impl fmt::Display for DoctorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
        })
    }
}

/// Returns the count with its noun, in the singular for 1: `1 core`, `2 cores`.
pub(crate) fn pluralize(count: f64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1.0 { "" } else { "s" })
}

/// The longest foreign name in a finding, in characters.
const LONGEST: usize = 256;

/// Returns a foreign name, cut to [`LONGEST`] characters.
pub(crate) fn shortened(name: &str) -> String {
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => [&name[..end], "…"].concat(),
        None => name.to_owned(),
    }
}

/// A number that a check measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DoctorMeasurement {
    /// The stable name of the measurement.
    pub name: &'static str,
    /// The value in `unit`.
    pub value: f64,
    /// The unit, such as `ports`, `%` or `/s`.
    pub unit: &'static str,
}

/// One finding of a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DoctorFinding {
    /// The stable name of the finding: the check's name, a dot and its own name.
    pub id: &'static str,
    /// The status of the finding.
    pub status: DoctorStatus,
    /// The measurements. The list is empty if nothing could be seen.
    pub measurements: Vec<DoctorMeasurement>,
    /// A sentence that says what was seen.
    pub text: String,
    /// The reason why this is a problem; `None` for a finding that is ok.
    pub reason: Option<String>,
    /// The fix, or where to look; `None` for a finding that is ok.
    pub fix: Option<String>,
}

impl DoctorFinding {
    pub(crate) fn ok(id: &'static str, text: String) -> Self {
        Self { id, status: DoctorStatus::Ok, measurements: Vec::new(), text, reason: None, fix: None }
    }

    /// Returns a finding that could not be seen for this reason. `fix` says where to look.
    pub(crate) fn unknown(id: &'static str, why: &ProbeError, fix: impl Into<String>) -> Self {
        Self::ok(id, "unknown".to_owned()).with_status(DoctorStatus::Unknown, why.to_string(), fix)
    }

    /// Returns the finding with a status worse than ok.
    pub(crate) fn with_status(
        self,
        status: DoctorStatus,
        reason: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { status, reason: Some(reason.into()), fix: Some(fix.into()), ..self }
    }

    /// Returns the finding with all words of its texts cut to [`LONGEST`] characters, because its texts quote foreign names.
    pub(crate) fn bounded(self) -> Self {
        let bound = |text: String| {
            let words = text.split_inclusive(char::is_whitespace).map(|piece| {
                let word = piece.trim_end();
                [&shortened(word), &piece[word.len()..]].concat()
            });
            words.collect()
        };
        Self { text: bound(self.text), reason: self.reason.map(bound), fix: self.fix.map(bound), ..self }
    }

    pub(crate) fn with_measurement(mut self, name: &'static str, value: f64, unit: &'static str) -> Self {
        self.measurements.push(DoctorMeasurement { name, value, unit });
        self
    }
}

/// Helpers for tests that read findings. A failed helper shows the whole finding.
#[cfg(test)]
pub(crate) mod test_helpers {
    use super::{DoctorFinding, DoctorStatus};

    /// Returns the names and statuses of the findings that are not ok.
    pub(crate) fn complaints(found: Vec<DoctorFinding>) -> Vec<(&'static str, DoctorStatus)> {
        let complaints = found.into_iter().filter(|finding| finding.status != DoctorStatus::Ok);
        complaints.map(|finding| (finding.id, finding.status)).collect()
    }

    /// Returns the finding with this name.
    pub(crate) fn finding_named(id: &str, found: Vec<DoctorFinding>) -> DoctorFinding {
        let names: Vec<_> = found.iter().map(|finding| finding.id).collect();
        found.into_iter().find(|finding| finding.id == id).unwrap_or_else(|| panic!("no {id} in {names:?}"))
    }

    pub(crate) fn reason(finding: &DoctorFinding) -> &str {
        finding.reason.as_deref().unwrap_or_else(|| panic!("no reason: {finding:?}"))
    }

    pub(crate) fn fix(finding: &DoctorFinding) -> &str {
        finding.fix.as_deref().unwrap_or_else(|| panic!("no fix: {finding:?}"))
    }

    /// Returns the measurement with this name.
    pub(crate) fn measured(finding: &DoctorFinding, name: &str) -> f64 {
        let named = finding.measurements.iter().find(|measured| measured.name == name);
        named.unwrap_or_else(|| panic!("no {name}: {finding:?}")).value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_finding_are_bounded_and_nothing_else_of_it_is_changed() {
        let (long, all) = ("ö".repeat(50_000), "ö".repeat(256));
        let found = DoctorFinding::ok("a.b", format!("to {long} and  {all}"));
        let found = found.with_status(DoctorStatus::Error, long.clone(), format!("look at {long}")).bounded();
        assert_eq!(found.text, format!("to {all}… and  {all}"));
        assert_eq!((found.reason, found.fix), (Some(format!("{all}…")), Some(format!("look at {all}…"))));
    }

    #[test]
    fn one_of_a_thing_is_no_more_than_one() {
        let told = [0.0, 0.5, 1.0, 2.0].map(|count| pluralize(count, "core"));
        assert_eq!(told, ["0 cores", "0.5 cores", "1 core", "2 cores"]);
    }
}
