//! The text about the machine in the summary for people, and the fields about it in the summary for programs.

use std::fmt::Write as _;

use seawall_lab::generator_verdict::GeneratorVerdict;
use seawall_lab::trial_judgement::Judgement;
use seawall_load::summary::Summary;
use seawall_probe::{FindingGrade, MachineFinding};
use serde::Serialize;

use super::generator_pods::AttackPodStatus;
use super::json_run_metadata::RunMetadata;
use super::objectives::ObjectiveReport;

/// Formats the findings that explain the figures without invalidating them, and those that are unknown.
pub(crate) fn format_machine_notes(findings: &[MachineFinding]) -> String {
    let with = |grade| findings.iter().filter(move |finding| finding.grade == grade);
    let mut out = String::new();
    for noted in with(FindingGrade::Info) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "Note: {}", noted.text);
    }
    for untested in with(FindingGrade::Unknown) {
        let _ = writeln!(out, "Note: {} {}", untested.id, untested.text);
    }
    out
}

/// Says why a run has no verdict, for standard error: without a summary on the terminal, the exit code alone would say it.
pub(crate) fn describe_missing_verdict(judgement: &Judgement) -> String {
    let checks: Vec<_> = judgement.reasons.iter().map(|reason| reason.check.as_ref()).collect();
    let lead = match judgement.generator_verdict {
        GeneratorVerdict::GeneratorLimited => "this machine, not the target, was the limit",
        _ => "the run missed objectives only because of the delay that this machine added",
    };
    format!("no verdict: {lead} ({})", checks.join(", "))
}

/// The document of `--summary=json`: the summary with what the run was, and each check of the machine. Passed checks are included, so that a
/// program knows what was checked.
#[derive(Serialize)]
pub(crate) struct AttackReport<'a> {
    pub(crate) kind: &'static str,
    pub(crate) version: u32,
    #[serde(flatten)]
    pub(crate) metadata: &'a RunMetadata,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) objectives: Vec<ObjectiveReport<'a>>,
    #[serde(flatten)]
    pub(crate) judgement: &'a Judgement,
    #[serde(flatten)]
    pub(crate) summary: &'a Summary,
    pub(crate) machine: &'a [MachineFinding],
    #[serde(skip_serializing_if = "<[AttackPodStatus]>::is_empty")]
    pub(crate) pods: &'a [AttackPodStatus],
}

#[cfg(test)]
mod tests {
    use seawall_load::clock::SECOND;
    use seawall_load::engine::RunOutcome;
    use seawall_load::stats::LoadStats;

    use super::*;

    fn finding(id: &'static str, grade: FindingGrade) -> MachineFinding {
        MachineFinding { id, grade, measured: None, limit: None, unit: "", text: format!("text of {id}") }
    }

    /// A valid run of one second.
    fn outcome() -> RunOutcome {
        RunOutcome::from_stats(LoadStats::default(), SECOND)
    }

    #[test]
    fn the_first_line_says_that_the_generator_was_the_limit() {
        let first_line = |grade| {
            let outcome = outcome();
            let summary = Summary::new(&outcome);
            let judgement = Judgement::new(&outcome, &summary, vec![finding("cpu-throttling", grade)], None);
            let [text, warnings] =
                [super::super::summary::format_summary, super::super::summary::format_warnings]
                    .map(|say| say(&judgement, &summary).lines().next().unwrap_or_default().to_owned());
            assert!(
                grade < FindingGrade::Degraded || text == warnings,
                "with results on standard output as well"
            );
            text
        };
        assert!(first_line(FindingGrade::Invalid).starts_with("GENERATOR LIMITED"));
        assert!(first_line(FindingGrade::Degraded).starts_with("GENERATOR DEGRADED"));
        assert!(first_line(FindingGrade::Info).starts_with("Requests"));
        assert!(first_line(FindingGrade::Unknown).starts_with("Requests"));
    }

    #[test]
    fn a_run_without_a_verdict_names_its_checks() {
        let outcome = outcome();
        let limited =
            vec![finding("cpu-throttling", FindingGrade::Invalid), finding("lag", FindingGrade::Degraded)];
        let judgement = Judgement::new(&outcome, &Summary::new(&outcome), limited, None);
        let said = describe_missing_verdict(&judgement);
        assert!(said.starts_with("no verdict: this machine, not the target, was the limit ("), "{said}");
        assert!(said.contains("cpu-throttling") && said.contains("lag"), "{said}");
    }

    #[test]
    fn what_was_not_tested_is_said() {
        let findings = [
            finding("cpu", FindingGrade::Ok),
            finding("ports", FindingGrade::Unknown),
            finding("tcp", FindingGrade::Info),
        ];
        assert_eq!(format_machine_notes(&findings), "Note: text of tcp\nNote: ports text of ports\n");
    }
}
