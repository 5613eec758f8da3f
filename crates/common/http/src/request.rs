//! Parses request heads. The agent parses every request, except a request whose bytes it has recently parsed for the same client.

use std::mem::MaybeUninit;

use httparse::{Header, Status};
use memchr::{memchr, memchr_iter, memchr2, memchr3, memmem};

use crate::body::Framing;
use crate::framing_headers::{AmbiguousFraming, FramingHeaders};
use crate::limits::{HeadLimits, MAX_HEADERS};
use crate::{HttpVersion, Parsed, bytes};

/// The space for the headers of one head. The space is on the stack of the function that parses the head.
pub type HeaderBuffer<'b> = [MaybeUninit<Header<'b>>; MAX_HEADERS];

/// Returns an empty [`HeaderBuffer`].
pub const fn header_buffer<'b>() -> HeaderBuffer<'b> {
    [const { MaybeUninit::uninit() }; MAX_HEADERS]
}

/// A request head that follows all rules of the parser.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'h, 'b> {
    /// The method as the client sent it. It is a token.
    pub method: &'b str,
    /// The target as the client sent it, in origin form (`/path?query`) or absolute form. It is visible ASCII.
    pub target: &'b str,
    /// The HTTP version of the request.
    pub version: HttpVersion,
    /// The headers as the client sent them, in order.
    pub headers: &'h [Header<'b>],
    /// The framing of the body that follows.
    pub framing: Framing,
    /// True if the client wants to keep the connection open. This depends on the version and the `Connection` header.
    pub keep_alive: bool,
}

impl<'b> RequestHead<'_, 'b> {
    /// Returns the value of the first header with this name, in any letter case.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }
}

/// The reason to refuse a request head. The connection then closes, because the bytes that follow cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The head is not valid HTTP/1.x. [`RequestFlaw`] names the broken rule.
    #[error("the request is not valid HTTP/1.1: {0}")]
    Malformed(RequestFlaw),
    /// The head exceeds [`HeadLimits::max_head_bytes`] or has too many headers.
    #[error("the request head is larger than this server accepts")]
    TooLarge,
    /// The target exceeds [`HeadLimits::max_target_bytes`].
    #[error("the request target is longer than this server accepts")]
    TargetTooLong,
    /// The request line has only a method and a target, like in HTTP/0.9. RFC 9112 section 3 requires a version, so such a line
    /// has this separate error.
    #[error("the request line has no HTTP version")]
    NoVersion,
    /// The request line is valid except for its version, such as HTTP/3, or HTTP/2 with prior knowledge.
    #[error("only HTTP/1.0 and HTTP/1.1 are supported")]
    Version,
    /// The head has two different lengths, a length and a transfer coding, or a transfer coding other than chunked.
    #[error("the length of the request body is ambiguous")]
    Framing,
}

/// The rule of HTTP/1.1 that a malformed request breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFlaw {
    /// A space precedes the method.
    #[error("it begins with a space")]
    LeadingSpace,
    /// The first word is not a token. Usually the client speaks another protocol.
    #[error("it does not begin with a method")]
    NoMethod,
    /// The line is not a method, a target and a version, separated by single spaces.
    #[error("the request line is not a method, a target and a version")]
    RequestLine,
    /// The target contains a byte outside visible ASCII, a fragment or a backslash.
    #[error("the target contains a character that is not allowed")]
    TargetCharacter,
    /// The target is neither in origin form nor in absolute form.
    #[error("the target is neither a path nor an http URL")]
    TargetForm,
    /// A line ends with LF without a preceding CR.
    #[error("a line ends with LF instead of CRLF")]
    BareLf,
    /// A CR is not followed by LF.
    #[error("a line contains CR without LF")]
    BareCr,
    /// A header name is not a token, a space precedes the colon, or the line is folded.
    #[error("a header name is not valid, or a header line is folded")]
    HeaderName,
    /// A header value contains a control character.
    #[error("a header value contains a control character")]
    HeaderValue,
    /// An HTTP/1.1 request has no `Host` header.
    #[error("the Host header is missing")]
    NoHost,
    /// The `Host` header contains bytes that a host cannot have.
    #[error("the Host header is not a host name")]
    BadHost,
    /// The request has more than one `Host` header.
    #[error("there is more than one Host header")]
    ManyHosts,
}

impl From<RequestFlaw> for RequestError {
    fn from(flaw: RequestFlaw) -> Self {
        Self::Malformed(flaw)
    }
}

impl RequestError {
    /// Returns the HTTP status of the refusal (RFC 9110 section 15, RFC 6585 section 5).
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed(_) | Self::NoVersion | Self::Framing => 400,
            Self::TooLarge => 431,
            Self::TargetTooLong => 414,
            Self::Version => 505,
        }
    }
}

/// Parses one request head from the start of `buf`. The parser skips one empty line before the head (RFC 9112 section 2.2).
///
/// Every line must end with CRLF. RFC 9112 section 2.2 would allow a bare LF. But then this parser would read two headers where
/// a server that requires CRLF reads one header. Such a difference allows request smuggling. For the same reason the parser
/// refuses a space before a colon, folded lines and control characters.
///
/// If a client sends its head in single bytes, each byte costs one vectorised search. The parser runs only after the end of a
/// line, and the number of lines is limited.
///
/// # Errors
/// The first broken rule. The parser does not wait for the rest of a head that already breaks a rule. Bytes that are not a method
/// fail immediately; every other broken rule fails at the end of its line.
pub fn parse_request<'h, 'b>(
    buf: &'b [u8],
    room: &'h mut HeaderBuffer<'b>,
    limits: &HeadLimits,
) -> Result<Parsed<RequestHead<'h, 'b>>, RequestError> {
    let rest = after_empty_line(buf);
    let window = &rest[..rest.len().min(limits.max_head_bytes)];
    starts_with_method(window)?;
    if !is_worth_parsing(window) {
        return unfinished(window, limits);
    }
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(window, room) {
        Ok(Status::Complete(length)) => {
            let head = checked(request, &window[..length], limits)?;
            Ok(Parsed::Complete(head, buf.len() - rest.len() + length))
        }
        Ok(Status::Partial) => unfinished(window, limits),
        Err(error) => Err(refusal(window, error, limits)),
    }
}

/// Skips one CRLF. A lone CR can be the start of a CRLF, so the function then returns an empty slice.
fn after_empty_line(buf: &[u8]) -> &[u8] {
    match buf {
        [b'\r'] => &[],
        [b'\r', b'\n', rest @ ..] => rest,
        _ => buf,
    }
}

/// Refuses other protocols by their first bytes, for example a TLS ClientHello, a second empty line or random bytes.
fn starts_with_method(window: &[u8]) -> Result<(), RequestError> {
    let method = window.iter().take(METHOD_PROBE).take_while(|&&byte| byte != b' ');
    match window.first() {
        Some(b' ') => Err(RequestFlaw::LeadingSpace.into()),
        _ if method.copied().all(bytes::is_token_byte) => Ok(()),
        _ => Err(RequestFlaw::NoMethod.into()),
    }
}

/// The number of bytes that the parser checks as a method. The longest registered method (IANA), `UPDATEREDIRECTREF`, has 17
/// letters.
const METHOD_PROBE: usize = 20;

/// True if a line has just ended or the whole head is in the buffer. Until then, [`unfinished`] checks the limits and the line
/// ends. Without this function, a head that arrives in single bytes would be parsed once per byte.
fn is_worth_parsing(window: &[u8]) -> bool {
    window.ends_with(b"\n") || memmem::find(window, b"\r\n\r\n").is_some()
}

/// Handles an incomplete head: asks for more bytes, unless the head already breaks a limit or the rule for line ends.
fn unfinished<T>(window: &[u8], limits: &HeadLimits) -> Result<Parsed<T>, RequestError> {
    if target_so_far(window) > limits.max_target_bytes {
        return Err(RequestError::TargetTooLong);
    }
    for (line, end) in memchr_iter(b'\n', window).enumerate() {
        if !window[..end].ends_with(b"\r") {
            return Err(RequestFlaw::BareLf.into());
        }
        if line > MAX_HEADERS {
            return Err(RequestError::TooLarge);
        }
    }
    if window.len() >= limits.max_head_bytes { Err(RequestError::TooLarge) } else { Ok(Parsed::Partial) }
}

/// Returns the length of the part of the target that has arrived.
fn target_so_far(window: &[u8]) -> usize {
    let Some(space) = memchr(b' ', window) else { return 0 };
    let from_target = &window[space + 1..];
    memchr3(b' ', b'\r', b'\n', from_target).unwrap_or(from_target.len())
}

/// Checks the rules that the tokenizer does not check.
fn checked<'h, 'b>(
    request: httparse::Request<'h, 'b>,
    head: &[u8],
    limits: &HeadLimits,
) -> Result<RequestHead<'h, 'b>, RequestError> {
    let httparse::Request { method: Some(method), path: Some(target), version: Some(minor), headers } =
        request
    else {
        return Err(RequestFlaw::RequestLine.into());
    };
    let version = if minor == 0 { HttpVersion::Http10 } else { HttpVersion::Http11 };
    check_line_ends(head, headers.len())?;
    check_target(target, limits)?;
    let fields = FramingHeaders::read(headers)?;
    check_host(&fields, version)?;
    let framing = fields.framing(version)?.unwrap_or(Framing::None);
    let keep_alive = fields.keep_alive(version);
    Ok(RequestHead { method, target, version, headers, framing, keep_alive })
}

/// Checks that every line ends with CRLF. The tokenizer accepts LF as a line end, and CR only before LF. So every line ends
/// with CRLF if the number of CRs equals the number of lines: the request line, the headers and the empty line.
fn check_line_ends(head: &[u8], headers: usize) -> Result<(), RequestError> {
    if memchr_iter(b'\r', head).count() == headers + 2 { Ok(()) } else { Err(RequestFlaw::BareLf.into()) }
}

/// Checks that the target is a path or an `http` or `https` URL in visible ASCII. The function refuses the forms `*` and
/// `host:port` (CONNECT). It also refuses a fragment or a backslash, because servers derive different paths from such a target
/// (RFC 9112 section 3.2).
fn check_target(target: &str, limits: &HeadLimits) -> Result<(), RequestError> {
    if target.len() > limits.max_target_bytes {
        return Err(RequestError::TargetTooLong);
    }
    if !target.is_ascii() || memchr2(b'#', b'\\', target.as_bytes()).is_some() {
        return Err(RequestFlaw::TargetCharacter.into());
    }
    if target.starts_with('/') || is_absolute_form(target) {
        return Ok(());
    }
    Err(RequestFlaw::TargetForm.into())
}

fn is_absolute_form(target: &str) -> bool {
    let Some((scheme, rest)) = target.split_once("://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or("");
    (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
        && !authority.is_empty()
        && authority.bytes().all(bytes::is_host_byte)
}

/// Checks the `Host` headers: exactly one in HTTP/1.1, at most one in HTTP/1.0, and only valid bytes (RFC 9112 section 3.2).
fn check_host(fields: &FramingHeaders<'_>, version: HttpVersion) -> Result<(), RequestError> {
    match (fields.host_count, version) {
        (0, HttpVersion::Http11) => Err(RequestFlaw::NoHost.into()),
        (0 | 1, _) if fields.host.iter().copied().all(bytes::is_host_byte) => Ok(()),
        (0 | 1, _) => Err(RequestFlaw::BadHost.into()),
        _ => Err(RequestFlaw::ManyHosts.into()),
    }
}

impl From<AmbiguousFraming> for RequestError {
    fn from(_: AmbiguousFraming) -> Self {
        Self::Framing
    }
}

/// Maps a tokenizer error to the broken rule. This function runs only for bad requests.
#[cold]
fn refusal(window: &[u8], error: httparse::Error, limits: &HeadLimits) -> RequestError {
    use httparse::Error;
    if target_so_far(window) > limits.max_target_bytes {
        return RequestError::TargetTooLong;
    }
    match error {
        Error::TooManyHeaders => RequestError::TooLarge,
        Error::HeaderName => RequestFlaw::HeaderName.into(),
        Error::HeaderValue => RequestFlaw::HeaderValue.into(),
        Error::NewLine => RequestFlaw::BareCr.into(),
        Error::Token | Error::Version | Error::Status => line_refusal(window),
    }
}

/// Finds the fault of a request line. A line with two words has no version, like in HTTP/0.9. Only a line that is valid except
/// for its version fails with the version error (RFC 9110 section 15.6.6), whose status is 505. All other faults are client
/// errors and must not count as server errors.
fn line_refusal(window: &[u8]) -> RequestError {
    let line = window.split(|&byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or(window);
    let mut words = line.split(|&byte| byte == b' ').skip(1);
    let (target, version) = (words.next().unwrap_or_default(), words.next());
    if target.is_empty() || words.next().is_some() {
        return RequestFlaw::RequestLine.into();
    }
    if !target.iter().all(u8::is_ascii_graphic) {
        return RequestFlaw::TargetCharacter.into();
    }
    match version {
        None => RequestError::NoVersion,
        Some(version) if is_other_version(version) => RequestError::Version,
        Some(_) => RequestFlaw::RequestLine.into(),
    }
}

/// True for a valid version other than 1.0 and 1.1, such as `HTTP/2.0` or `HTTP/2` (RFC 9112 section 2.3).
fn is_other_version(version: &[u8]) -> bool {
    match version.strip_prefix(b"HTTP/") {
        Some(b"1.0" | b"1.1") => false,
        Some([b'0'..=b'9'] | [b'0'..=b'9', b'.', b'0'..=b'9']) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that a test compares: (method, target, version, framing, keep-alive, consumed bytes).
    type Seen = (String, String, HttpVersion, Framing, bool, usize);

    fn parse_with(input: &[u8], limits: &HeadLimits) -> Result<Option<Seen>, RequestError> {
        let mut room = header_buffer();
        Ok(match parse_request(input, &mut room, limits)? {
            Parsed::Partial => None,
            Parsed::Complete(head, taken) => Some((
                head.method.to_owned(),
                head.target.to_owned(),
                head.version,
                head.framing,
                head.keep_alive,
                taken,
            )),
        })
    }

    fn parse(input: &[u8]) -> Result<Option<Seen>, RequestError> {
        parse_with(input, &HeadLimits::default())
    }

    /// Parses a request with these header lines after `Host`.
    fn with(lines: &str) -> Result<Option<Seen>, RequestError> {
        parse(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes())
    }

    fn framing(lines: &str) -> Result<Framing, RequestError> {
        with(lines).map(|seen| seen.expect("a whole head").3)
    }

    fn keeps(version: &str, lines: &str) -> bool {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        parse(head.as_bytes()).expect("valid").expect("whole").4
    }

    fn is_malformed(result: &Result<Option<Seen>, RequestError>) -> bool {
        matches!(result, Err(RequestError::Malformed(_)))
    }

    const GOOGLE_AUTH: &[u8] = b"GET /computeMetadata/v1/instance/service-accounts/default/token HTTP/1.1\r\n\
        Host: metadata.google.internal\r\nUser-Agent: python-requests/2.32.3\r\nAccept-Encoding: gzip, deflate\r\n\
        Accept: */*\r\nConnection: keep-alive\r\nmetadata-flavor: Google\r\n\
        x-goog-api-client: gl-python/3.12.3 auth/2.35.0 auth-request-type/at cred-type/mds\r\n\r\n";

    #[test]
    fn reads_a_whole_head_and_takes_exactly_it() {
        let mut input = GOOGLE_AUTH.to_vec();
        input.extend_from_slice(b"GET /next");
        let mut room = header_buffer();
        let Ok(Parsed::Complete(head, taken)) = parse_request(&input, &mut room, &HeadLimits::default())
        else {
            panic!("refused")
        };
        assert_eq!(taken, GOOGLE_AUTH.len());
        assert_eq!(head.target, "/computeMetadata/v1/instance/service-accounts/default/token");
        assert_eq!(head.headers.len(), 7);
        assert_eq!(head.header("Metadata-Flavor"), Some(&b"Google"[..]));
        assert!(head.keep_alive);
    }

    #[test]
    fn one_empty_line_before_the_request_is_skipped_and_a_second_is_refused() {
        let taken = parse(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("valid").expect("whole").5;
        assert_eq!(taken, 29);
        assert_eq!(parse(b"\r"), Ok(None));
        assert_eq!(parse(b"\r\n"), Ok(None));
        assert!(is_malformed(&parse(b"\r\n\r")));
        assert!(is_malformed(&parse(b"\n")));
    }

    #[test]
    fn other_protocols_are_refused_by_their_first_bytes() {
        assert!(is_malformed(&parse(&[0x16, 0x03, 0x01])), "TLS ClientHello");
        assert!(is_malformed(&parse(&[0, 0, 0, 8])), "PostgreSQL");
        assert!(is_malformed(&parse(b" GET /")), "leading space");
        assert!(is_malformed(&parse(b"\tGET /")), "leading tab");
        assert!(is_malformed(&parse(b"SSH-2.0-OpenSSH_9.6\r\n")), "SSH");
        assert!(is_malformed(&parse(b"*1\r\n$4\r\nPING\r\n")), "Redis");
    }

    #[test]
    fn other_versions_of_http_get_a_version_refusal() {
        assert_eq!(parse(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Err(RequestError::Version), "HTTP/2 preface");
        assert_eq!(parse(b"GET / HTTP/1.2\r\n"), Err(RequestError::Version));
        assert_eq!(parse(b"GET / HTTP/3\r\n"), Err(RequestError::Version));
        assert_eq!(RequestError::Version.status(), 505);
    }

    /// Regression: a line without a version got status 505, as if the client had named an unsupported version.
    #[test]
    fn a_request_line_without_a_version_is_the_clients_mistake() {
        for line in ["GET /\r\n", "GET /\n", "GET /a?b\r\nHost: a\r\n\r\n", "GET HTTP/1.1\r\n", "get *\r\n"] {
            assert_eq!(parse(line.as_bytes()), Err(RequestError::NoVersion), "{line:?}");
        }
        assert_eq!(RequestError::NoVersion.status(), 400);
    }

    /// Regression: a line with another fault than its version got status 505, which is a server error. So any pod could cause
    /// any number of server errors.
    #[test]
    fn a_version_that_is_spoken_here_is_never_what_is_refused() {
        for (line, flaw) in [
            (&b"GET /a\tb HTTP/1.1\r\n"[..], RequestFlaw::TargetCharacter),
            (b"GET \t/ HTTP/1.1\r\n", RequestFlaw::TargetCharacter),
            (b"GET /\xff HTTP/1.1\r\n", RequestFlaw::TargetCharacter),
            (b"GET /\x01 HTTP/1.0\r\n", RequestFlaw::TargetCharacter),
            (b"GET /\xff HTTP/2.0\r\n", RequestFlaw::TargetCharacter),
            (b"GET  HTTP/1.1\r\n", RequestFlaw::RequestLine),
            (b"GET  HTTP/2.0\r\n", RequestFlaw::RequestLine),
            (b"GET\t / HTTP/1.1\r\n", RequestFlaw::NoMethod),
            (b"GET /\tHTTP/1.1\r\n", RequestFlaw::TargetCharacter),
        ] {
            let whole = [line, b"Host: a\r\n\r\n"].concat();
            for input in [line, &whole] {
                let refused = parse(input);
                assert_eq!(refused, Err(flaw.into()), "{:?}", String::from_utf8_lossy(input));
                assert_eq!(refused.unwrap_err().status(), 400);
            }
        }
    }

    #[test]
    fn broken_request_lines_are_malformed() {
        for line in [
            "GET  / HTTP/1.1",
            "GET / HTTP/1.1 ",
            "GET / a HTTP/1.1",
            "GET\t/ HTTP/1.1",
            "GET / http/1.1",
            "GET / HTTP/1.1\0",
            "GET / HTTP/1.1x",
            "GET /\0",
            "GET ",
        ] {
            assert!(is_malformed(&parse(format!("{line}\r\n").as_bytes())), "{line}");
        }
    }

    #[test]
    fn a_malformed_request_is_told_by_the_rule_that_it_breaks() {
        use RequestFlaw as F;
        for (input, flaw) in [
            (" GET / HTTP/1.1\r\n", F::LeadingSpace),
            ("\u{16}\u{3}\u{1}", F::NoMethod),
            ("GET / a HTTP/1.1\r\n", F::RequestLine),
            ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", F::TargetCharacter),
            ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", F::TargetForm),
            ("GET / HTTP/1.1\r\nHost: a\n", F::BareLf),
            ("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", F::BareCr),
            ("GET / HTTP/1.1\r\nX : a\r\n", F::HeaderName),
            ("GET / HTTP/1.1\r\nX: a\0\r\n", F::HeaderValue),
            ("GET / HTTP/1.1\r\n\r\n", F::NoHost),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", F::BadHost),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", F::ManyHosts),
        ] {
            assert_eq!(parse(input.as_bytes()), Err(RequestError::Malformed(flaw)), "{input:?}");
        }
    }

    #[test]
    fn lf_without_cr_is_refused_as_soon_as_it_is_seen() {
        assert!(is_malformed(&parse(b"GET / HTTP/1.1\n")));
        assert!(is_malformed(&parse(b"GET / HTTP/1.1\r\nHost: a\n")));
        assert!(is_malformed(&parse(b"GET / HTTP/1.1\r\nHost: a\nX")));
        assert!(is_malformed(&parse(b"GET / HTTP/1.1\r\nHost: a\n\n")));
        assert!(is_malformed(&parse(b"GET / HTTP/1.1\r\nHost: a\r\n\n")));
    }

    #[test]
    fn a_line_is_not_parsed_before_it_ends() {
        assert_eq!(
            parse(b"GET / HTTP/1.1\r\nX : a"),
            Ok(None),
            "or a head byte by byte costs a parse per byte"
        );
        assert!(is_malformed(&parse(b"GET / HTTP/1.1\r\nX : a\r\n")));
        assert!(is_malformed(&parse(b"GET / HTTP/1.1\r\nX : a\r\n\r\nbody")));
    }

    #[test]
    fn cr_without_lf_is_refused() {
        assert!(is_malformed(&with("X: a\rb\r\n")));
        assert!(is_malformed(&with("X: a\r\r\n")));
        assert!(is_malformed(&with("\r")));
        assert!(is_malformed(&parse(b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n")));
    }

    #[test]
    fn headers_that_two_readers_split_differently_are_refused() {
        for lines in [
            "X : a\r\n",
            "X\t: a\r\n",
            " X: a\r\n",
            "X: a\r\n b\r\n",
            "X: a\r\n\tb\r\n",
            ": a\r\n",
            "X\r\n",
            "X: a\0b\r\n",
            "X: a\x0bb\r\n",
            "X: a\x7fb\r\n",
            "X\0: a\r\n",
            "X\u{e9}: a\r\n",
        ] {
            assert!(is_malformed(&with(lines)), "{lines:?}");
        }
    }

    #[test]
    fn a_space_before_the_first_header_is_refused() {
        assert!(is_malformed(&parse(b"GET / HTTP/1.1\r\n Host: a\r\n\r\n")));
    }

    #[test]
    fn a_header_value_may_hold_tab_and_obs_text() {
        assert_eq!(framing("X: a\tb\u{e9}\r\nEmpty:\r\n"), Ok(Framing::None));
    }

    #[test]
    fn one_length_is_a_length() {
        assert_eq!(framing("Content-Length: 5\r\n"), Ok(Framing::Length(5)));
        assert_eq!(framing("content-length:0\r\n"), Ok(Framing::Length(0)));
        assert_eq!(framing("Content-Length: 5\r\nContent-Length: 5\r\n"), Ok(Framing::Length(5)));
        assert_eq!(framing("Content-Length: 18446744073709551615\r\n"), Ok(Framing::Length(u64::MAX)));
    }

    #[test]
    fn a_length_that_readers_take_differently_is_refused() {
        for value in
            ["+5", "-5", "5,5", "5, 5", "0x5", "", "5 5", "5a", "5.0", "\u{665}", "18446744073709551616"]
        {
            assert_eq!(
                framing(&format!("Content-Length: {value}\r\n")),
                Err(RequestError::Framing),
                "{value:?}"
            );
        }
        assert_eq!(framing("Content-Length: 5\r\nContent-Length: 6\r\n"), Err(RequestError::Framing));
    }

    #[test]
    fn only_chunked_is_a_transfer_coding() {
        assert_eq!(framing("Transfer-Encoding: Chunked\r\n"), Ok(Framing::Chunked));
        for value in ["gzip", "gzip, chunked", "chunked, chunked", "identity", "xchunked", "chunked;q=1", ""]
        {
            let lines = format!("Transfer-Encoding: {value}\r\n");
            assert_eq!(framing(&lines), Err(RequestError::Framing), "{value:?}");
        }
        let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(framing(twice), Err(RequestError::Framing));
    }

    #[test]
    fn a_length_beside_a_transfer_coding_is_refused() {
        let lengths = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(framing(lengths), Err(RequestError::Framing));
        let codings = "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n";
        assert_eq!(framing(codings), Err(RequestError::Framing));
    }

    #[test]
    fn a_transfer_coding_in_http_1_0_is_refused() {
        let head = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(parse(head), Err(RequestError::Framing));
    }

    #[test]
    fn http_1_1_needs_exactly_one_host() {
        assert!(is_malformed(&parse(b"GET / HTTP/1.1\r\n\r\n")));
        assert!(is_malformed(&with("host: a\r\n")));
        assert!(parse(b"GET / HTTP/1.1\r\nHost:\r\n\r\n").is_ok(), "an empty Host is a Host");
    }

    #[test]
    fn http_1_0_needs_no_host_but_takes_no_two() {
        assert!(parse(b"GET / HTTP/1.0\r\n\r\n").is_ok());
        assert!(is_malformed(&parse(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n")));
    }

    #[test]
    fn a_host_with_a_path_a_user_or_a_list_is_refused() {
        for host in ["a/b", "a@b", "a b", "a\\b", "a#b", "a?b", "h\u{e9}"] {
            let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert!(is_malformed(&parse(head.as_bytes())), "{host}");
        }
        for host in ["metadata.google.internal:80", "169.254.169.254", "[fd20:ce::254]:80"] {
            let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert!(parse(head.as_bytes()).is_ok(), "{host}");
        }
    }

    #[test]
    fn targets_are_paths_or_http_urls() {
        for target in ["/", "/a?b=c", "//a", "http://a/b", "HTTP://a:80", "https://a?b", "/a|b{c}"] {
            let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(parse(head.as_bytes()).is_ok(), "{target}");
        }
        for target in [
            "*",
            "a:443",
            "a",
            "http:///a",
            "ftp://a/",
            "http://u@a/",
            "http://a\\b/",
            "/a#b",
            "/a\\b",
            "/\u{e9}",
        ] {
            let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(is_malformed(&parse(head.as_bytes())), "{target}");
        }
    }

    #[test]
    fn keep_alive_follows_version_and_connection() {
        assert!(keeps("1.1", ""));
        assert!(!keeps("1.1", "Connection: close\r\n"));
        assert!(!keeps("1.1", "Connection: Upgrade,\tClose \r\n"));
        assert!(!keeps("1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
        assert!(keeps("1.1", "Connection: closed\r\n"));
        assert!(keeps("1.1", "User-Agent: close\r\n"), "a name as long as Connection");
        assert!(!keeps("1.0", ""));
        assert!(keeps("1.0", "Connection: Keep-Alive\r\n"));
        assert!(!keeps("1.0", "Connection: keep-alive, close\r\n"));
    }

    #[test]
    fn a_head_of_exactly_the_limit_passes_and_one_byte_more_does_not() {
        let limits = HeadLimits { max_head_bytes: GOOGLE_AUTH.len(), ..HeadLimits::default() };
        assert!(matches!(parse_with(GOOGLE_AUTH, &limits), Ok(Some(_))));
        let limits = HeadLimits { max_head_bytes: GOOGLE_AUTH.len() - 1, ..HeadLimits::default() };
        assert_eq!(parse_with(GOOGLE_AUTH, &limits), Err(RequestError::TooLarge));
        let unfinished = &GOOGLE_AUTH[..GOOGLE_AUTH.len() - 1];
        assert_eq!(
            parse_with(unfinished, &limits),
            Err(RequestError::TooLarge),
            "the end can only come too late"
        );
    }

    #[test]
    fn a_target_over_the_limit_is_refused_before_it_ends() {
        let limits = HeadLimits { max_target_bytes: 4, ..HeadLimits::default() };
        assert!(matches!(parse_with(b"GET /abc HTTP/1.1\r\nHost: a\r\n\r\n", &limits), Ok(Some(_))));
        assert_eq!(parse_with(b"GET /abc", &limits), Ok(None));
        assert_eq!(parse_with(b"GET /abcd", &limits), Err(RequestError::TargetTooLong));
        let whole = b"GET /abcd HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(parse_with(whole, &limits), Err(RequestError::TargetTooLong));
        assert_eq!(parse_with(b"GET /abcd\r\n", &limits), Err(RequestError::TargetTooLong));
        assert_eq!(parse_with(b"GET /abc\r\n", &limits), Err(RequestError::NoVersion));
    }

    #[test]
    fn one_header_too_many_is_refused_even_without_the_end() {
        let most = "X: a\r\n".repeat(MAX_HEADERS - 1);
        assert!(with(&most).is_ok());
        let many = "X: a\r\n".repeat(MAX_HEADERS);
        assert_eq!(with(&many), Err(RequestError::TooLarge));
        let unfinished = format!("GET / HTTP/1.1\r\nHost: a\r\n{many}X");
        assert_eq!(parse(unfinished.as_bytes()), Err(RequestError::TooLarge));
    }
}
