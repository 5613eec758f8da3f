//! `seawall-agent check`: every mistake of a configuration, and what is in force by it.

use std::path::Path;

use anyhow::Context;

use crate::app;
use crate::config::{self, AgentConfig, DownwardApi};

/// The remarks, and the configuration that would be in force.
///
/// # Errors
/// Every mistake in the configuration; what it needs of this machine and is not right.
pub(crate) fn check(path: &Path) -> anyhow::Result<(String, String)> {
    let config = AgentConfig::load(path)?;
    let remarks = app::check(&config).context(
        "the configuration itself has no mistake, but what it needs of this machine is not right (`check --offline` looks at the \
         configuration alone)",
    )?;
    Ok((remarks.iter().map(|remark| format!("{remark}\n")).collect(), config::effective_yaml(&config)))
}

/// For whoever has the file and not the node: what is said here about credentials and files would be about the wrong machine.
///
/// # Errors
/// Every mistake in the configuration.
pub(crate) fn check_offline(path: &Path) -> anyhow::Result<(String, String)> {
    let config = AgentConfig::load_for(path, &DownwardApi::from_env().or_placeholders())?;
    let remark = "seawall-agent: no mistake in the configuration; files that it names and credentials were not looked at\n";
    Ok((remark.to_owned(), config::effective_yaml(&config)))
}
