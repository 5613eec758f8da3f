//! The message of a `--resume` that sends nothing: the reason, and the option that changes it.

use seawall_lab::find::find_report::{FindOutcome, FindReport, FindStopReason};

/// Returns the reason why a resumed run sent nothing and the option to change, in one sentence; `None` if it sent something.
pub(super) fn why_nothing_was_sent(before: &FindReport, after: &FindReport) -> Option<String> {
    let sent = |report: &FindReport| (report.trials.len(), report.experiments.len());
    if sent(before) != sent(after) {
        return None;
    }
    let is_cut = matches!(after.stop_reason, Some(FindStopReason::Budget | FindStopReason::Inconclusive));
    let why = match after.outcome {
        _ if after.stop_reason == Some(FindStopReason::Signal) => return None,
        _ if is_cut => "--budget is too short for the next step: raise --budget",
        FindOutcome::Found | FindOutcome::Metastable => {
            "the run is complete: to narrow the range of the limit, start a new run with --thorough"
        }
        FindOutcome::NoLimitFound => {
            "the target sustained --max-rate: start a new run with a higher --max-rate"
        }
        FindOutcome::GeneratorLimited => {
            "the target sustained the highest rate that this machine can send: start a new run from more machines with --on"
        }
        FindOutcome::UnstableBaseline => {
            "the target misses the goal at every rate: start a new run with a wider --slo"
        }
        FindOutcome::TargetDied => "the target stopped answering: restart it, then start a new run",
        FindOutcome::Undecided | FindOutcome::Interrupted => {
            "no further trial can decide this run: start a new run with --thorough"
        }
    };
    Some(format!("--resume sent nothing: {why}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn a_continued_run_that_sends_nothing_says_why_and_which_option_to_change() {
        let of = |outcome, stop_reason| {
            let report = FindReport { outcome, stop_reason, ..found() };
            why_nothing_was_sent(&report, &report)
        };
        for (outcome, stop_reason, option) in [
            (FindOutcome::Found, None, "--thorough"),
            (FindOutcome::NoLimitFound, None, "--max-rate"),
            (FindOutcome::GeneratorLimited, None, "--on"),
            (FindOutcome::UnstableBaseline, None, "--slo"),
            (FindOutcome::Undecided, Some(FindStopReason::Inconclusive), "--budget"),
            (FindOutcome::Interrupted, Some(FindStopReason::Budget), "--budget"),
        ] {
            let why = of(outcome, stop_reason).unwrap();
            assert!(why.starts_with("--resume sent nothing: ") && why.contains(option), "{why}");
        }
        assert_eq!(of(FindOutcome::Interrupted, Some(FindStopReason::Signal)), None);
        let mut longer = found();
        longer.trials.extend(longer.trials.first().cloned());
        assert_eq!(why_nothing_was_sent(&found(), &longer), None);
    }
}
