//! Reads the text of a configuration file and defines the errors of such files.

use std::path::{Path, PathBuf};

use seawall_config::{ValidationErrors, values};
use seawall_core::file;

/// The reason why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigFileError {
    #[error("cannot read the configuration {path}: {reason}")]
    Unreadable { path: PathBuf, reason: String },
    #[error("{path} has {} mistake(s):\n{mistakes}", mistakes.0.len())]
    Invalid { path: PathBuf, mistakes: ValidationErrors },
}

impl ConfigFileError {
    /// Returns the error text without the file's content, because the content can be secret.
    /// Use this text where people can see the error but are not allowed to read the file.
    pub(crate) fn redacted(&self) -> String {
        match self {
            Self::Unreadable { .. } => self.to_string(),
            Self::Invalid { mistakes, .. } => {
                let each = mistakes.0.iter();
                let each: Vec<_> = each
                    .map(|mistake| format!("{}: expected {}", mistake.key_path, mistake.expected))
                    .collect();
                each.join("; ")
            }
        }
    }
}

/// Returns the text of a configuration file.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read_text(path: &Path) -> Result<String, ConfigFileError> {
    let read = file::read_text(path, values::MAX_FILE_BYTES);
    let text = read.map_err(|reason| ConfigFileError::Unreadable { path: path.into(), reason })?;
    Ok(text.expose().clone())
}
