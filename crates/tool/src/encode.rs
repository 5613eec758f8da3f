//! `seawall encode`.

use std::process::ExitCode;

/// Flags of `seawall encode`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
///
/// # Errors
/// Bad input, named.
#[expect(clippy::needless_pass_by_value, reason = "the command owns its arguments")]
pub(crate) fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not yet")
}
