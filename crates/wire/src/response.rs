//! Response heads. Called by the load engine.

use httparse::Header;

use crate::body::Framing;
use crate::limits::Limits;
use crate::request::Slots;
use crate::{Parsed, Version};

/// A response head that passed every rule.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'h, 'b> {
    /// 100 to 599.
    pub status: u16,
    /// The reason phrase, possibly empty.
    pub reason: &'b str,
    /// The version.
    pub version: Version,
    /// The headers as sent, in order.
    pub headers: &'h [Header<'b>],
    /// How the body that follows is framed, the request's method considered.
    pub framing: Framing,
    /// Whether the server keeps the connection (version, `Connection` and framing considered).
    pub keep_alive: bool,
}

/// Why a response head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// Not an HTTP/1.x status line or a bad header.
    #[error("malformed HTTP response: {0}")]
    Malformed(&'static str),
    /// The head exceeds the limit.
    #[error("response head larger than the limit")]
    TooLarge,
    /// Conflicting lengths or an unknown transfer coding.
    #[error("ambiguous length of the response body")]
    Framing,
}

/// Parses one response head from the start of `buf`. `method` is that of the request it answers: a reply to
/// HEAD and any 1xx, 204 or 304 has no body (RFC 9112 section 6.3).
///
/// # Errors
/// The first rule broken.
pub fn parse_response<'h, 'b>(
    _buf: &'b [u8],
    _method: &str,
    _slots: &'h mut Slots<'b>,
    _limits: &Limits,
) -> Result<Parsed<ResponseHead<'h, 'b>>, ResponseError> {
    Ok(Parsed::Partial)
}
