//! `--on kubernetes`: the load of `attack`, `find` or `isolate` from many pods.
//!
//! [`args`] says what may be typed, [`asked`](mod@asked) checks it beside the command's other flags, [`argv`] makes the pods' command line of the user's own,
//! [`given`] joins it with the files that the command has read. What pods are and how they come to be is the crate `fleet`'s.

pub(crate) mod args;
pub(crate) mod argv;
pub(crate) mod asked;
pub(crate) mod crew;
pub(crate) mod given;

use std::io::{Write as _, stdout};

use anyhow::Context as _;
use seawall_fleet::manifest;
use seawall_load::files::Files;

pub(crate) use self::args::{OnArgs, WhenPodFails};
pub(crate) use self::asked::{Asked, Beside, Command, Deed, STDOUT, Written};
pub(crate) use self::crew::Ended;

/// Whether what makes the pods is all that is asked for, of a command whose plan was made of these files: then it is printed.
///
/// # Errors
/// What cannot be given to pods.
pub(crate) fn prints(asked: &Asked, beside: &Beside<'_>, files: &Files) -> anyhow::Result<bool> {
    let Deed::Print(spec) = &asked.deed else { return Ok(false) };
    let materials = given::materials(std::env::args_os(), beside, files.kept(), asked)?;
    let text = manifest::written(spec, &materials, beside.command.word());
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")?;
    Ok(true)
}
