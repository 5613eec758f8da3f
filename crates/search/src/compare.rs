//! Two reports beside each other: better, worse, or nothing that can be said.

use crate::belief::Bracket;
use crate::report::{Outcome, Report};

/// What a comparison says of the cliff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// The cliff is higher.
    Better,
    /// The cliff is lower.
    Worse,
    /// The runs do not tell.
    CannotTell,
}

/// The change, and by how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// What it is.
    pub change: Change,
    /// Cliff after over cliff before, and the interval that the two brackets leave it.
    pub ratio: Bracket,
}

/// Why two reports cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unlike {
    /// They were held to different goals.
    Goal,
    /// They were as thorough as another.
    Profile,
    /// They might offer different rates at most.
    MaxRate,
    /// One of them did not find a cliff.
    NotFound,
    /// One of them had something that is used up.
    Depleted,
}

/// Brackets that do not touch are a change.
///
/// # Errors
/// [`Unlike`].
pub fn compare(before: &Report, after: &Report) -> Result<Comparison, Unlike> {
    alike(before, after)?;
    let (before, after) = (found(before)?, found(after)?);
    let ratio = Bracket {
        lower: after.lower / before.upper,
        point: after.point / before.point,
        upper: after.upper / before.lower,
    };
    let change = if ratio.upper < 1.0 {
        Change::Worse
    } else if ratio.lower > 1.0 {
        Change::Better
    } else {
        Change::CannotTell
    };
    Ok(Comparison { change, ratio })
}

fn alike(before: &Report, after: &Report) -> Result<(), Unlike> {
    let refused = [
        (before.goal != after.goal, Unlike::Goal),
        (before.profile != after.profile, Unlike::Profile),
        (before.max_rate != after.max_rate, Unlike::MaxRate),
        (before.depletion.is_some() || after.depletion.is_some(), Unlike::Depleted),
    ];
    refused.into_iter().find(|(unlike, _)| *unlike).map_or(Ok(()), |(_, why)| Err(why))
}

fn found(report: &Report) -> Result<Bracket, Unlike> {
    let found = matches!(report.outcome, Some(Outcome::Found | Outcome::Metastable));
    report.cliff.bracket.filter(|_| found).ok_or(Unlike::NotFound)
}
