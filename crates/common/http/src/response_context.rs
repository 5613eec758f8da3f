//! What every dialect's answers have in common: the request's version, the moment, whether the connection goes on, and how the
//! end of a body is told. What else stands in a head is a dialect's own.

use crate::{HttpVersion, RequestHead, write};

/// What a response needs to know about its request and its moment.
#[derive(Clone, Copy, Debug)]
pub struct ResponseContext<'a> {
    /// `Date`, an IMF-fixdate (RFC 9110 section 5.6.7).
    pub date: &'a [u8; 29],
    /// The request's version; an HTTP/1.0 client must be told that its connection is kept.
    pub version: HttpVersion,
    /// Whether the connection is kept.
    pub keep_alive: bool,
    /// Whether only the head is sent (HEAD).
    pub head_only: bool,
}

impl<'a> ResponseContext<'a> {
    /// The frame that answers this request, the connection kept if the client wants it.
    pub fn of(head: &RequestHead<'_, '_>, date: &'a [u8; 29]) -> Self {
        let head_only = head.method == "HEAD";
        Self { date, version: head.version, keep_alive: head.keep_alive, head_only }
    }

    /// The frame that answers bytes which are no request: the connection closes.
    pub fn closing(date: &'a [u8; 29]) -> Self {
        Self { date, version: HttpVersion::Http11, keep_alive: false, head_only: false }
    }

    /// Begins a head: the status, the headers that each answer of a dialect has (whole lines), the date, and what becomes of the
    /// connection.
    pub fn begin(&self, out: &mut Vec<u8>, status: u16, always: &[u8]) {
        write::status_line(out, status);
        out.extend_from_slice(always);
        write::header(out, "Date", self.date);
        match (self.version, self.keep_alive) {
            (HttpVersion::Http11, true) => {}
            (HttpVersion::Http10, true) => write::header(out, "Connection", b"keep-alive"),
            (_, false) => write::header(out, "Connection", b"close"),
        }
    }

    /// Ends a head and writes the body. The length is the body's even when the body is left out (RFC 9110 section 9.3.2).
    pub fn end(&self, out: &mut Vec<u8>, body: &[&[u8]]) {
        let length = body.iter().map(|part| part.len()).sum();
        self.end_with(out, length, |out| body.iter().for_each(|part| out.extend_from_slice(part)));
    }

    /// The same with a body of `length` bytes that is written by `body`: of parts whose lengths are known when this is compiled, nearly
    /// half of what [`end`](Self::end) takes.
    pub fn end_with(&self, out: &mut Vec<u8>, length: usize, body: impl FnOnce(&mut Vec<u8>)) {
        write::length_and_end(out, length as u64);
        if !self.head_only {
            let start = out.len();
            body(out);
            debug_assert_eq!(out.len() - start, length, "the length that was told");
        }
    }
}

/// How the client is told where a body ends whose bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// By its length.
    Known(u64),
    /// By chunks ([`write::chunk`], [`write::last_chunk`]): to a client of HTTP/1.1.
    Chunked,
    /// By the end of the connection, which the frame must announce: to a client of HTTP/1.0.
    UntilClose,
}

impl ResponseFraming {
    /// How a client of this version is told, where the body's length is known or not.
    pub fn of(length: Option<u64>, version: HttpVersion) -> Self {
        match (length, version) {
            (Some(length), _) => Self::Known(length),
            (None, HttpVersion::Http11) => Self::Chunked,
            (None, HttpVersion::Http10) => Self::UntilClose,
        }
    }

    /// Ends a head with it.
    pub fn end_head(self, out: &mut Vec<u8>) {
        match self {
            Self::Known(length) => write::length_and_end(out, length),
            Self::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n"),
            Self::UntilClose => out.extend_from_slice(b"\r\n"),
        }
    }

    /// Writes a part of the body.
    pub fn write_part(self, out: &mut Vec<u8>, bytes: &[u8]) {
        match self {
            Self::Chunked => write::chunk(out, bytes),
            Self::Known(_) | Self::UntilClose => out.extend_from_slice(bytes),
        }
    }

    /// Ends the body.
    pub fn end_body(self, out: &mut Vec<u8>) {
        if self == Self::Chunked {
            write::last_chunk(out);
        }
    }
}
