//! The text of a configuration file, and why it cannot be used.

use std::path::{Path, PathBuf};

use seawall_config::{Mistakes, values};
use seawall_core::file;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration {path}: {reason}")]
    Unreadable { path: PathBuf, reason: String },
    #[error("{path} has {} mistake(s):\n{mistakes}", mistakes.0.len())]
    Mistaken { path: PathBuf, mistakes: Mistakes },
}

impl ConfigError {
    /// The same without what stands in the file, which may be anything, for where it is read by others than those who may read the file.
    pub(crate) fn in_short(&self) -> String {
        match self {
            Self::Unreadable { .. } => self.to_string(),
            Self::Mistaken { mistakes, .. } => {
                let each = mistakes.0.iter();
                let each: Vec<_> =
                    each.map(|mistake| format!("{}: expected {}", mistake.path, mistake.expected)).collect();
                each.join("; ")
            }
        }
    }
}

/// The text of a configuration.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn text_of(path: &Path) -> Result<String, ConfigError> {
    let read = file::read(path, values::LARGEST);
    let text = read.map_err(|reason| ConfigError::Unreadable { path: path.into(), reason })?;
    Ok(text.expose().clone())
}
