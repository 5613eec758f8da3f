//! Reads the headers that decide where a message ends and whether the connection stays open. Requests and responses share this
//! code. The module does not depend on methods or statuses.

use httparse::Header;

use crate::HttpVersion;
use crate::body::Framing;

/// The values of the headers that determine the framing and the connection.
#[derive(Default)]
pub(crate) struct FramingHeaders<'b> {
    /// The value of the last `Host` header.
    pub(crate) host: &'b [u8],
    /// The number of `Host` headers.
    pub(crate) host_count: usize,
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

/// The error for headers that let two servers disagree about the end of the body.
pub(crate) struct AmbiguousFraming;

impl<'b> FramingHeaders<'b> {
    /// Reads four headers and ignores all other headers. The function compares the length of each name first, because this
    /// comparison excludes most other headers.
    pub(crate) fn read(headers: &[Header<'b>]) -> Result<Self, AmbiguousFraming> {
        let mut fields = Self::default();
        for Header { name, value } in headers {
            match name.len() {
                4 if is(name.as_bytes(), b"Host") => fields.host(value),
                10 if is(name.as_bytes(), b"Connection") => fields.connection(value),
                14 if is(name.as_bytes(), b"Content-Length") => fields.content_length(value)?,
                17 if is(name.as_bytes(), b"Transfer-Encoding") => fields.transfer_encoding(value)?,
                _ => {}
            }
        }
        Ok(fields)
    }

    /// Returns the framing that the headers state, or `None` if they state no framing (RFC 9112 section 6.3).
    ///
    /// A length together with a transfer coding is an error. A transfer coding in HTTP/1.0 is an error, too. The RFC lets each
    /// recipient choose how to read such a head. Two recipients can choose differently, which allows request smuggling (section
    /// 11.2).
    pub(crate) fn framing(&self, version: HttpVersion) -> Result<Option<Framing>, AmbiguousFraming> {
        match (self.chunked, self.length) {
            (true, None) if version == HttpVersion::Http11 => Ok(Some(Framing::Chunked)),
            (true, _) => Err(AmbiguousFraming),
            (false, length) => Ok(length.map(Framing::Length)),
        }
    }

    /// Returns the framing of a response. Chunked coding overrides a length in the same head (RFC 9112 section 6.3, item 3).
    pub(crate) fn response_framing(&self, version: HttpVersion) -> Result<Option<Framing>, AmbiguousFraming> {
        match (self.chunked, version) {
            (true, HttpVersion::Http11) => Ok(Some(Framing::Chunked)),
            _ => self.framing(version),
        }
    }

    /// True if the sender keeps the connection open (RFC 9112 section 9.3). `close` takes precedence over `keep-alive`.
    pub(crate) fn keep_alive(&self, version: HttpVersion) -> bool {
        !self.close && (version == HttpVersion::Http11 || self.keep_alive)
    }

    fn host(&mut self, value: &'b [u8]) {
        self.host = value;
        self.host_count += 1;
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= is(option, b"close");
            self.keep_alive |= is(option, b"keep-alive");
        }
    }

    /// Reads `Content-Length`, which must consist of digits. Two headers with the same length are allowed (RFC 9110 section
    /// 8.6). The function refuses `5,5`, because some servers stop reading at the comma.
    fn content_length(&mut self, value: &[u8]) -> Result<(), AmbiguousFraming> {
        let length = decimal(value).ok_or(AmbiguousFraming)?;
        match self.length.replace(length) {
            Some(before) if before != length => Err(AmbiguousFraming),
            _ => Ok(()),
        }
    }

    /// Reads `Transfer-Encoding`, which must be `chunked` and occur once. Metadata clients and servers under test do not use
    /// transfer codings for compression, and servers interpret lists of codings differently.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), AmbiguousFraming> {
        if self.chunked || !is(value, b"chunked") {
            return Err(AmbiguousFraming);
        }
        self.chunked = true;
        Ok(())
    }
}

/// True if two words are equal, ignoring case. The exact comparison comes first, because nearly every server uses the usual
/// case. This order saves a tenth of the instructions per response.
fn is(word: &[u8], usual: &[u8]) -> bool {
    word == usual || word.eq_ignore_ascii_case(usual)
}

/// Parses a number that consists only of digits. `str::parse` would also accept a leading `+`.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |sum, byte| match byte {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}
