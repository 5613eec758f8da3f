//! What is written of the machine: in the summary for people, and in the one for programs.

use std::fmt::Write as _;

use seawall_lab::judgement::Judgement;
use seawall_load::summary::Summary;
use seawall_probe::{FindingGrade, MachineFinding};
use serde::Serialize;

use super::about::RunMetadata;
use super::pods::AttackPodStatus;

/// What explains the figures and speaks against none of them, and what is not known.
pub(crate) fn notes(findings: &[MachineFinding]) -> String {
    let with = |grade| findings.iter().filter(move |finding| finding.grade == grade);
    let mut out = String::new();
    for noted in with(FindingGrade::Noted) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "Note: {}", noted.text);
    }
    for untested in with(FindingGrade::Untested) {
        let _ = writeln!(out, "Note: {} {}", untested.id, untested.text);
    }
    out
}

/// The summary, with what the run was and every check of the machine, the passed ones included: who automates wants to know what was looked at.
#[derive(Serialize)]
pub(crate) struct AttackReport<'a> {
    #[serde(flatten)]
    pub(crate) about: &'a RunMetadata,
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

    /// A run of one second whose own figures are sound.
    fn outcome() -> RunOutcome {
        RunOutcome::from_stats(LoadStats::default(), SECOND)
    }

    #[test]
    fn the_first_line_says_that_the_generator_was_the_limit() {
        let first_line = |grade| {
            let outcome = outcome();
            let summary = Summary::new(&outcome);
            let judgement = Judgement::new(&outcome, &summary, vec![finding("cpu-throttling", grade)], None);
            let [text, warnings] = [super::super::summary::text, super::super::summary::warnings]
                .map(|say| say(&judgement, &summary).lines().next().unwrap_or_default().to_owned());
            assert!(
                grade < FindingGrade::Degraded || text == warnings,
                "with results on standard output as well"
            );
            text
        };
        assert!(first_line(FindingGrade::Invalid).starts_with("GENERATOR LIMITED"));
        assert!(first_line(FindingGrade::Degraded).starts_with("GENERATOR DEGRADED"));
        assert!(first_line(FindingGrade::Noted).starts_with("Requests"));
        assert!(first_line(FindingGrade::Untested).starts_with("Requests"));
    }

    #[test]
    fn what_was_not_tested_is_said() {
        let findings = [
            finding("cpu", FindingGrade::Fine),
            finding("ports", FindingGrade::Untested),
            finding("tcp", FindingGrade::Noted),
        ];
        assert_eq!(notes(&findings), "Note: text of tcp\nNote: ports text of ports\n");
    }
}
