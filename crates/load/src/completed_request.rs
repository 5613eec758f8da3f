//! The outcomes of single requests, for readers that need each request and not only sums.
//!
//! Figures are sums ([`crate::stats`]), and records are for files. The values of this module are handed over with the interval in
//! which the requests ended, and then dropped: only the reader knows which of them to keep. Made by [`crate::request_accounting`] for a
//! load that asks for them.

use crate::clock::Nanos;
use crate::record::ConnectionTimings;
use crate::request_failure_reason::{OutcomeClass, RequestFault};

/// A request that has ended. Instants are nanoseconds since the trial began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompletedRequest {
    /// The index of its target in the list; 0 for targets that are read during the run.
    pub target_index: usize,
    /// The time when the request was due.
    pub due: Nanos,
    /// The time when the request's first byte left; none if the request ended before that.
    pub sent_at: Option<Nanos>,
    /// The delay of this machine: the time for which the request was due and had room before this machine started to send it. It
    /// is 0 in a closed loop and for requests that waited for room.
    pub generator_lag: Nanos,
    /// The time of the last byte, or of the failure.
    pub end: Nanos,
    /// The status of the complete response, or the reason why there is none.
    pub outcome: Result<u16, RequestFault>,
    /// Bytes of the response body.
    pub response_body_bytes: u64,
    /// The number of retries after the request's connection had been closed.
    pub retries: u32,
    /// The connection that carried the request last; `None` if the request had none.
    pub connection_timings: Option<ConnectionTimings>,
}

impl CompletedRequest {
    /// Returns true for a complete response with a status from 200 to 399 that is not a wrong answer.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.outcome.is_ok_and(|status| OutcomeClass::of_status(status) == OutcomeClass::Good)
    }

    /// Returns the time when this machine started to send the request. A later wait for a connection is not this machine's delay.
    #[must_use]
    pub fn launch_time(&self) -> Nanos {
        self.due.saturating_add(self.generator_lag)
    }

    /// Returns the time from the instant when the request was due to its end.
    #[must_use]
    pub fn response_time(&self) -> Nanos {
        self.end.saturating_sub(self.due)
    }
}
