//! Writes the parts that the responses of all dialects share: the date, the `Connection` header and the framing of the body.
//! Each dialect writes its other headers itself.

use crate::{HttpVersion, RequestHead, head_writer};

/// Holds the data for the head of a response: the date, and properties of the request and its connection.
#[derive(Clone, Copy, Debug)]
pub struct ResponseContext<'a> {
    /// The value of the `Date` header, in the format IMF-fixdate (RFC 9110 section 5.6.7).
    pub date: &'a [u8; 29],
    /// The request's version. A response to an HTTP/1.0 client must state that its connection stays open.
    pub version: HttpVersion,
    /// True if the connection stays open.
    pub keep_alive: bool,
    /// True if the response has a head but no body, as for HEAD.
    pub head_only: bool,
}

impl<'a> ResponseContext<'a> {
    /// Creates the context of a response to this request. The connection stays open if the client wants to keep it open.
    pub fn for_request(head: &RequestHead<'_, '_>, date: &'a [u8; 29]) -> Self {
        let head_only = head.method == "HEAD";
        Self { date, version: head.version, keep_alive: head.keep_alive, head_only }
    }

    /// Creates the context of a response to bytes that are not a request. The agent then closes the connection.
    pub fn for_invalid_request(date: &'a [u8; 29]) -> Self {
        Self { date, version: HttpVersion::Http11, keep_alive: false, head_only: false }
    }

    /// Begins a head: the status line, the dialect's constant headers, the date, and `Connection` if necessary.
    /// `always` contains the constant headers as complete lines.
    pub fn begin_head(&self, out: &mut Vec<u8>, status: u16, always: &[u8]) {
        head_writer::write_status_line(out, status);
        out.extend_from_slice(always);
        head_writer::write_header(out, "Date", self.date);
        match (self.version, self.keep_alive) {
            (HttpVersion::Http11, true) => {}
            (HttpVersion::Http10, true) => head_writer::write_header(out, "Connection", b"keep-alive"),
            (_, false) => head_writer::write_header(out, "Connection", b"close"),
        }
    }

    /// Ends a head and writes the body. `Content-Length` is the body's length even if the response omits the body because the
    /// request is a HEAD (RFC 9110 section 9.3.2).
    pub fn end_with_body(&self, out: &mut Vec<u8>, body: &[&[u8]]) {
        let length = body.iter().map(|part| part.len()).sum();
        self.end_with_writer(out, length, |out| body.iter().for_each(|part| out.extend_from_slice(part)));
    }

    /// Ends a head and writes a body of `length` bytes by calling `body`.
    ///
    /// If the lengths of the parts are known at compile time, this function costs about half as much as
    /// [`end_with_body`](Self::end_with_body).
    pub fn end_with_writer(&self, out: &mut Vec<u8>, length: usize, body: impl FnOnce(&mut Vec<u8>)) {
        head_writer::write_content_length_and_head_end(out, length as u64);
        if !self.head_only {
            let start = out.len();
            body(out);
            debug_assert_eq!(out.len() - start, length, "`body` must write exactly `length` bytes");
        }
    }
}

/// The framing of a response body. The client uses it to find the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// A body of known length.
    KnownLength(u64),
    /// A chunked body ([`head_writer::write_chunk`], [`head_writer::write_last_chunk`]), for a client with HTTP/1.1.
    Chunked,
    /// A body that ends with the connection, for a client with HTTP/1.0. The head must announce that the connection closes.
    UntilClose,
}

impl ResponseFraming {
    /// Chooses the framing from the client's version and, if known, the body's length.
    pub fn choose(length: Option<u64>, version: HttpVersion) -> Self {
        match (length, version) {
            (Some(length), _) => Self::KnownLength(length),
            (None, HttpVersion::Http11) => Self::Chunked,
            (None, HttpVersion::Http10) => Self::UntilClose,
        }
    }

    /// Ends a head with the header that announces this framing.
    pub fn end_head(self, out: &mut Vec<u8>) {
        match self {
            Self::KnownLength(length) => head_writer::write_content_length_and_head_end(out, length),
            Self::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n"),
            Self::UntilClose => out.extend_from_slice(b"\r\n"),
        }
    }

    /// Writes a part of the body with this framing.
    pub fn write_part(self, out: &mut Vec<u8>, bytes: &[u8]) {
        match self {
            Self::Chunked => head_writer::write_chunk(out, bytes),
            Self::KnownLength(_) | Self::UntilClose => out.extend_from_slice(bytes),
        }
    }

    /// Ends the body. Only [`Chunked`](Self::Chunked) writes bytes here.
    pub fn end_body(self, out: &mut Vec<u8>) {
        if self == Self::Chunked {
            head_writer::write_last_chunk(out);
        }
    }
}
