//! `seawall attack`: sends, and writes down what came back.
//!
//! [`args`] says what may be typed, [`plan`] makes a checked plan of it, the engine runs the plan, [`summary`] says what
//! it came to, [`signals`] end it early.

mod args;
mod plan;
mod signals;
mod summary;

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use seawall_load::engine::{self, Outcome};
use seawall_load::results::EncodeError;

pub(crate) use self::args::Args;
use self::args::SummaryFormat;
use self::signals::Signals;

/// Runs the command.
///
/// # Errors
/// Bad input, named; results that could not be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = plan::plan(args)?;
    let endless = plan.until == Default::default();
    let results = plan::results(args)?;
    let mut running = engine::start(plan, results)?;
    let signals = Signals::listen(running.control())?;
    while running.tick(Duration::from_secs(1)).is_some() {}
    let outcome = running.finish();
    report(args, &outcome)?;
    judge(outcome, signals.received().filter(|_| !endless))
}

/// The summary, and what a reader of the results must know besides.
fn report(args: &Args, outcome: &Outcome) -> anyhow::Result<()> {
    let on_stdout = plan::results_on_stdout(args);
    let format = args.summary.unwrap_or(if on_stdout { SummaryFormat::None } else { SummaryFormat::Text });
    let summary = match format {
        SummaryFormat::Text => summary::text(outcome),
        SummaryFormat::Json => summary::json(outcome),
        SummaryFormat::None => summary::losses(outcome),
    };
    let written = if on_stdout || format == SummaryFormat::None {
        stderr().write_all(summary.as_bytes())
    } else {
        stdout().write_all(summary.as_bytes()).and_then(|()| stdout().flush())
    };
    written.context("cannot write the summary")
}

/// The exit code of a run that took place.
fn judge(outcome: Outcome, signal: Option<i32>) -> anyhow::Result<ExitCode> {
    if let Some(mistake) = outcome.mistake {
        return Err(mistake.into());
    }
    match outcome.written {
        // The reader has seen enough: `seawall attack | head` is no mistake.
        Err(EncodeError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        Err(error) => return Err(error).context("results could not be written"),
        Ok(_) => {}
    }
    Ok(match signal {
        // The shell's convention for a program that a signal ended.
        Some(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
        None => ExitCode::SUCCESS,
    })
}
