//! Why there is no credential right now: a reason, whose it is, and when to try again.

use std::time::Duration;

use crate::failure::{ExchangeError, ExchangeFault};

/// Why a request gets no credential.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LeaseError {
    /// What this pod may have holds no such credential, whatever the cloud says; and why, in its cloud's words.
    #[error("{0}")]
    NotEntitled(&'static str),
    /// This pod asked for too many different credentials at once.
    #[error("too many new credentials asked for at once")]
    RateLimited {
        /// When the next one may be asked for.
        retry_after: Duration,
    },
    /// The fetch goes on but takes longer than a request waits.
    #[error("not fetched in time")]
    TimedOut,
    /// The exchange failed.
    #[error(transparent)]
    Failed(ExchangeError),
}

impl LeaseError {
    /// The fault, where an exchange failed.
    pub fn fault(&self) -> Option<ExchangeFault> {
        match self {
            Self::Failed(error) => Some(error.fault),
            _ => None,
        }
    }
}
