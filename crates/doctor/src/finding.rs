//! What a check says: what was measured, what that means, and what to do.

use std::fmt;

use seawall_probe::ProbeError;
use serde::Serialize;

/// What a finding comes to, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoctorVerdict {
    /// Nothing wrong.
    Ok,
    /// It could not be seen; the fix says where to look.
    CannotTell,
    /// It does no harm that can be seen now, and will under load or after a change.
    Warning,
    /// It does harm now, or next to nothing is missing for it to.
    Fault,
}

impl fmt::Display for DoctorVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::CannotTell => "cannot tell",
            Self::Warning => "WARNING",
            Self::Fault => "FAULT",
        })
    }
}

/// So many of what a word names, in the singular of one.
pub(crate) fn pluralize(count: f64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1.0 { "" } else { "s" })
}

/// The most characters of what others named.
const LONGEST: usize = 256;

/// A name that somebody else gave, as far as it tells something.
pub(crate) fn shortened(name: &str) -> String {
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => [&name[..end], "…"].concat(),
        None => name.to_owned(),
    }
}

/// A number behind a finding.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DoctorMeasurement {
    /// What it is of; names are stable.
    pub name: &'static str,
    /// In `unit`.
    pub value: f64,
    /// `ports`, `%`, `/s`.
    pub unit: &'static str,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DoctorFinding {
    /// A stable name: the check's, a dot, and its own.
    pub id: &'static str,
    /// What it comes to.
    pub verdict: DoctorVerdict,
    /// The numbers; none where nothing could be seen.
    pub measured: Vec<DoctorMeasurement>,
    /// What was seen, in a sentence.
    pub text: String,
    /// Why that is no good; only where it is not.
    pub reason: Option<String>,
    /// What to do about it, or where to look; only where there is something to do.
    pub fix: Option<String>,
}

impl DoctorFinding {
    pub(crate) fn ok(id: &'static str, text: String) -> Self {
        Self { id, verdict: DoctorVerdict::Ok, measured: Vec::new(), text, reason: None, fix: None }
    }

    /// It could not be seen for this reason; `fix` says where to look.
    pub(crate) fn unknown(id: &'static str, why: &ProbeError, fix: impl Into<String>) -> Self {
        Self::ok(id, "not seen".to_owned()).with_verdict(DoctorVerdict::CannotTell, why.to_string(), fix)
    }

    /// The same, as worse than ok.
    pub(crate) fn with_verdict(
        self,
        verdict: DoctorVerdict,
        reason: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { verdict, reason: Some(reason.into()), fix: Some(fix.into()), ..self }
    }

    /// The same with no word longer than a name may be: what others say stands in its texts, and may be as long as they like.
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
        self.measured.push(DoctorMeasurement { name, value, unit });
        self
    }
}

/// What tests ask of findings: one that has not got it is shown whole.
#[cfg(test)]
pub(crate) mod told {
    use super::{DoctorFinding, DoctorVerdict};

    /// Those that are not ok, by name.
    pub(crate) fn complaints(found: Vec<DoctorFinding>) -> Vec<(&'static str, DoctorVerdict)> {
        let complaints = found.into_iter().filter(|finding| finding.verdict != DoctorVerdict::Ok);
        complaints.map(|finding| (finding.id, finding.verdict)).collect()
    }

    /// The finding of this name.
    pub(crate) fn of(id: &str, found: Vec<DoctorFinding>) -> DoctorFinding {
        let names: Vec<_> = found.iter().map(|finding| finding.id).collect();
        found.into_iter().find(|finding| finding.id == id).unwrap_or_else(|| panic!("no {id} in {names:?}"))
    }

    pub(crate) fn reason(finding: &DoctorFinding) -> &str {
        finding.reason.as_deref().unwrap_or_else(|| panic!("no reason: {finding:?}"))
    }

    pub(crate) fn fix(finding: &DoctorFinding) -> &str {
        finding.fix.as_deref().unwrap_or_else(|| panic!("no fix: {finding:?}"))
    }

    /// The number of this name.
    pub(crate) fn measured(finding: &DoctorFinding, name: &str) -> f64 {
        let named = finding.measured.iter().find(|measured| measured.name == name);
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
        let found =
            found.with_verdict(DoctorVerdict::Fault, long.clone(), format!("look at {long}")).bounded();
        assert_eq!(found.text, format!("to {all}… and  {all}"));
        assert_eq!((found.reason, found.fix), (Some(format!("{all}…")), Some(format!("look at {all}…"))));
    }

    #[test]
    fn one_of_a_thing_is_no_more_than_one() {
        let told = [0.0, 0.5, 1.0, 2.0].map(|count| pluralize(count, "core"));
        assert_eq!(told, ["0 cores", "0.5 cores", "1 core", "2 cores"]);
    }
}
