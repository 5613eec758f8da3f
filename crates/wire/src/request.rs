//! Request heads. Called by the agent for every request of every connection.

use std::mem::MaybeUninit;

use httparse::Header;

use crate::body::Framing;
use crate::limits::{Limits, MAX_HEADERS};
use crate::{Parsed, Version};

/// Room for the headers of one head; lives on the caller's stack.
pub type Slots<'b> = [MaybeUninit<Header<'b>>; MAX_HEADERS];

/// Empty [`Slots`].
pub const fn slots<'b>() -> Slots<'b> {
    [const { MaybeUninit::uninit() }; MAX_HEADERS]
}

/// A request head that passed every rule.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'h, 'b> {
    /// The method as sent; a token.
    pub method: &'b str,
    /// The target as sent: origin form (`/path?query`) or absolute form. Visible ASCII.
    pub target: &'b str,
    /// The version.
    pub version: Version,
    /// The headers as sent, in order.
    pub headers: &'h [Header<'b>],
    /// How the body that follows is framed.
    pub framing: Framing,
    /// Whether the client wants the connection kept (version and `Connection` considered).
    pub keep_alive: bool,
}

impl<'b> RequestHead<'_, 'b> {
    /// The first header of this name (any case).
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }
}

/// Why a request head is refused. The connection closes after any of them: what follows cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not an HTTP/1.x request line, a bare CR or LF, a control character, folding, a bad header.
    #[error("the request is not valid HTTP/1.1: {0}")]
    Malformed(&'static str),
    /// The head exceeds [`Limits::head`] or has too many headers.
    #[error("the request head is larger than this server accepts")]
    TooLarge,
    /// The target exceeds [`Limits::target`].
    #[error("the request target is longer than this server accepts")]
    TargetTooLong,
    /// HTTP/2 prior knowledge, HTTP/3, HTTP/0.9.
    #[error("only HTTP/1.0 and HTTP/1.1 are spoken here")]
    Version,
    /// Two lengths, a length and a transfer coding, or a coding other than chunked.
    #[error("the length of the request body is ambiguous")]
    Framing,
}

impl RequestError {
    /// The status to answer with (RFC 9110 section 15, RFC 6585 section 5).
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed(_) | Self::Framing => 400,
            Self::TooLarge => 431,
            Self::TargetTooLong => 414,
            Self::Version => 505,
        }
    }
}

/// Parses one request head from the start of `buf`.
///
/// # Errors
/// The first rule broken. A buffer that already breaks a rule is refused without waiting for the rest.
pub fn parse_request<'h, 'b>(
    _buf: &'b [u8],
    _slots: &'h mut Slots<'b>,
    _limits: &Limits,
) -> Result<Parsed<RequestHead<'h, 'b>>, RequestError> {
    Ok(Parsed::Partial)
}
