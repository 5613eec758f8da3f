//! Answers that take time: a cold lease, a long poll, the real metadata server.
//!
//! Each is a future that the connection's own task awaits, while the traffic thread serves all other connections. The future yields a
//! [`ReadyResponse`], which writes itself in its own dialect: this module knows no dialect.

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
    /// True if the request waits for a change.
    /// A client that closes its sending side then counts as gone, because its permit is worth more than its answer. Any other answer
    /// comes soon, and a client that closed only its sending side still reads it.
    pub is_long_poll: bool,
    /// Yields the answer.
    pub reply: Pin<Box<dyn Future<Output = Box<dyn ReadyResponse>>>>,
}

impl DeferredResponse {
    /// Returns a response that this future yields.
    pub fn new(
        route: &'static MetadataRoute,
        is_long_poll: bool,
        reply: impl Future<Output = Box<dyn ReadyResponse>> + 'static,
    ) -> Self {
        Self { route, is_long_poll, reply: Box::pin(reply) }
    }
}

impl fmt::Debug for DeferredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Later({})", self.route.name())
    }
}

/// An answer that is ready and writes itself.
pub trait ReadyResponse {
    /// Appends the response, or its beginning.
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome;
}

/// The moment at which an answer is written, and the request that it answers.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    /// The properties of the request that the answer needs.
    pub frame: &'a ResponseContext<'a>,
    /// The number of the request.
    pub request_id: u64,
    /// The moment of writing.
    pub now: Moment,
}

/// The written part of an answer, and the part that is still to come.
pub struct WriteOutcome {
    /// The status of the answer.
    pub status: u16,
    /// The rest of the body, and how its end is marked.
    pub rest: Option<(Box<BodyStream>, ResponseFraming)>,
}

impl WriteOutcome {
    /// Returns the outcome of an answer that was written completely.
    pub fn whole(status: u16) -> Self {
        Self { status, rest: None }
    }
}
