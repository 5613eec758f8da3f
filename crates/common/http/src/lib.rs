//! HTTP/1.1 heads as bytes: the input is a buffer, the output is a head, "more", or a reason to refuse. It also holds what all our
//! servers share: a canonical [`path`], the [`ResponseContext`] of a response, a [`Refusal`].
//!
//! No sockets, no clock, no allocation while parsing. The agent parses requests with it, the load engine
//! responses. It refuses every request on which two parsers could disagree (RFC 9112 sections 2.2, 5 and 6): a server in
//! front of a credential must not guess. It refuses a response whose end is uncertain.

pub mod body;
mod bytes;
mod fields;
pub mod limits;
pub mod path;
mod refusal;
pub mod request;
pub mod response;
mod response_context;
pub mod write;

pub use body::{BodyDecoder, BodyError, BodyEvent, Framing};
pub use httparse::Header;
pub use limits::HeadLimits;
pub use refusal::Refusal;
pub use request::{HeaderBuffer, RequestError, RequestFlaw, RequestHead, parse_request};
pub use response::{ResponseError, ResponseFlaw, ResponseHead, parse_response, unfold};
pub use response_context::{ResponseContext, ResponseFraming};

/// The HTTP version of a head. The parsers refuse any other version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0: connections close unless both sides say keep-alive.
    Http10,
    /// HTTP/1.1: connections stay open unless one side says close.
    Http11,
}

/// The result of parsing a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A whole head and how many bytes of the buffer it took.
    Complete(T, usize),
    /// The buffer holds the start of a head and no reason to refuse it yet.
    Partial,
}
