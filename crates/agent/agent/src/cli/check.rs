//! `seawall-agent check`: prints every mistake of a configuration, and the effective configuration.

use std::path::Path;

use anyhow::Context;

use crate::app;
use crate::config::{self, AgentConfig, DownwardApi};

/// Returns the remarks, and the effective configuration.
///
/// # Errors
/// Every mistake in the configuration; a file or a credential of this machine that the configuration needs and that is wrong.
pub(crate) fn check(path: &Path) -> anyhow::Result<(String, String)> {
    let config = AgentConfig::load(path)?;
    let remarks = app::check(&config).context(
        "the configuration has no mistake, but this machine lacks something that it needs (`check --offline` checks the \
         configuration only)",
    )?;
    Ok((remarks.iter().map(|remark| format!("{remark}\n")).collect(), config::effective_yaml(&config)))
}

/// Checks the configuration alone, on a machine that is not the node.
/// Findings about credentials and files would be about the wrong machine there.
///
/// # Errors
/// Every mistake in the configuration.
pub(crate) fn check_offline(path: &Path) -> anyhow::Result<(String, String)> {
    let config = AgentConfig::load_for(path, &DownwardApi::from_env().or_placeholders())?;
    let remark = "seawall-agent: the configuration has no mistake; --offline does not check the files that it names, or credentials\n";
    Ok((remark.to_owned(), config::effective_yaml(&config)))
}
