//! Limits for the sizes of the data that a client or a server sends.

/// The maximum number of headers in one head. Real metadata clients send fewer than ten headers, and browsers send fewer than
/// thirty.
pub const MAX_HEADERS: usize = 64;

/// The maximum number of bytes of chunk extensions in one body. Servers do not use extensions. hyper has the same limit.
pub const MAX_CHUNK_EXTENSION_BYTES: usize = 16 * 1024;

/// The maximum number of bytes of trailers in one body. This number equals the limit for a head.
pub const MAX_TRAILER_BYTES: usize = 16 * 1024;

/// The size limits for one head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The maximum number of bytes in a head, including the empty line.
    pub max_head_bytes: usize,
    /// The maximum number of bytes in a request target.
    pub max_target_bytes: usize,
}

impl Default for HeadLimits {
    /// Returns limits of 16 KiB per head and 8 KiB per target. RFC 9112 section 3 recommends at least 8,000 bytes for a request
    /// line.
    fn default() -> Self {
        Self { max_head_bytes: 16 * 1024, max_target_bytes: 8 * 1024 }
    }
}
