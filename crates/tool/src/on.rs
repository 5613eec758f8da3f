//! `--on kubernetes`: the load of `attack`, `find` or `isolate` from many pods.
//!
//! [`args`] says what may be typed, [`asked`](mod@asked) checks it beside the command's other flags, [`argv`] makes the pods' command line of the user's own,
//! [`given`] joins it with the files that the command has read. What pods are and how they come to be is the crate `fleet`'s.

pub(crate) mod args;
pub(crate) mod argv;
pub(crate) mod asked;
pub(crate) mod given;

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use seawall_fleet::manifest;
use seawall_load::files::Files;

pub(crate) use self::args::OnArgs;
pub(crate) use self::asked::{Asked, Beside, Command, Deed};

/// Does what is asked for, of a command whose plan was made of these files.
///
/// # Errors
/// What cannot be given to pods.
pub(crate) fn run(asked: &Asked, beside: &Beside<'_>, files: &Files) -> anyhow::Result<ExitCode> {
    let Deed::Print(spec) = &asked.deed else {
        bail!(
            "--on kubernetes: this program prints what makes its pods (--dry-run), and does not order them yet"
        );
    };
    let materials = given::materials(std::env::args_os(), beside, files.kept(), asked)?;
    let text = manifest::written(spec, &materials, beside.command.word());
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
