//! Defines answers that are not ready yet, for example because the lease is not cached or the request is a long poll.
//!
//! Each answer is a future. A task of the connection awaits the future, while the traffic thread serves all other connections. The
//! future yields a [`CompletedDeferredResponse`], which writes the answer in the format of its dialect. This module does not depend on the
//! dialects.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use seawall_core::Moment;
use seawall_http::{ResponseContext, ResponseFraming};

use super::route::MetadataRoute;
use super::upstream::BodyStream;

/// An answer that a future will yield.
pub struct DeferredResponse {
    /// The kind of request.
    pub route: &'static MetadataRoute,
    /// True if the request is a long poll, which waits for a change.
    /// If the client closes its sending side, the thread ends a long poll to free the permit. The thread still answers all other
    /// requests, because their answers come soon.
    pub is_long_poll: bool,
    /// Yields the answer.
    pub reply: Pin<Box<dyn Future<Output = Box<dyn CompletedDeferredResponse>>>>,
}

impl DeferredResponse {
    /// Returns a deferred response whose answer this future yields.
    pub fn new(
        route: &'static MetadataRoute,
        is_long_poll: bool,
        reply: impl Future<Output = Box<dyn CompletedDeferredResponse>> + 'static,
    ) -> Self {
        Self { route, is_long_poll, reply: Box::pin(reply) }
    }
}

impl fmt::Debug for DeferredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeferredResponse({})", self.route.name())
    }
}

/// An answer that is ready to be written.
pub trait CompletedDeferredResponse {
    /// Appends the response, or its first part, to `out`.
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome;
}

/// The data that the thread provides when it writes an answer.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    /// The properties of the request that affect the format of the answer.
    pub response_context: &'a ResponseContext<'a>,
    /// The time of writing.
    pub now: Moment,
}

/// The status of a written answer, and the rest of a long body.
pub struct WriteOutcome {
    /// The status of the answer.
    pub status: u16,
    /// The rest of the body, and the framing that marks the end of the body.
    pub remaining_body: Option<(Box<BodyStream>, ResponseFraming)>,
}

impl WriteOutcome {
    /// Returns the outcome of an answer that was written completely.
    pub fn whole(status: u16) -> Self {
        Self { status, remaining_body: None }
    }
}
