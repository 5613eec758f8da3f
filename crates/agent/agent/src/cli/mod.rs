//! The commands other than serving. Each command has a file or a folder, and `main` runs it.

pub(crate) mod args;
pub(crate) mod check;
mod flags;
pub(crate) mod import;
pub(crate) mod probe;
pub(crate) mod redirect;
pub(crate) mod status;
pub(crate) mod uninstall;
