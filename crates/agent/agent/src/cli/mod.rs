//! The commands of the command line besides serving. Each command has a file, and `main` dispatches the commands.

pub(crate) mod args;
pub(crate) mod check;
mod flags;
pub(crate) mod import;
pub(crate) mod probe;
pub(crate) mod redirect;
pub(crate) mod status;
pub(crate) mod uninstall;
