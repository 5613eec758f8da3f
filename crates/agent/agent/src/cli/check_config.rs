//! `seawall-agent check`: prints all mistakes of a configuration, or the effective configuration if there is no mistake.

use std::path::Path;

use anyhow::Context;

use crate::app;
use crate::config::{self, AgentConfig, DownwardApi};

/// Checks the configuration and the files and credentials that it needs. Returns remarks and the effective configuration.
///
/// # Errors
/// The configuration has mistakes, or it needs a file or a credential that is invalid on this machine.
pub(crate) fn check(path: &Path) -> anyhow::Result<(String, String)> {
    let config = AgentConfig::load(path)?;
    let remarks = app::check_configured_files(&config).context(
        "the configuration has no mistake, but this machine lacks something that the configuration needs (`check --offline` checks the \
         configuration only)",
    )?;
    Ok((remarks.iter().map(|remark| format!("{remark}\n")).collect(), config::effective_yaml(&config)))
}

/// Checks only the configuration. This check works on any machine.
/// It does not check files and credentials, because only the node has them.
///
/// # Errors
/// The configuration has mistakes; the error lists all of them.
pub(crate) fn check_config_only(path: &Path) -> anyhow::Result<(String, String)> {
    let config = AgentConfig::load_with_downward_api(path, &DownwardApi::from_env().with_placeholders())?;
    let remark = "seawall-agent: the configuration has no mistake; --offline does not check the files or the credentials that the configuration needs\n";
    Ok((remark.to_owned(), config::effective_yaml(&config)))
}
