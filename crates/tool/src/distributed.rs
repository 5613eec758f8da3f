//! `--on kubernetes`: the load of `attack`, `find` or `isolate` from many pods.
//!
//! [`args`] says what may be typed, [`pod_options`] checks it beside the command's other flags, [`forwarded_command_line`] makes the pods' command line of the user's own,
//! [`pod_inputs`] joins it with the files that the command has read. What pods are and how they come to be is the crate `fleet`'s.

pub(crate) mod args;
pub(crate) mod forwarded_command_line;
pub(crate) mod pod_inputs;
pub(crate) mod pod_options;
pub(crate) mod ready_pods;

use std::io::{Write as _, stdout};

use anyhow::Context as _;
use seawall_fleet::manifest;
use seawall_load::input_files::InputFiles;

pub(crate) use self::args::{DistributedArgs, OnPodLoss};
pub(crate) use self::pod_options::{
    DistributedAction, DistributedOptions, DistributionFlags, LoadCommand, RecordDestination, STDOUT_NAME,
};
pub(crate) use self::ready_pods::CleanupGuard;

/// Prints the manifest of the pods if the command asks for that alone (`--dry-run`); returns true in that case.
///
/// # Errors
/// An input cannot be given to pods.
pub(crate) fn print_if_dry_run(
    asked: &DistributedOptions,
    beside: &DistributionFlags<'_>,
    files: &InputFiles,
) -> anyhow::Result<bool> {
    let DistributedAction::PrintManifest(spec) = &asked.action else { return Ok(false) };
    let materials = pod_inputs::build_job_inputs(std::env::args_os(), beside, files.captured(), asked)?;
    let text = manifest::to_yaml(spec, &materials, beside.command.name());
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")?;
    Ok(true)
}
