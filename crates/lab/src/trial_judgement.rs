//! Judges a trial: whether the generator kept up during it, and whether its objectives are met.
//!
//! These functions are pure. The input is the measurements of the engine and of the machine during one trial, so a delay in one
//! trial does not count against another one. The caller that ran the trial decides what follows, such as an exit code or another
//! trial.

use seawall_load::run_outcome::RunOutcome;
use seawall_load::summary::Summary;
use serde::Serialize;

use crate::generator_verdict::{GeneratorVerdict, VerdictReason, worst};
use crate::objective::{CheckedObjective, Objectives};
use crate::selfcheck;
use seawall_probe::{FindingGrade, MachineFinding};

/// The judgement of a trial. The JSON document has the verdict and its reasons here and the other fields elsewhere.
#[derive(Debug, Clone, Serialize)]
pub struct Judgement {
    /// The trust that the figures of the trial deserve.
    pub generator_verdict: GeneratorVerdict,
    /// The reasons why the verdict is worse than valid.
    #[serde(rename = "findings")]
    pub reasons: Vec<VerdictReason>,
    /// All checks of the machine, including the passed ones; empty without a machine, as in a simulation.
    #[serde(skip)]
    pub machine_findings: Vec<MachineFinding>,
    /// All objectives with their figures, even if the figures are invalid.
    #[serde(skip)]
    pub objectives: Vec<CheckedObjective>,
}

impl Judgement {
    /// Judges a trial by its outcome, the summary of the outcome, and the findings about the machine during the trial.
    #[must_use]
    pub fn new(
        outcome: &RunOutcome,
        summary: &Summary,
        machine: Vec<MachineFinding>,
        objectives: Option<&Objectives>,
    ) -> Self {
        let reasons: Vec<_> = selfcheck::reasons_against_run(outcome)
            .into_iter()
            .chain(machine.iter().filter_map(against))
            .collect();
        let objectives = objectives.map(|objectives| objectives.check(summary)).unwrap_or_default();
        Self { generator_verdict: worst(&reasons), reasons, machine_findings: machine, objectives }
    }

    /// Judges a trial by the reasons against its generator alone, for a trial that ran on another machine.
    #[must_use]
    pub fn from_reasons(reasons: Vec<VerdictReason>) -> Self {
        Self {
            generator_verdict: worst(&reasons),
            reasons,
            machine_findings: Vec::new(),
            objectives: Vec::new(),
        }
    }

    /// Returns true if the objectives are met. None if nothing can be said about the target: the generator was the limit, or was
    /// so late that every missed objective would be met without its delay.
    #[must_use]
    pub fn meets_objectives(&self) -> Option<bool> {
        let is_all_met = self.missed_objectives().next().is_none();
        let is_own_delay =
            self.missed_objectives().all(|missed| missed.service_time_if_it_alone_meets_limit.is_some());
        match self.generator_verdict {
            GeneratorVerdict::GeneratorLimited => None,
            GeneratorVerdict::Degraded if !is_all_met && is_own_delay => None,
            _ => Some(is_all_met),
        }
    }

    /// Returns the objectives that the figures miss.
    pub fn missed_objectives(&self) -> impl Iterator<Item = &CheckedObjective> {
        self.objectives.iter().filter(|checked| !checked.is_met)
    }
}

/// Returns the reason against the trial; none unless the finding delayed the generator.
fn against(finding: &MachineFinding) -> Option<VerdictReason> {
    let verdict = match finding.grade {
        FindingGrade::Ok | FindingGrade::Info | FindingGrade::Unknown => return None,
        FindingGrade::Degraded => GeneratorVerdict::Degraded,
        FindingGrade::Invalid => GeneratorVerdict::GeneratorLimited,
    };
    Some(VerdictReason::new(finding.id, verdict, finding.text.clone()))
}

#[cfg(test)]
mod tests {
    use seawall_load::clock::SECOND;
    use seawall_load::stats::LoadStats;

    use super::*;
    use crate::objective::ObjectiveValue;

    /// Returns a valid trial of one second in which nothing was sent.
    fn outcome() -> RunOutcome {
        RunOutcome::from_stats(LoadStats::default(), SECOND)
    }

    fn judged(grade: FindingGrade, objectives: &str) -> Judgement {
        let text = "text of a check".to_owned();
        let finding = MachineFinding { id: "a check", grade, measured: None, limit: None, unit: "", text };
        let (outcome, objectives) = (outcome(), objectives.parse().ok());
        Judgement::new(&outcome, &Summary::new(&outcome), vec![finding], objectives.as_ref())
    }

    #[test]
    fn only_what_held_the_generator_up_speaks_against_a_trial() {
        let of = |grade| {
            let judgement = judged(grade, "");
            (judgement.generator_verdict, judgement.reasons.len())
        };
        for grade in [FindingGrade::Ok, FindingGrade::Info, FindingGrade::Unknown] {
            assert_eq!(of(grade), (GeneratorVerdict::Valid, 0));
        }
        assert_eq!(of(FindingGrade::Degraded), (GeneratorVerdict::Degraded, 1));
        assert_eq!(of(FindingGrade::Invalid), (GeneratorVerdict::GeneratorLimited, 1));
    }

    /// Regression: a check with a limit of 10 ms blamed the service. The service time was 8.6 ms and the generator was 14 ms
    /// late.
    #[test]
    fn a_late_generator_is_not_taken_for_a_slow_target() {
        let holds = |verdict, met_by: Option<&str>| {
            let missed = CheckedObjective {
                objective: "p99 < 10ms".to_owned(),
                limit: ObjectiveValue::Latency(10_000_000),
                measured_value: Some(ObjectiveValue::Latency(18_300_000)),
                measured_text: "18.3ms".to_owned(),
                is_met: false,
                service_time_if_it_alone_meets_limit: met_by.map(str::to_owned),
            };
            let (reasons, machine, objectives) = (Vec::new(), Vec::new(), vec![missed]);
            Judgement { generator_verdict: verdict, reasons, machine_findings: machine, objectives }
                .meets_objectives()
        };
        assert_eq!(holds(GeneratorVerdict::Degraded, Some("8.56ms")), None);
        assert_eq!(holds(GeneratorVerdict::Degraded, None), Some(false));
        // A generator that kept up was not late: requests waited for the target's places.
        assert_eq!(holds(GeneratorVerdict::Valid, Some("8.56ms")), Some(false));
    }

    #[test]
    fn objectives_are_not_judged_by_what_a_limited_generator_measured() {
        let holds = |grade, objectives| judged(grade, objectives).meets_objectives();
        assert_eq!(holds(FindingGrade::Degraded, ""), Some(true));
        // Nothing was sent.
        assert_eq!(holds(FindingGrade::Degraded, "p99<1s"), Some(false));
        assert_eq!(holds(FindingGrade::Invalid, "p99<1s"), None);
    }
}
