//! The words of the command line beside serving: one file for each. `main` reads which one is asked for.

pub(crate) mod args;
pub(crate) mod check;
mod flags;
pub(crate) mod import;
pub(crate) mod probe;
pub(crate) mod redirect;
pub(crate) mod status;
pub(crate) mod uninstall;
