//! Compares two runs: better, worse or undecided.
//!
//! A [`ComparedRun`] has the data of a search that a comparison needs. The caller makes it from a report or reads it from a file. The
//! comparison requires equal texts for the arrival process and the connections and does not interpret them.

use crate::goal::SearchGoal;
use crate::limit_posterior::Bracket;
use crate::report::{SearchOutcome, SearchReport};

/// The data of one search for a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRun {
    /// The goal of the search.
    pub goal: SearchGoal,
    /// The name of the profile.
    pub profile_name: String,
    /// The highest allowed rate in requests per second.
    pub max_rate: Option<f64>,
    /// The arrival process, as the caller's text.
    pub arrivals: String,
    /// The use of connections, as the caller's text.
    pub connection_use: String,
    /// The outcome; none if the search has not ended.
    pub outcome: Option<SearchOutcome>,
    /// True if the target had a quota that ran out.
    pub quota_exhausted: bool,
    /// The reported bracket of the cliff.
    pub cliff_bracket: Option<Bracket>,
}

impl ComparedRun {
    /// Takes the data from a report and these texts.
    #[must_use]
    pub fn of(report: &SearchReport, arrivals: &str, connections: &str) -> Self {
        Self {
            goal: report.goal,
            profile_name: report.search_profile_name.to_owned(),
            max_rate: report.max_rate,
            arrivals: arrivals.to_owned(),
            connection_use: connections.to_owned(),
            outcome: report.outcome,
            quota_exhausted: report.quota_exhaustion.is_some(),
            cliff_bracket: report.cliff.bracket,
        }
    }

    fn found(&self) -> Result<Bracket, IncomparableRuns> {
        let found = matches!(self.outcome, Some(SearchOutcome::Found | SearchOutcome::Metastable));
        self.cliff_bracket.filter(|_| found).ok_or(IncomparableRuns::NoCliffFound)
    }
}

/// The change of the cliff between two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitChange {
    /// The cliff is higher.
    Better,
    /// The cliff is lower.
    Worse,
    /// The runs do not show a change.
    Undecided,
}

/// The change of the cliff and its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The direction of the change.
    pub change: LimitChange,
    /// The later cliff divided by the earlier one. A change means that the interval does not contain 1.
    pub ratio_bracket: Bracket,
}

/// A reason why two runs cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IncomparableRuns {
    /// The goals differ.
    Goal,
    /// The profiles differ.
    Profile,
    /// The highest allowed rates differ.
    MaxRate,
    /// The arrival processes differ.
    Arrivals,
    /// The use of connections differs.
    Connections,
    /// One of the runs did not find a cliff.
    NoCliffFound,
    /// One of the targets had a quota that ran out.
    QuotaExhausted,
}

/// The width of a bracket, as a share of its lower bound, above which the whole bracket counts, because its estimate may lie anywhere
/// inside.
const WIDE: f64 = 0.4;
/// The share of a bracket's width that counts in a comparison. A reported bracket includes a margin for errors that no trial can see, and
/// two brackets rarely err that far in opposite directions.
const SHARE: f64 = 0.4;
/// The unexplained difference between two runs of one target, as a logarithm.
const RUNS: f64 = 0.06;

/// Compares two runs. A change means that the interval of the ratio does not contain 1. [`SHARE`], [`RUNS`] and [`WIDE`] were chosen on
/// simulated pairs so that equal runs hardly ever show a change; docs/find-search.md has results for other pairs.
///
/// # Errors
/// [`IncomparableRuns`] if the runs differ in more than the target.
pub fn compare(before: &ComparedRun, after: &ComparedRun) -> Result<Comparison, IncomparableRuns> {
    alike(before, after)?;
    let ratio = ratio(&before.found()?, &after.found()?);
    let change = if ratio.upper < 1.0 {
        LimitChange::Worse
    } else if ratio.lower > 1.0 {
        LimitChange::Better
    } else {
        LimitChange::Undecided
    };
    Ok(Comparison { change, ratio_bracket: ratio })
}

/// Returns the interval of the ratio of two limits. The deviations of both add up like independent errors (Donner and Zou,
/// "Closed-form confidence intervals for functions of the normal mean and standard deviation", 2012).
fn ratio(before: &Bracket, after: &Bracket) -> Bracket {
    let point = after.estimate / before.estimate;
    let share = if before.width_relative_to_lower().max(after.width_relative_to_lower()) > WIDE {
        1.0
    } else {
        SHARE
    };
    let off = |first: f64, second: f64| (share * first.ln().hypot(second.ln())).hypot(RUNS).exp();
    Bracket {
        lower: point / off(after.estimate / after.lower, before.upper / before.estimate),
        estimate: point,
        upper: point * off(after.upper / after.estimate, before.estimate / before.lower),
    }
}

fn alike(before: &ComparedRun, after: &ComparedRun) -> Result<(), IncomparableRuns> {
    let refused = [
        (before.goal != after.goal, IncomparableRuns::Goal),
        (before.profile_name != after.profile_name, IncomparableRuns::Profile),
        (before.max_rate != after.max_rate, IncomparableRuns::MaxRate),
        (before.arrivals != after.arrivals, IncomparableRuns::Arrivals),
        (before.connection_use != after.connection_use, IncomparableRuns::Connections),
        (before.quota_exhausted || after.quota_exhausted, IncomparableRuns::QuotaExhausted),
    ];
    refused.into_iter().find(|(unlike, _)| *unlike).map_or(Ok(()), |(_, why)| Err(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lower: f64, point: f64, upper: f64) -> ComparedRun {
        ComparedRun {
            goal: SearchGoal::ERRORS_ONLY,
            profile_name: "quick".to_owned(),
            max_rate: None,
            arrivals: "constant".to_owned(),
            connection_use: "kept".to_owned(),
            outcome: Some(SearchOutcome::Found),
            quota_exhausted: false,
            cliff_bracket: Some(Bracket { lower, estimate: point, upper }),
        }
    }

    #[test]
    fn a_change_is_told_by_an_interval_that_leaves_one_out() {
        let before = run(950.0, 1000.0, 1050.0);
        for (point, change) in
            [(1000.0, LimitChange::Undecided), (900.0, LimitChange::Worse), (1120.0, LimitChange::Better)]
        {
            let after = run(0.95 * point, point, 1.05 * point);
            let told = compare(&before, &after).unwrap();
            assert_eq!(told.change, change, "{point}");
            let ratio = told.ratio_bracket;
            let holds_one = ratio.lower <= 1.0 && ratio.upper >= 1.0;
            assert_eq!(holds_one, change == LimitChange::Undecided, "{ratio:?}");
            assert!(ratio.lower < point / 1000.0 && point / 1000.0 < ratio.upper, "{ratio:?}");
        }
    }

    #[test]
    fn of_a_wide_bracket_all_counts() {
        let before = run(950.0, 1000.0, 1050.0);
        for (after, change) in [(900.0, LimitChange::Undecided), (400.0, LimitChange::Worse)] {
            let told = compare(&before, &run(0.8 * after, after, 1.3 * after)).unwrap();
            assert_eq!(told.change, change, "{after}: {:?}", told.ratio_bracket);
        }
    }

    #[test]
    fn runs_that_differ_in_what_was_asked_are_refused() {
        let before = run(950.0, 1000.0, 1050.0);
        let refused = [
            (
                ComparedRun {
                    goal: SearchGoal { max_error_share: 0.01, latency_goal: None },
                    ..before.clone()
                },
                IncomparableRuns::Goal,
            ),
            (
                ComparedRun { profile_name: "thorough".to_owned(), ..before.clone() },
                IncomparableRuns::Profile,
            ),
            (ComparedRun { max_rate: Some(1e4), ..before.clone() }, IncomparableRuns::MaxRate),
            (ComparedRun { arrivals: "poisson".to_owned(), ..before.clone() }, IncomparableRuns::Arrivals),
            (
                ComparedRun { connection_use: "one each".to_owned(), ..before.clone() },
                IncomparableRuns::Connections,
            ),
            (
                ComparedRun { outcome: Some(SearchOutcome::NoLimitFound), ..before.clone() },
                IncomparableRuns::NoCliffFound,
            ),
            (ComparedRun { cliff_bracket: None, ..before.clone() }, IncomparableRuns::NoCliffFound),
            (ComparedRun { quota_exhausted: true, ..before.clone() }, IncomparableRuns::QuotaExhausted),
        ];
        for (after, why) in refused {
            assert_eq!(compare(&before, &after), Err(why));
            assert_eq!(compare(&after, &before), Err(why));
        }
    }
}
