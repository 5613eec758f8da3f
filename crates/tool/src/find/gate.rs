//! `find --compare`: two runs beside each other, for people and for a pipeline.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use seawall_lab::find::answer::{Answer, Limit};
use seawall_lab::find::compare::{Change, Compared, compare};

use super::words::rate;
use crate::exit;

/// Compares two files.
///
/// # Errors
/// They are no runs, or runs that do not compare.
pub(super) fn run(before: &Path, after: &Path) -> anyhow::Result<ExitCode> {
    let (before, after) = (super::earlier(before)?, super::earlier(after)?);
    let compared = compare(&before, &after).context("the runs do not compare")?;
    super::show(&text(&compared, &before, &after))?;
    Ok(ExitCode::from(code(compared.change)))
}

fn code(change: Change) -> u8 {
    match change {
        Change::Better | Change::Same => exit::FOUND,
        Change::Worse => exit::OBJECTIVE_MISSED,
        Change::CannotTell => exit::CANNOT_TELL,
    }
}

/// The word first, for whoever reads it with a script.
fn text(compared: &Compared, before: &Answer, after: &Answer) -> String {
    let word = match compared.change {
        Change::Better => "better",
        Change::Same => "the same within a tenth",
        Change::Worse => "worse",
        Change::CannotTell => "cannot tell",
    };
    let share = |ratio: f64| format!("{:+.1} %", 100.0 * (ratio - 1.0));
    let ratio = compared.ratio;
    format!(
        "{word}: the cliff by {} to {}, most likely {}\n  before  {}\n  after   {}\n",
        share(ratio.lower),
        share(ratio.upper),
        share(ratio.point),
        bracket(&before.cliff),
        bracket(&after.cliff),
    )
}

fn bracket(limit: &Limit) -> String {
    let side = |bound: Option<f64>| bound.map_or_else(|| "?".to_owned(), rate);
    format!("{} to {} /s", side(limit.lower), side(limit.upper))
}
