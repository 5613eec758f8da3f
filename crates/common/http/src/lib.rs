//! Parses and writes HTTP/1.1 heads. The input is a byte buffer. The result is a head, an error, or the information that the
//! head is not complete yet. The crate also contains the code that all dialects of the agent share: canonical paths ([`path`]),
//! the common headers of responses ([`ResponseContext`]), and the [`Refusal`].
//!
//! The crate uses no sockets and no clock, and its parsers do not allocate. The agent uses this crate to parse requests. The
//! load engine and the `fetch` crate use it to parse responses. The crate refuses every request that two parsers could
//! interpret differently (RFC 9112 sections 2.2, 5 and 6), because the agent protects credentials. The crate refuses every
//! response whose end is uncertain.

pub mod body;
mod bytes;
mod framing_headers;
pub mod head_writer;
pub mod limits;
pub mod path;
mod refusal;
pub mod request;
pub mod response;
mod response_writer;

pub use body::{BodyDecoder, BodyError, BodyEvent, Framing};
pub use httparse::Header;
pub use limits::HeadLimits;
pub use refusal::Refusal;
pub use request::{HeaderBuffer, RequestError, RequestFlaw, RequestHead, parse_request};
pub use response::{ResponseError, ResponseFlaw, ResponseHead, parse_response, unfold_header_value};
pub use response_writer::{ResponseContext, ResponseFraming};

/// The HTTP version of a head. The parsers refuse any other version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0: a connection closes unless both sides send `keep-alive`.
    Http10,
    /// HTTP/1.1: a connection stays open unless one side sends `close`.
    Http11,
}

/// The result of parsing a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A complete head, and the number of bytes that the head took from the buffer.
    Complete(T, usize),
    /// The start of a head. The bytes so far break no rule.
    Partial,
}
