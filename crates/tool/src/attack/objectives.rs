//! The objectives of `--slo` as a program reads them: limit, measured figure and verdict of each.

use seawall_lab::generator_verdict::GeneratorVerdict;
use seawall_lab::objective::{CheckedObjective, ObjectiveValue};
use seawall_lab::trial_judgement::Judgement;
use serde::Serialize;

/// One objective. Latencies are in seconds, and shares of requests go from 0 to 1.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ObjectiveReport<'a> {
    /// The condition, such as `p99 < 250ms`.
    objective: &'a str,
    #[serde(flatten)]
    figures: ObjectiveFigures,
    verdict: ObjectiveVerdict,
    /// Why the objective is missed, or not judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// The limit, and what was measured; null if the run has no such figure.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum ObjectiveFigures {
    Latency { limit_seconds: f64, measured_seconds: Option<f64> },
    Ratio { limit_ratio: f64, measured_ratio: Option<f64> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ObjectiveVerdict {
    Passed,
    Missed,
    /// The generator was the limit, or its own delay is the only reason of the miss.
    NotJudged,
}

impl<'a> ObjectiveReport<'a> {
    /// All objectives of a run, in the order in which `--slo` names them.
    pub(crate) fn all_from_judgement(judgement: &'a Judgement) -> Vec<Self> {
        judgement.objectives.iter().map(|checked| Self::of(checked, judgement)).collect()
    }

    fn of(checked: &'a CheckedObjective, judgement: &Judgement) -> Self {
        let is_limited = judgement.generator_verdict == GeneratorVerdict::GeneratorLimited;
        let verdict = match judgement.meets_objectives() {
            None if is_limited || !checked.is_met => ObjectiveVerdict::NotJudged,
            _ if checked.is_met => ObjectiveVerdict::Passed,
            _ => ObjectiveVerdict::Missed,
        };
        let seconds = |figure| match figure {
            ObjectiveValue::Latency(time) => time as f64 / 1e9,
            ObjectiveValue::Ratio(ratio) => ratio,
        };
        let (limit, measured) = (seconds(checked.limit), checked.measured_value.map(seconds));
        let figures = match checked.limit {
            ObjectiveValue::Latency(_) => {
                ObjectiveFigures::Latency { limit_seconds: limit, measured_seconds: measured }
            }
            ObjectiveValue::Ratio(_) => {
                ObjectiveFigures::Ratio { limit_ratio: limit, measured_ratio: measured }
            }
        };
        let reason = (verdict != ObjectiveVerdict::Passed).then_some(checked.measured_text.as_str());
        Self { objective: &checked.objective, figures, verdict, reason }
    }
}

#[cfg(test)]
mod tests {
    use seawall_lab::generator_verdict::VerdictReason;
    use serde_json::json;

    use super::*;

    fn checked(
        objective: &str,
        limit: ObjectiveValue,
        figure: ObjectiveValue,
        is_met: bool,
    ) -> CheckedObjective {
        CheckedObjective {
            objective: objective.to_owned(),
            limit,
            measured_value: Some(figure),
            measured_text: "as measured".to_owned(),
            is_met,
            service_time_if_it_alone_meets_limit: None,
        }
    }

    #[test]
    fn a_program_reads_limit_figure_and_verdict_of_each_objective() {
        let of = |verdict| {
            let reasons = vec![VerdictReason::new("lag", verdict, "late".to_owned())];
            let (latency, ratio) = (ObjectiveValue::Latency, ObjectiveValue::Ratio);
            let objectives = vec![
                checked("p99 < 250ms", latency(250_000_000), latency(9_320_000), true),
                checked("errors < 1 %", ratio(0.01), ratio(0.2), false),
            ];
            let judgement = Judgement { objectives, ..Judgement::from_reasons(reasons) };
            serde_json::to_value(ObjectiveReport::all_from_judgement(&judgement)).unwrap()
        };
        assert_eq!(
            of(GeneratorVerdict::Valid),
            json!([
                {"objective": "p99 < 250ms", "limit_seconds": 0.25, "measured_seconds": 0.00932, "verdict": "passed"},
                {
                    "objective": "errors < 1 %", "limit_ratio": 0.01, "measured_ratio": 0.2, "verdict": "missed",
                    "reason": "as measured"
                },
            ])
        );
        let limited = of(GeneratorVerdict::GeneratorLimited);
        assert_eq!(
            (&limited[0]["verdict"], &limited[1]["verdict"]),
            (&json!("not-judged"), &json!("not-judged"))
        );
    }
}
