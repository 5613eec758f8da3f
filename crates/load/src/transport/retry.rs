//! Which failed requests go out again. One table for both protocols; nothing else decides it.

use super::Progress;

/// How often a request may go out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Because the server had not looked at it.
    pub(crate) unseen: u32,
    /// Because an old connection broke under it.
    pub(crate) lost: u32,
}

impl Policy {
    /// As Go's client does (net/http `http2Transport.RoundTripOpt`, `persistConn.shouldRetryRequest`).
    pub(crate) const GO: Self = Self { unseen: 6, lost: 1 };

    /// Never.
    pub(crate) const NONE: Self = Self { unseen: 0, lost: 0 };
}

/// What to do with a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It has failed for good.
    No,
    /// On any connection.
    Anywhere,
    /// On a new connection: the idle ones may be as old as the one that broke.
    Fresh,
}

/// Whether a request goes out again that was sent again so many times before.
pub(crate) fn retry(
    progress: Progress,
    reused: bool,
    idempotent: bool,
    attempts: u32,
    policy: Policy,
) -> Again {
    match progress {
        Progress::Unseen if attempts < policy.unseen => Again::Anywhere,
        // The connection was an old one, and the server had let it go just then (RFC 9112, section 9.3.1).
        Progress::Sent if reused && idempotent && attempts < policy.lost => Again::Fresh,
        Progress::Unseen | Progress::Sent | Progress::Answering => Again::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(progress: Progress, reused: bool, idempotent: bool, attempts: u32) -> Again {
        retry(progress, reused, idempotent, attempts, Policy::GO)
    }

    #[test]
    fn what_the_server_has_not_looked_at_goes_out_again_whatever_it_is() {
        for (reused, idempotent) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(again(Progress::Unseen, reused, idempotent, 5), Again::Anywhere);
            assert_eq!(again(Progress::Unseen, reused, idempotent, 6), Again::No);
        }
    }

    #[test]
    fn what_may_have_been_looked_at_goes_out_once_if_it_does_no_harm_and_the_connection_was_old() {
        assert_eq!(again(Progress::Sent, true, true, 0), Again::Fresh);
        assert_eq!(again(Progress::Sent, true, true, 1), Again::No);
        assert_eq!(again(Progress::Sent, true, false, 0), Again::No);
        assert_eq!(again(Progress::Sent, false, true, 0), Again::No);
    }

    #[test]
    fn what_is_being_answered_never_goes_out_again() {
        assert_eq!(again(Progress::Answering, true, true, 0), Again::No);
    }
}
