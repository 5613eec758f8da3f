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
    /// Cliff after over cliff before, with the credibility of both brackets.
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

/// A change is a ratio whose interval leaves one out.
///
/// # Errors
/// [`Unlike`].
pub fn compare(before: &Report, after: &Report) -> Result<Comparison, Unlike> {
    alike(before, after)?;
    let (before, after) = (found(before)?, found(after)?);
    let ratio = ratio(&before, &after);
    let change = if ratio.upper < 1.0 {
        Change::Worse
    } else if ratio.lower > 1.0 {
        Change::Better
    } else {
        Change::CannotTell
    };
    Ok(Comparison { change, ratio })
}

/// The interval of the ratio of two limits, from the intervals of both: what each may be off to a side adds up as independent errors do
/// (Donner and Zou, "Closed-form confidence intervals for functions of the normal mean and standard deviation", 2012).
fn ratio(before: &Bracket, after: &Bracket) -> Bracket {
    let point = after.point / before.point;
    let off = |first: f64, second: f64| first.ln().hypot(second.ln()).exp();
    Bracket {
        lower: point / off(after.point / after.lower, before.upper / before.point),
        point,
        upper: point * off(after.upper / after.point, before.point / before.lower),
    }
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
