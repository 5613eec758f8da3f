//! Implements all commands except the command that serves. Each command has a file or a folder. `main` runs the command.

pub(crate) mod admin_query;
pub(crate) mod check_config;
pub(crate) mod command_line;
mod flag_parser;
pub(crate) mod import;
pub(crate) mod redirect;
pub(crate) mod status;
pub(crate) mod uninstall;
