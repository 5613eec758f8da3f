//! The error for a request that gets no credential: the cause, who must act, and when to retry.

use std::time::Duration;

use crate::failure::{ExchangeError, ExchangeFault};

/// The reason why a request gets no credential.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LeaseError {
    /// The pod's entitlement does not contain this credential. The text gives the reason in the cloud's terms.
    #[error("{0}")]
    NotEntitled(&'static str),
    /// This pod requested too many different credentials at once.
    #[error("too many requests for new credentials at once")]
    TooManyNewCredentials {
        /// The time until the pod may request the next new credential.
        retry_after: Duration,
    },
    /// The request's wait ended before the fetch. The fetch continues in the background.
    #[error("the fetch takes longer than a request waits for it")]
    TimedOut,
    /// The exchange failed.
    #[error(transparent)]
    Failed(ExchangeError),
}

impl LeaseError {
    /// Returns the fault, if an exchange failed.
    pub fn fault(&self) -> Option<ExchangeFault> {
        match self {
            Self::Failed(error) => Some(error.fault),
            _ => None,
        }
    }
}
