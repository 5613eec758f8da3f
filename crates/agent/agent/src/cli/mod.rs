//! The commands other than serving. Each command has a file or a folder, and `main` runs it.

pub(crate) mod admin_query;
pub(crate) mod check_config;
pub(crate) mod command_line;
mod flag_parser;
pub(crate) mod import;
pub(crate) mod redirect;
pub(crate) mod status;
pub(crate) mod uninstall;
