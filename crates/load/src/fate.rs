//! What became of single hits, for who must know of each and not of all together.
//!
//! Figures are sums ([`crate::stats`]), and records are for files. What stands between the two are plain values, handed over with
//! the interval in which the hits ended and kept no longer: how many of them are worth keeping only their reader knows. Made by
//! [`crate::books`] for a load that asks for them.

use crate::clock::Nanos;
use crate::fault::{OutcomeClass, RequestFault};
use crate::record::ConnectionTimings;

/// A hit that has come to its end. Instants are nanoseconds since the trial began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompletedRequest {
    /// Place of its target on the list; 0 of targets that are read during the run.
    pub target: usize,
    /// When it was to be sent.
    pub due: Nanos,
    /// When its first byte left; none if it ended before that.
    pub sent: Option<Nanos>,
    /// How long it was due and had room before this machine came to send it; 0 in a closed loop, and for what waited for room.
    pub generator_lag: Nanos,
    /// Its last byte, or the failure.
    pub end: Nanos,
    /// The status of its complete answer, or why there is none.
    pub outcome: Result<u16, RequestFault>,
    /// Bytes of the answer's body.
    pub bytes_in: u64,
    /// How often it was sent again, as the connection that it was on had been closed.
    pub retries: u32,
    /// The connection that took it on last; none if none did.
    pub carrier: Option<ConnectionTimings>,
}

impl CompletedRequest {
    /// A complete answer with a status from 200 to 399.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.outcome.is_ok_and(|status| OutcomeClass::of_status(status) == OutcomeClass::Good)
    }

    /// When this machine came to send it: what it waited for a connection after that is not this machine's.
    #[must_use]
    pub fn launched(&self) -> Nanos {
        self.due.saturating_add(self.generator_lag)
    }

    /// From the instant when it was due to its end.
    #[must_use]
    pub fn response(&self) -> Nanos {
        self.end.saturating_sub(self.due)
    }
}
