//! Limits on the sizes that a peer may send.

/// Most headers in one head. Real metadata clients send under ten; browsers under thirty.
pub const MAX_HEADERS: usize = 64;

/// Most bytes of chunk extensions in one body. No reader uses them; hyper has the same limit.
pub const MAX_CHUNK_EXTENSIONS: usize = 16 * 1024;

/// Most bytes of trailers in one body: as much as a head may have.
pub const MAX_TRAILERS: usize = 16 * 1024;

/// Limits of one head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Most bytes in a head, the empty line included.
    pub head: usize,
    /// Most bytes in a request target.
    pub target: usize,
}

impl Default for HeadLimits {
    /// 16 KiB of head, 8 KiB of target (RFC 9112 section 3 asks for at least 8,000 bytes of request line).
    fn default() -> Self {
        Self { head: 16 * 1024, target: 8 * 1024 }
    }
}
