//! Answers that take time: a cold lease, a long poll, the real metadata server.
//!
//! Each is a future that the connection's own task awaits; the traffic thread goes on with everybody else. What comes is a
//! [`ReadyResponse`], which writes itself in the dialect that it is of: this module knows none.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use seawall_core::Moment;
use seawall_http::{ResponseContext, ResponseFraming};

use super::route::MetadataRoute;
use super::upstream::BodyStream;

/// An answer to come.
pub struct DeferredResponse {
    /// What was asked.
    pub route: &'static MetadataRoute,
    /// Whether it waits for a change. Then a client that ends its side is taken for gone, because its place is worth
    /// more than its answer. Any other answer comes soon, and whoever ended only the sending side still reads it.
    pub is_long_poll: bool,
    /// Brings the answer.
    pub reply: Pin<Box<dyn Future<Output = Box<dyn ReadyResponse>>>>,
}

impl DeferredResponse {
    /// The answer that this future brings.
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

/// An answer that has come and writes itself.
pub trait ReadyResponse {
    /// Appends the response, or its beginning.
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome;
}

/// The moment at which an answer is written, and the request that it answers.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    /// What the answer needs to know of its request.
    pub frame: &'a ResponseContext<'a>,
    /// The request's number.
    pub request_id: u64,
    /// The moment.
    pub now: Moment,
}

/// What was written of an answer, and what is still to come.
pub struct WriteOutcome {
    /// The status of the answer.
    pub status: u16,
    /// The rest of the body, and how its end is told.
    pub rest: Option<(Box<BodyStream>, ResponseFraming)>,
}

impl WriteOutcome {
    /// All of an answer.
    pub fn whole(status: u16) -> Self {
        Self { status, rest: None }
    }
}
