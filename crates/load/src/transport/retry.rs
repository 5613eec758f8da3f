//! Decides which failed requests are sent again. One table decides for both protocols.

use super::FailureStage;

/// The maximum number of times that a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    /// The limit for a request that the server had not processed.
    pub(crate) max_retries_if_not_processed: u32,
    /// The limit for a request whose reused connection broke.
    pub(crate) max_retries_if_lost: u32,
}

impl RetryPolicy {
    /// The limits of Go's client (net/http `http2Transport.RoundTripOpt`, `persistConn.shouldRetryRequest`).
    pub(crate) const GO_CLIENT: Self = Self { max_retries_if_not_processed: 6, max_retries_if_lost: 1 };

    /// No retries.
    pub(crate) const NONE: Self = Self { max_retries_if_not_processed: 0, max_retries_if_lost: 0 };
}

/// The decision about a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Do not send the request again.
    GiveUp,
    /// Send the request again on any connection.
    AnyConnection,
    /// Send the request again on a new connection: idle ones may be as old as the one that broke.
    NewConnection,
}

/// Decides whether a request is sent again after `attempts` earlier retries.
pub(crate) fn decide_retry(
    progress: FailureStage,
    reused: bool,
    idempotent: bool,
    attempts: u32,
    policy: RetryPolicy,
) -> RetryDecision {
    match progress {
        FailureStage::NotProcessed if attempts < policy.max_retries_if_not_processed => {
            RetryDecision::AnyConnection
        }
        // The connection was a reused one, and the server may have closed it at that moment (RFC 9112, section 9.3.1).
        FailureStage::Sent if reused && idempotent && attempts < policy.max_retries_if_lost => {
            RetryDecision::NewConnection
        }
        FailureStage::NotProcessed | FailureStage::Sent | FailureStage::Answering => RetryDecision::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(progress: FailureStage, reused: bool, idempotent: bool, attempts: u32) -> RetryDecision {
        decide_retry(progress, reused, idempotent, attempts, RetryPolicy::GO_CLIENT)
    }

    #[test]
    fn what_the_server_has_not_looked_at_goes_out_again_whatever_it_is() {
        for (reused, idempotent) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(
                again(FailureStage::NotProcessed, reused, idempotent, 5),
                RetryDecision::AnyConnection
            );
            assert_eq!(again(FailureStage::NotProcessed, reused, idempotent, 6), RetryDecision::GiveUp);
        }
    }

    #[test]
    fn what_may_have_been_looked_at_goes_out_once_if_it_does_no_harm_and_the_connection_was_old() {
        assert_eq!(again(FailureStage::Sent, true, true, 0), RetryDecision::NewConnection);
        assert_eq!(again(FailureStage::Sent, true, true, 1), RetryDecision::GiveUp);
        assert_eq!(again(FailureStage::Sent, true, false, 0), RetryDecision::GiveUp);
        assert_eq!(again(FailureStage::Sent, false, true, 0), RetryDecision::GiveUp);
    }

    #[test]
    fn what_is_being_answered_never_goes_out_again() {
        assert_eq!(again(FailureStage::Answering, true, true, 0), RetryDecision::GiveUp);
    }
}
