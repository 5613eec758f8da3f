//! Parses response heads for the load engine and the `fetch` crate. Both are clients, so the parser checks only where the
//! response ends and whether the client can reuse the connection.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use httparse::{Header, Status};
use memchr::memchr2;

use crate::body::Framing;
use crate::framing_headers::{AmbiguousFraming, FramingHeaders};
use crate::limits::HeadLimits;
use crate::{HttpVersion, Parsed};

/// A response head that follows all rules of the parser.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'h, 'b> {
    /// The status, from 100 to 999, because some servers use their own statuses above 599.
    pub status: u16,
    /// The reason phrase. It can be empty, and some servers write it in Latin-1 or UTF-8.
    pub reason: &'b [u8],
    /// The HTTP version of the response.
    pub version: HttpVersion,
    /// The headers as the server sent them, in order.
    pub headers: &'h [Header<'b>],
    /// The framing of the body that follows. It depends on the method of the request.
    pub framing: Framing,
    /// True if the server keeps the connection open. This depends on the version, the `Connection` header and the framing.
    pub keep_alive: bool,
}

/// The reason to refuse a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The status line is not HTTP/1.x, or a header is bad.
    #[error("malformed HTTP response: {0}")]
    Malformed(ResponseFlaw),
    /// The head is larger than the limit.
    #[error("the response head is larger than the limit")]
    TooLarge,
    /// The head has conflicting lengths or an unknown transfer coding.
    #[error("the length of the response body is ambiguous")]
    Framing,
}

/// The rule of HTTP/1.1 that a malformed response breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseFlaw {
    /// The bytes belong to another protocol.
    #[error("it does not begin with HTTP")]
    NotHttp,
    /// The response is HTTP, but its version is neither 1.0 nor 1.1.
    #[error("the version is neither HTTP/1.0 nor HTTP/1.1")]
    Version,
    /// The line is not a version, a status of three digits and a reason.
    #[error("the status line is not a version, a status and a reason")]
    StatusLine,
    /// The status is below 100.
    #[error("the status is below 100")]
    LowStatus,
    /// A header name is not a token, or a space precedes the colon.
    #[error("a header name is not valid")]
    HeaderName,
    /// A header value contains a control character.
    #[error("a header value contains a control character")]
    HeaderValue,
    /// A CR is not followed by LF.
    #[error("a line contains CR without LF")]
    BareCr,
}

impl From<ResponseFlaw> for ResponseError {
    fn from(flaw: ResponseFlaw) -> Self {
        Self::Malformed(flaw)
    }
}

/// Parses one response head from the start of `buf`. `method` is the method of the request.
///
/// Some responses have no body (RFC 9112 section 6.3): responses to HEAD, the statuses 1xx, 204 and 304, and 2xx responses to
/// CONNECT. The parser returns a 1xx head like any other head, and the load engine skips it. A head is too large if it has more
/// headers than `room` can hold.
///
/// The parser is less strict than [`parse_request`](crate::parse_request). Some servers send the following heads, and accepting
/// them puts no credentials at risk:
///
/// - A line can end with LF (RFC 9112 section 2.2).
/// - The reason can be missing or contain bytes outside ASCII (section 4).
/// - A header can be folded into several lines (section 5.2). [`unfold_header_value`] joins these lines.
/// - Chunked coding overrides a length (section 6.3).
///
/// The parser still refuses two different lengths, and a coding other than chunked. A client that guesses the end of such a
/// body could read the next response from the wrong position.
///
/// # Errors
/// The first broken rule.
pub fn parse_response<'h, 'b>(
    buf: &'b [u8],
    method: &str,
    room: &'h mut [MaybeUninit<Header<'b>>],
    limits: &HeadLimits,
) -> Result<Parsed<ResponseHead<'h, 'b>>, ResponseError> {
    let window = &buf[..buf.len().min(limits.max_head_bytes)];
    if window.first().is_some_and(|&first| first != b'H') {
        return Err(ResponseFlaw::NotHttp.into());
    }
    let mut response = httparse::Response::new(&mut []);
    let mut tokenizer = httparse::ParserConfig::default();
    tokenizer.allow_obsolete_multiline_headers_in_responses(true);
    match tokenizer.parse_response_with_uninit_headers(&mut response, window, room) {
        Ok(Status::Complete(length)) => Ok(Parsed::Complete(checked(response, method, window)?, length)),
        Ok(Status::Partial) if window.len() >= limits.max_head_bytes => Err(ResponseError::TooLarge),
        Ok(Status::Partial) => Ok(Parsed::Partial),
        Err(error) => Err(refusal(error)),
    }
}

/// Checks the rules that the tokenizer does not check.
fn checked<'h, 'b>(
    response: httparse::Response<'h, 'b>,
    method: &str,
    head: &'b [u8],
) -> Result<ResponseHead<'h, 'b>, ResponseError> {
    let httparse::Response { code: Some(status @ 100..=999), reason, version: Some(minor), headers } =
        response
    else {
        return Err(ResponseFlaw::LowStatus.into());
    };
    let version = if minor == 0 { HttpVersion::Http10 } else { HttpVersion::Http11 };
    let fields = FramingHeaders::read(headers)?;
    let stated = fields.response_framing(version)?;
    let framing =
        if has_body(method, status) { stated.unwrap_or(Framing::UntilClose) } else { Framing::None };
    // The bytes after a 101 response are not HTTP (RFC 9110 section 15.2.2).
    let keep_alive = framing != Framing::UntilClose && status != 101 && fields.keep_alive(version);
    let reason = reason.filter(|reason| !reason.is_empty()).map_or_else(|| raw_reason(head), str::as_bytes);
    Ok(ResponseHead { status, reason, version, headers, framing, keep_alive })
}

/// Returns a header value in which a space replaces each fold (RFC 9112 section 5.2).
#[must_use]
pub fn unfold_header_value(value: &[u8]) -> Cow<'_, [u8]> {
    if memchr2(b'\r', b'\n', value).is_none() {
        return value.into();
    }
    let mut lines = value.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut unfolded = lines.next().unwrap_or_default().to_vec();
    for line in lines {
        unfolded.push(b' ');
        unfolded.extend_from_slice(line);
    }
    unfolded.into()
}

/// Returns the reason phrase of a complete head. The tokenizer returns an empty phrase if the phrase has bytes outside ASCII.
#[cold]
fn raw_reason(head: &[u8]) -> &[u8] {
    let rest = head.get("HTTP/1.1 200".len()..).unwrap_or_default();
    let line = &rest[..memchr2(b'\r', b'\n', rest).unwrap_or(rest.len())];
    line.strip_prefix(b" ").unwrap_or(line)
}

/// True if the response has a body (RFC 9112 section 6.3, items 1 and 2). Method names are case-sensitive (RFC 9110 section 9.1).
fn has_body(method: &str, status: u16) -> bool {
    !matches!((method, status), ("HEAD", _) | (_, 100..=199 | 204 | 304) | ("CONNECT", 200..=299))
}

impl From<AmbiguousFraming> for ResponseError {
    fn from(_: AmbiguousFraming) -> Self {
        Self::Framing
    }
}

/// Maps a tokenizer error to the broken rule.
#[cold]
fn refusal(error: httparse::Error) -> ResponseError {
    use httparse::Error;
    match error {
        Error::TooManyHeaders => ResponseError::TooLarge,
        Error::Version => ResponseFlaw::Version.into(),
        Error::Status | Error::Token => ResponseFlaw::StatusLine.into(),
        Error::HeaderName => ResponseFlaw::HeaderName.into(),
        Error::HeaderValue => ResponseFlaw::HeaderValue.into(),
        Error::NewLine => ResponseFlaw::BareCr.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::header_buffer;

    /// The values that a test compares: (status, reason, framing, keep-alive, consumed bytes).
    type Seen = (u16, String, Framing, bool, usize);

    fn answer_to(method: &str, input: &[u8]) -> Result<Option<Seen>, ResponseError> {
        let mut room = header_buffer();
        Ok(match parse_response(input, method, &mut room, &HeadLimits::default())? {
            Parsed::Partial => None,
            Parsed::Complete(head, taken) => Some((
                head.status,
                String::from_utf8_lossy(head.reason).into_owned(),
                head.framing,
                head.keep_alive,
                taken,
            )),
        })
    }

    fn parse(input: &str) -> Result<Option<Seen>, ResponseError> {
        answer_to("GET", input.as_bytes())
    }

    /// Returns the framing and keep-alive of a head with this status and these header lines.
    fn ends(method: &str, status: &str, lines: &str) -> Result<(Framing, bool), ResponseError> {
        let head = format!("HTTP/1.1 {status} x\r\n{lines}\r\n");
        answer_to(method, head.as_bytes())
            .map(|seen| seen.map(|seen| (seen.2, seen.3)).expect("a whole head"))
    }

    #[test]
    fn reads_a_whole_head_and_takes_exactly_it() {
        let seen = parse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP");
        assert_eq!(seen, Ok(Some((200, "OK".to_owned(), Framing::Length(2), true, 38))));
        assert_eq!(parse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r"), Ok(None));
        assert_eq!(parse(""), Ok(None));
    }

    #[test]
    fn a_reason_may_be_missing_or_hold_bytes_outside_ascii() {
        let reason = |line: &[u8]| {
            let head = [line, b"\nX: a\r\n\r\n"].concat();
            answer_to("GET", &head).expect("valid").expect("whole").1
        };
        assert_eq!(reason(b"HTTP/1.1 200"), "");
        assert_eq!(reason(b"HTTP/1.1 200\r"), "");
        assert_eq!(reason(b"HTTP/1.1 200 \r"), "");
        assert_eq!(reason(b"HTTP/1.1 404 Not Found\r"), "Not Found");
        assert_eq!(reason(b"HTTP/1.1 404 Introuv\xe9 l\xe0"), "Introuv\u{fffd} l\u{fffd}");
        assert_eq!(reason("HTTP/1.1 404 trouvé\r".as_bytes()), "trouvé");
    }

    #[test]
    fn a_reply_that_has_no_body_ends_with_its_head() {
        let length = "Content-Length: 5\r\n";
        let none = Ok((Framing::None, true));
        assert_eq!(ends("HEAD", "200", length), none);
        assert_eq!(ends("GET", "100", ""), none);
        assert_eq!(ends("GET", "103", "Link: a\r\n"), none);
        assert_eq!(ends("GET", "101", "Upgrade: x\r\n"), Ok((Framing::None, false)));
        assert_eq!(ends("GET", "204", ""), none);
        assert_eq!(ends("GET", "304", length), none);
        assert_eq!(ends("CONNECT", "200", length), none);
        assert_eq!(ends("CONNECT", "403", length), Ok((Framing::Length(5), true)));
    }

    #[test]
    fn a_body_without_a_stated_end_lasts_until_close() {
        assert_eq!(ends("GET", "200", "Connection: keep-alive\r\n"), Ok((Framing::UntilClose, false)));
    }

    #[test]
    fn keep_alive_follows_version_connection_and_framing() {
        let chunked = "Transfer-Encoding: chunked\r\n";
        assert_eq!(ends("GET", "200", chunked), Ok((Framing::Chunked, true)));
        let close = "Connection: close\r\nContent-Length: 1\r\n";
        assert_eq!(ends("GET", "200", close), Ok((Framing::Length(1), false)));
        let old = |lines: &str| parse(&format!("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n{lines}\r\n"));
        assert!(!old("").expect("valid").expect("whole").3);
        assert!(old("Connection: keep-alive\r\n").expect("valid").expect("whole").3);
    }

    #[test]
    fn a_length_that_must_be_guessed_is_refused() {
        for lines in [
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: +1\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
        ] {
            assert_eq!(ends("GET", "200", lines), Err(ResponseError::Framing), "{lines:?}");
        }
        let chunked_1_0 = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(parse(chunked_1_0), Err(ResponseError::Framing));
    }

    #[test]
    fn what_is_no_http_1_response_is_malformed() {
        use ResponseFlaw::{HeaderName, HeaderValue, LowStatus, NotHttp, StatusLine, Version};
        for (input, flaw) in [
            ("\r\n", NotHttp),
            ("ICY 200 OK\r\n", NotHttp),
            ("HTTP/2 200\r\n", Version),
            ("HTTP/1.1 099 x\r\n\r\n", LowStatus),
            ("HTTP/1.1 1000 x\r\n\r\n", StatusLine),
            ("HTTP/1.1 20 x\r\n", StatusLine),
            ("HTTP/1.1  200 x\r\n", StatusLine),
            ("HTTP/1.1 200 x\0\r\n", StatusLine),
            ("HTTP/1.1 200 x\r\n X: a\r\n\r\n", HeaderName),
            ("HTTP/1.1 200 x\r\nX : a\r\n\r\n", HeaderName),
            ("HTTP/1.1 200 x\r\nX: a\rb\r\n\r\n", HeaderValue),
        ] {
            assert_eq!(parse(input), Err(ResponseError::Malformed(flaw)), "{input:?}");
        }
    }

    /// Regression: the parser refused a response with a folded header. RFC 9112 section 5.2 requires a client to read a fold as
    /// a space.
    #[test]
    fn a_folded_header_is_one_line_with_spaces() {
        let mut room = header_buffer();
        let head = b"HTTP/1.1 200 OK\r\nX: a \r\n\t b\n c\r\nContent-Length: 2\r\n\r\n{}";
        let Ok(Parsed::Complete(head, 53)) = parse_response(head, "GET", &mut room, &HeadLimits::default())
        else {
            panic!("a whole head")
        };
        assert_eq!(head.framing, Framing::Length(2));
        assert_eq!(*unfold_header_value(head.headers[0].value), *b"a b c");
        assert_eq!(*unfold_header_value(b"a  b"), *b"a  b");
    }

    #[test]
    fn a_folded_length_or_coding_is_refused_and_not_guessed() {
        for lines in ["Content-Length: 1\r\n 2\r\n", "Transfer-Encoding: chunked\r\n , gzip\r\n"] {
            assert_eq!(ends("GET", "200", lines), Err(ResponseError::Framing), "{lines:?}");
        }
    }

    /// Regression: the parser refused a length beside chunked coding, which RFC 9112 section 6.3, item 3 allows in a response.
    #[test]
    fn chunked_coding_overrides_a_length_beside_it() {
        for lines in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        ] {
            assert_eq!(ends("GET", "200", lines), Ok((Framing::Chunked, true)), "{lines:?}");
        }
    }

    #[test]
    fn lf_alone_may_end_a_line_of_a_response() {
        assert_eq!(parse("HTTP/1.1 200 OK\nContent-Length: 2\n\n{}").expect("valid").expect("whole").4, 35);
    }

    #[test]
    fn a_head_over_the_limit_is_refused_before_it_ends() {
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(HeadLimits::default().max_head_bytes));
        assert_eq!(parse(&endless), Err(ResponseError::TooLarge));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: a\r\n".repeat(65));
        assert_eq!(parse(&many), Err(ResponseError::TooLarge));
    }
}
