//! Why there is no credential right now: a reason, whose it is, and when to try again.

use std::time::Duration;

use crate::exchange::{ExchangeError, Fault};

/// Why a request gets no credential.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unavailable {
    /// Identity tokens are issued to service accounts only, and this pod impersonates none.
    #[error("no service account to issue an identity token for")]
    NoAccount,
    /// This pod asked for too many different credentials at once.
    #[error("too many new credentials asked for at once")]
    TooMany {
        /// When the next one may be asked for.
        retry_after: Duration,
    },
    /// The fetch goes on but takes longer than a request waits.
    #[error("not fetched in time")]
    Slow,
    /// The exchange failed.
    #[error(transparent)]
    Failed(ExchangeError),
}

impl Unavailable {
    /// The fault, where an exchange failed.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Failed(error) => Some(error.fault),
            _ => None,
        }
    }
}
