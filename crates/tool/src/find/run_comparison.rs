//! `find --compare`: two runs beside each other, for people and for a pipeline.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use seawall_lab::find::compare::{ComparisonVerdict, RunComparison, compare, differences, highest_held_rate};
use seawall_lab::find::find_report::{FindReport, ReportedLimit};
use seawall_search::limit_posterior::Bracket;

use super::formatting::format_rate_without_unit;
use crate::exit;

/// Compares two files.
///
/// # Errors
/// They are no runs, or runs that do not compare.
pub(super) fn run(before: &Path, after: &Path) -> anyhow::Result<ExitCode> {
    let (before, after) = (super::read_earlier_report(before)?, super::read_earlier_report(after)?);
    let compared = compare(&before, &after).context("cannot compare the runs")?;
    super::show(&text(&compared, &before, &after))?;
    Ok(ExitCode::from(exit_code(compared.verdict)))
}

fn exit_code(change: ComparisonVerdict) -> u8 {
    match change {
        ComparisonVerdict::Better | ComparisonVerdict::Same | ComparisonVerdict::NotWorse => exit::SUCCESS,
        ComparisonVerdict::Worse => exit::SLO_MISSED,
        ComparisonVerdict::Undecided => exit::UNDECIDED,
    }
}

/// The word first, for whoever reads it with a script.
fn text(compared: &RunComparison, before: &FindReport, after: &FindReport) -> String {
    let notes: String = differences(before, after).iter().map(|note| format!("  note    {note}\n")).collect();
    let [was, is] = [before, after].map(known);
    let change = describe_change(compared, before, after, "before");
    let advice = match compared.verdict {
        ComparisonVerdict::Undecided => {
            "  next    search both again with --thorough, which finds each limit three times as precisely, or compare with seawall isolate\n"
        }
        _ => "",
    };
    format!("{change}\n  before  {was}\n  after   {is}\n{notes}{advice}")
}

/// The word, and by how much. `earlier` says in one word when, or by whom, it was held that comes first.
pub(crate) fn describe_change(
    compared: &RunComparison,
    before: &FindReport,
    after: &FindReport,
    earlier: &str,
) -> String {
    let word = match compared.verdict {
        ComparisonVerdict::Better => "better",
        ComparisonVerdict::Same => "the same within 10 %",
        ComparisonVerdict::NotWorse => "not worse",
        ComparisonVerdict::Worse => "worse",
        ComparisonVerdict::Undecided => "undecided",
    };
    format!("{word}: {}", interval(compared, before, after, earlier))
}

/// The change: of what was not taken to its cliff only one side of it is known, or none.
fn interval(compared: &RunComparison, before: &FindReport, after: &FindReport, earlier: &str) -> String {
    let share = |ratio: f64| format!("{:+.1} %", 100.0 * (ratio - 1.0));
    let Bracket { lower, estimate: point, upper } = compared.ratio_interval;
    match (highest_held_rate(before), highest_held_rate(after)) {
        (Some(was), Some(is)) if format_rate_without_unit(was) == format_rate_without_unit(is) => {
            format!("both sustained {}/s; neither run found a limit", format_rate_without_unit(is))
        }
        (Some(was), Some(is)) => {
            format!(
                "sustained {}/s ({}/s {earlier}); neither run found a limit",
                format_rate_without_unit(is),
                format_rate_without_unit(was)
            )
        }
        (None, Some(_)) => format!("breaking rate: at least {}", share(lower)),
        (Some(_), None) => format!("breaking rate: at most {}", share(upper)),
        (None, None) => {
            format!("breaking rate: {} to {}, most likely {}", share(lower), share(upper), share(point))
        }
    }
}

/// The cliff's bracket, or what was held where nothing broke.
fn known(answer: &FindReport) -> String {
    match highest_held_rate(answer) {
        Some(most) => format!("at least {} /s (sustained)", format_rate_without_unit(most)),
        None => {
            let ReportedLimit { lower, upper, .. } = answer.breaking_rate;
            let side = |bound: Option<f64>| bound.map_or_else(|| "?".to_owned(), format_rate_without_unit);
            format!("{} to {} /s", side(lower), side(upper))
        }
    }
}
