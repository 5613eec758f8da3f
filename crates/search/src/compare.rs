//! Two runs beside each other: better, worse, or nothing that can be said.
//!
//! A [`ComparedRun`] is what a comparison needs of a search, as plain data, so that it can be made of a report or read from a file. What
//! makes requests arrive and how connections are kept is the caller's: it is compared letter by letter and not understood.

use crate::belief::Bracket;
use crate::goal::SearchGoal;
use crate::report::{SearchOutcome, SearchReport};

/// What is compared of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRun {
    /// What it was held to.
    pub goal: SearchGoal,
    /// Name of its profile.
    pub profile: String,
    /// Highest rate that might be offered, requests a second.
    pub max_rate: Option<f64>,
    /// The arrival process, in the caller's words.
    pub arrivals: String,
    /// What was done about connections, in the caller's words.
    pub connections: String,
    /// How it ended; none where it has not.
    pub outcome: Option<SearchOutcome>,
    /// Whether the target had something that is used up.
    pub depleted: bool,
    /// The cliff's bracket, as stated.
    pub cliff: Option<Bracket>,
}

impl ComparedRun {
    /// Of a search that made requests arrive and kept connections as these words say.
    #[must_use]
    pub fn of(report: &SearchReport, arrivals: &str, connections: &str) -> Self {
        Self {
            goal: report.goal,
            profile: report.profile.to_owned(),
            max_rate: report.max_rate,
            arrivals: arrivals.to_owned(),
            connections: connections.to_owned(),
            outcome: report.outcome,
            depleted: report.quota_exhaustion.is_some(),
            cliff: report.cliff.bracket,
        }
    }

    fn found(&self) -> Result<Bracket, IncomparableRuns> {
        let found = matches!(self.outcome, Some(SearchOutcome::Found | SearchOutcome::Metastable));
        self.cliff.filter(|_| found).ok_or(IncomparableRuns::NotFound)
    }
}

/// What a comparison says of the cliff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitChange {
    /// The cliff is higher.
    Better,
    /// The cliff is lower.
    Worse,
    /// The runs show neither.
    Undecided,
}

/// The change, and by how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// What it is.
    pub change: LimitChange,
    /// Cliff after over cliff before. The interval leaves one out where there is a change, and else does not.
    pub ratio: Bracket,
}

/// Why two runs cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IncomparableRuns {
    /// They were held to different goals.
    Goal,
    /// One was more thorough than the other.
    Profile,
    /// They might offer different rates at most.
    MaxRate,
    /// Requests arrived in different ways.
    Arrivals,
    /// Connections were not kept alike.
    Connections,
    /// One of them did not find a cliff.
    NotFound,
    /// One of them had something that is used up.
    Depleted,
}

/// A bracket that is wider, as a share of its lower bound, has its middle anywhere: all of it counts.
const WIDE: f64 = 0.4;
/// How much of what a stated bracket allows to a side counts here. A stated bracket is to hold the truth by itself and is widened by
/// what no trial can see; that two of them are off to opposite sides, and that far, is much rarer.
const SHARE: f64 = 0.4;
/// What two runs of one target differ by beside what each knows of itself, as a logarithm.
const RUNS: f64 = 0.06;

/// A change is a ratio whose interval leaves one out. [`SHARE`], [`RUNS`] and [`WIDE`] were chosen on simulated pairs so that equal runs
/// are hardly ever told apart; what they come to on others stands in docs/find-search.md.
///
/// # Errors
/// [`IncomparableRuns`].
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
    Ok(Comparison { change, ratio })
}

/// The interval of the ratio of two limits, from the intervals of both: what each may be off to a side adds up as independent errors do
/// (Donner and Zou, "Closed-form confidence intervals for functions of the normal mean and standard deviation", 2012).
fn ratio(before: &Bracket, after: &Bracket) -> Bracket {
    let point = after.estimate / before.estimate;
    let share = if before.width().max(after.width()) > WIDE { 1.0 } else { SHARE };
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
        (before.profile != after.profile, IncomparableRuns::Profile),
        (before.max_rate != after.max_rate, IncomparableRuns::MaxRate),
        (before.arrivals != after.arrivals, IncomparableRuns::Arrivals),
        (before.connections != after.connections, IncomparableRuns::Connections),
        (before.depleted || after.depleted, IncomparableRuns::Depleted),
    ];
    refused.into_iter().find(|(unlike, _)| *unlike).map_or(Ok(()), |(_, why)| Err(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lower: f64, point: f64, upper: f64) -> ComparedRun {
        ComparedRun {
            goal: SearchGoal::CLIFF,
            profile: "quick".to_owned(),
            max_rate: None,
            arrivals: "constant".to_owned(),
            connections: "kept".to_owned(),
            outcome: Some(SearchOutcome::Found),
            depleted: false,
            cliff: Some(Bracket { lower, estimate: point, upper }),
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
            let ratio = told.ratio;
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
            assert_eq!(told.change, change, "{after}: {:?}", told.ratio);
        }
    }

    #[test]
    fn runs_that_differ_in_what_was_asked_are_refused() {
        let before = run(950.0, 1000.0, 1050.0);
        let refused = [
            (
                ComparedRun { goal: SearchGoal { errors: 0.01, late: None }, ..before.clone() },
                IncomparableRuns::Goal,
            ),
            (ComparedRun { profile: "thorough".to_owned(), ..before.clone() }, IncomparableRuns::Profile),
            (ComparedRun { max_rate: Some(1e4), ..before.clone() }, IncomparableRuns::MaxRate),
            (ComparedRun { arrivals: "poisson".to_owned(), ..before.clone() }, IncomparableRuns::Arrivals),
            (
                ComparedRun { connections: "one each".to_owned(), ..before.clone() },
                IncomparableRuns::Connections,
            ),
            (
                ComparedRun { outcome: Some(SearchOutcome::NoLimitFound), ..before.clone() },
                IncomparableRuns::NotFound,
            ),
            (ComparedRun { cliff: None, ..before.clone() }, IncomparableRuns::NotFound),
            (ComparedRun { depleted: true, ..before.clone() }, IncomparableRuns::Depleted),
        ];
        for (after, why) in refused {
            assert_eq!(compare(&before, &after), Err(why));
            assert_eq!(compare(&after, &before), Err(why));
        }
    }
}
