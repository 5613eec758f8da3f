//! The reasons why a request failed: a closed set, so that counters, labels and error texts stay bounded whatever a server does.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::IpAddr;

use rustls::{AlertDescription, InvalidMessage};
use seawall_http::{ResponseError, body::BodyError};

use crate::expectation::grpc;
use crate::transport::response_parser::{HEAD_LIMITS, MOST_INTERIM, MOST_LINES};

/// The reason why a request got no complete response, or a wrong response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// The name has no address.
    Resolve(NameFault),
    /// The connection could not be opened, for this reason of the system.
    Connect(io::ErrorKind),
    /// This machine could not make a socket: it is out of files or ports.
    Local(io::ErrorKind),
    /// This machine could not make a socket with the source address that the user named: the address is not this machine's, is
    /// out of ports, or (unsupported) is of the other family.
    SourceAddress(IpAddr, io::ErrorKind),
    /// The TLS handshake or a TLS record failed.
    Tls(TlsFault),
    /// A proxy refused the tunnel with this status; 0 without a response.
    Proxy(u16),
    /// The connection broke while the request was on it.
    ConnectionIoError(io::ErrorKind),
    /// The server closed the connection before the first byte of its response.
    ClosedEarly,
    /// The server closed the connection within its response.
    Truncated,
    /// The response head is not valid HTTP.
    Head(ResponseError),
    /// The chunks of a response body are invalid.
    InvalidChunks,
    /// An HTTP/2 stream or connection error.
    Http2,
    /// The server responded in HTTP/1, but HTTP/2 was expected.
    NotHttp2,
    /// The HTTP/2 server reported that it did not process the request (RFC 9113, section 8.7).
    RefusedStream,
    /// There were more redirects than allowed.
    TooManyRedirects,
    /// The location of a redirect is not a URL that the engine can use.
    BadLocation,
    /// The filled template is not a valid request.
    InvalidFilledTemplate,
    /// There was no complete response within `-timeout` of the send.
    Timeout,
    /// There was no connection within `-timeout`: none could be opened in time, or none became free.
    NoConnection,
    /// There was no complete response within `--deadline` of the intended instant.
    Deadline,
    /// The request was not sent, because `--deadline` had passed before there was room.
    DeadlineBeforeSend,
    /// The request was not sent, because the in-flight bound was reached and the policy is to drop.
    Dropped,
    /// The request was aborted by a command to end at once, such as a second signal, or after the drain timeout.
    Aborted,
    /// The response is complete and has a good status, but fails a condition of `--expect`, or is a failed gRPC call.
    WrongAnswer(WrongAnswer),
}

/// The mistake in a complete response whose status is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongAnswer {
    /// The response fails a condition on this part of it.
    Condition(ExpectationSubject),
    /// The body is too long for a regular expression or a JSON pointer.
    BodyTooLong,
    /// The body is compressed, so no condition on its content can be tested.
    BodyCompressed,
    /// The `grpc-status` is this code.
    Grpc(u8),
    /// The `grpc-status` is not a code of gRPC.
    UnknownGrpcStatus,
    /// The response is gRPC and has no `grpc-status`.
    NoGrpcStatus,
}

/// The part of a response that a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectationSubject {
    /// The status.
    Status,
    /// A header.
    Header,
    /// The text of the body.
    Body,
    /// A value in a JSON body.
    Json,
    /// The length of the body.
    Length,
}

impl fmt::Display for WrongAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = match self {
            Self::Condition(ExpectationSubject::Status) => "status",
            Self::Condition(ExpectationSubject::Header) => "header",
            Self::Condition(ExpectationSubject::Body) => "body",
            Self::Condition(ExpectationSubject::Json) => "JSON value",
            Self::Condition(ExpectationSubject::Length) => "length",
            Self::BodyTooLong => {
                return f.write_str("body exceeds 1 MiB, the limit for =~ and json: conditions");
            }
            Self::BodyCompressed => {
                return f.write_str(
                    "body is compressed (content-encoding), so body and json: conditions cannot test it",
                );
            }
            Self::Grpc(code) => {
                return write!(
                    f,
                    "grpc-status is {code} {}",
                    grpc::status_name(*code).unwrap_or("(unknown)")
                );
            }
            Self::UnknownGrpcStatus => return f.write_str("grpc-status is not a number from 0 to 16"),
            Self::NoGrpcStatus => return f.write_str("grpc-status is missing"),
        };
        write!(f, "{subject} is not as expected")
    }
}

/// The reason why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameFault {
    /// The DNS servers that the user named know no address.
    NoHost,
    /// The DNS servers that the user named did not respond.
    NoAnswer,
    /// The system found no address; it does not report whether the name is unknown or no server responded.
    System,
    /// Too many names were being looked up, so this one was not.
    Busy,
}

/// A failure of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFault {
    /// The server's certificate is refused.
    Certificate(CertificateFault),
    /// The server sent this alert (RFC 8446, section 6).
    Alert(AlertDescription),
    /// The server responded without TLS.
    Plaintext,
    /// The server closed the connection during the handshake.
    Closed,
    /// Another violation of the protocol.
    Protocol,
}

/// A mistake in a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateFault {
    /// The server sent no certificate.
    Missing,
    /// The issuer is not trusted.
    Untrusted,
    /// The certificate is for another name.
    Name,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// Another mistake in the certificate.
    OtherDefect,
}

impl From<&rustls::CertificateError> for CertificateFault {
    fn from(error: &rustls::CertificateError) -> Self {
        use rustls::CertificateError as Error;
        match error {
            Error::UnknownIssuer => Self::Untrusted,
            Error::NotValidForName | Error::NotValidForNameContext { .. } => Self::Name,
            Error::Expired | Error::ExpiredContext { .. } => Self::Expired,
            Error::NotValidYet | Error::NotValidYetContext { .. } => Self::NotYetValid,
            _ => Self::OtherDefect,
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the server sent no certificate",
            Self::Untrusted => "its issuer is not trusted",
            Self::Name => "it is valid for another name",
            Self::Expired => "it has expired",
            Self::NotYetValid => "it is not valid yet",
            Self::OtherDefect => "it is unusable (for example, because it is the certificate of a CA)",
        })
    }
}

impl From<&rustls::Error> for TlsFault {
    fn from(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(reason) => Self::Certificate(reason.into()),
            rustls::Error::NoCertificatesPresented => Self::Certificate(CertificateFault::Missing),
            rustls::Error::AlertReceived(alert) => Self::Alert(*alert),
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::Plaintext,
            _ => Self::Protocol,
        }
    }
}

/// Returns the alert's name as RFC 8446 spells it, with its meaning for the client if it is known.
fn alert(alert: AlertDescription) -> Cow<'static, str> {
    use AlertDescription as Alert;
    let known = match alert {
        Alert::NoApplicationProtocol => {
            "no_application_protocol: the server accepts none of the offered protocols (h2, http/1.1; --http2=false offers only http/1.1)"
        }
        Alert::ProtocolVersion => "protocol_version: the server speaks neither TLS 1.2 nor TLS 1.3",
        Alert::HandshakeFailure => "handshake_failure: the server accepts none of the offered ciphers",
        Alert::UnrecognisedName => "unrecognized_name: the server does not know the host name of the URL",
        Alert::CertificateRequired => "certificate_required: give a client certificate with --cert",
        Alert::BadCertificate => "bad_certificate: the server rejected the client certificate (--cert)",
        Alert::CertificateUnknown => {
            "certificate_unknown: the server rejected the client certificate (--cert)"
        }
        Alert::UnknownCA => {
            "unknown_ca: the server does not trust the issuer of the client certificate (--cert)"
        }
        Alert::InternalError => "internal_error",
        other => return Cow::Owned(format!("{} ({other:?})", u8::from(other))),
    };
    Cow::Borrowed(known)
}

/// The classes of outcomes that reports distinguish. Latencies of one class never mix with another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeClass {
    /// A complete response with a status from 200 to 399 and no wrong answer.
    Good,
    /// A complete response with any other status.
    BadStatus,
    /// The client gave the request up: its latency is a lower bound.
    TimedOut,
    /// There was no complete response for another reason.
    Failed,
    /// A complete response with a good status and the wrong content.
    WrongAnswer,
}

impl OutcomeClass {
    /// All classes, in the order of their discriminants.
    pub const ALL: [Self; 5] = [Self::Good, Self::BadStatus, Self::TimedOut, Self::Failed, Self::WrongAnswer];

    /// The number of classes.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the class of a complete response that is not a wrong answer.
    #[must_use]
    pub fn of_status(status: u16) -> Self {
        if (200..400).contains(&status) { Self::Good } else { Self::BadStatus }
    }

    /// Returns the name of the class in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::BadStatus => "error-status",
            Self::TimedOut => "timed-out",
            Self::Failed => "failed",
            Self::WrongAnswer => "wrong-answer",
        }
    }
}

impl RequestFault {
    /// The number of kinds, without their details.
    pub const KIND_COUNT: usize = NAMES.len();

    /// Faults of requests that were not even to be sent: shed, dropped, or without a valid filled template. `NoConnection` is not
    /// one of them.
    pub const NOT_ATTEMPTED: [Self; 3] =
        [Self::DeadlineBeforeSend, Self::Dropped, Self::InvalidFilledTemplate];

    /// Returns the class of the fault.
    #[must_use]
    pub fn class(self) -> OutcomeClass {
        match self {
            Self::Timeout | Self::NoConnection | Self::Deadline => OutcomeClass::TimedOut,
            Self::WrongAnswer(_) => OutcomeClass::WrongAnswer,
            _ => OutcomeClass::Failed,
        }
    }

    /// True unless the request was shed, dropped or not a valid request; a request that got no connection counts as true.
    #[must_use]
    pub fn was_attempted(self) -> bool {
        !Self::NOT_ATTEMPTED.contains(&self)
    }

    /// Returns the index of the kind, below [`RequestFault::KIND_COUNT`].
    #[must_use]
    pub fn kind_index(self) -> usize {
        match self {
            Self::Resolve(_) => 0,
            Self::Connect(_) => 1,
            Self::Local(_) | Self::SourceAddress(..) => 2,
            Self::Tls(_) => 3,
            Self::Proxy(_) => 4,
            Self::ConnectionIoError(_) => 5,
            Self::ClosedEarly => 6,
            Self::Truncated => 7,
            Self::Head(_) => 8,
            Self::InvalidChunks => 9,
            Self::Http2 | Self::NotHttp2 => 10,
            Self::TooManyRedirects => 11,
            Self::BadLocation => 12,
            Self::Timeout => 13,
            Self::Deadline => 14,
            Self::DeadlineBeforeSend => 15,
            Self::Dropped => 16,
            Self::Aborted => 17,
            Self::InvalidFilledTemplate => 18,
            Self::RefusedStream => 19,
            Self::NoConnection => 20,
            Self::WrongAnswer(_) => 21,
        }
    }

    /// Returns the name of a kind, for counters and labels.
    #[must_use]
    pub fn name_of_kind(kind: usize) -> &'static str {
        NAMES.get(kind).copied().unwrap_or("other")
    }
}

const NAMES: [&str; 22] = [
    "resolve",
    "connect",
    "local-resource",
    "tls",
    "proxy",
    "connection-broken",
    "closed-early",
    "truncated",
    "invalid-head",
    "invalid-body",
    "http2",
    "redirects",
    "invalid-location",
    "timeout",
    "deadline",
    "shed",
    "dropped",
    "aborted",
    "template",
    "refused-stream",
    "no-connection",
    "wrong-answer",
];

impl From<ResponseError> for RequestFault {
    fn from(error: ResponseError) -> Self {
        Self::Head(error)
    }
}

impl From<BodyError> for RequestFault {
    fn from(_: BodyError) -> Self {
        Self::InvalidChunks
    }
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(NameFault::NoHost) => f.write_str("lookup: no such host"),
            Self::Resolve(NameFault::NoAnswer) => f.write_str("lookup: no response from any DNS server"),
            Self::Resolve(NameFault::Busy) => f.write_str("lookup: too many lookups wait for a response"),
            Self::Resolve(NameFault::System) => {
                f.write_str("lookup: no such host, or no response from the system's DNS servers")
            }
            // Only the path of a Unix socket can be missing.
            Self::Connect(io::ErrorKind::NotFound) => {
                f.write_str("connect: no Unix socket at the path of --unix-socket")
            }
            Self::Connect(kind) => write!(f, "connect: {kind}"),
            Self::Local(kind) => write!(f, "cannot open a socket on this machine: {kind}"),
            Self::SourceAddress(source, kind) => write!(f, "cannot open a socket on {source}: {kind}"),
            Self::Tls(TlsFault::Certificate(why)) => {
                write!(f, "tls: rejected the server's certificate: {why}")
            }
            Self::Tls(TlsFault::Alert(alert)) => {
                write!(f, "tls: the server sent the TLS alert {}", self::alert(*alert))
            }
            Self::Tls(TlsFault::Closed) => f.write_str("tls: EOF during the handshake"),
            Self::Tls(TlsFault::Plaintext) => {
                f.write_str("tls: the server answered without TLS; try http://")
            }
            Self::Tls(TlsFault::Protocol) => f.write_str("tls: protocol error"),
            Self::Proxy(0) => f.write_str("proxy: no response to CONNECT"),
            Self::Proxy(status) => write!(f, "proxy: CONNECT got status {status}"),
            Self::ConnectionIoError(kind) => write!(f, "connection broken: {kind}"),
            Self::ClosedEarly => f.write_str("EOF before the response"),
            Self::Truncated => f.write_str("unexpected EOF within the response"),
            Self::Head(ResponseError::TooLarge) => write!(
                f,
                "the response head has more than {} bytes or {MOST_LINES} lines, or more than {MOST_INTERIM} interim responses precede it",
                HEAD_LIMITS.max_head_bytes
            ),
            Self::Head(error) => write!(f, "{error}"),
            Self::InvalidChunks => f.write_str("malformed chunked body"),
            Self::Http2 => f.write_str("http2: stream or connection error"),
            Self::NotHttp2 => f.write_str("http2: the server answered in HTTP/1; leave out --h2c"),
            Self::RefusedStream => f.write_str("http2: the server refused the stream"),
            Self::TooManyRedirects => f.write_str("stopped after too many redirects"),
            Self::BadLocation => f.write_str("redirect with an invalid Location"),
            Self::InvalidFilledTemplate => f.write_str("the filled template is not a valid request"),
            Self::Timeout => f.write_str("timeout: no complete response in time (counted from the send)"),
            Self::NoConnection => f.write_str("timeout: no connection in time"),
            Self::Deadline => {
                f.write_str("deadline: no complete response in time (counted from the scheduled send)")
            }
            Self::DeadlineBeforeSend => f.write_str("shed: the deadline passed before the request was sent"),
            Self::Dropped => f.write_str("dropped: too many requests in flight"),
            Self::Aborted => f.write_str("aborted: the run ended before the response"),
            Self::WrongAnswer(wrong) => write!(f, "wrong-answer: {wrong}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_place_and_name() {
        let faults = [
            RequestFault::Resolve(NameFault::NoHost),
            RequestFault::Connect(io::ErrorKind::ConnectionRefused),
            RequestFault::Local(io::ErrorKind::OutOfMemory),
            RequestFault::Tls(TlsFault::Plaintext),
            RequestFault::Proxy(403),
            RequestFault::ConnectionIoError(io::ErrorKind::ConnectionReset),
            RequestFault::ClosedEarly,
            RequestFault::Truncated,
            RequestFault::Head(ResponseError::Framing),
            RequestFault::InvalidChunks,
            RequestFault::Http2,
            RequestFault::TooManyRedirects,
            RequestFault::BadLocation,
            RequestFault::Timeout,
            RequestFault::Deadline,
            RequestFault::DeadlineBeforeSend,
            RequestFault::Dropped,
            RequestFault::Aborted,
            RequestFault::InvalidFilledTemplate,
            RequestFault::RefusedStream,
            RequestFault::NoConnection,
            RequestFault::WrongAnswer(WrongAnswer::Grpc(14)),
        ];
        let kinds: Vec<_> = faults.iter().map(|fault| fault.kind_index()).collect();
        assert_eq!(kinds, (0..RequestFault::KIND_COUNT).collect::<Vec<_>>());
    }

    /// The texts used to hide facts: "tls: the server sent an alert" did not name the alert, "connect: entity not found" not the
    /// entity.
    #[test]
    fn texts_name_the_fact_and_the_next_step() {
        let said = |fault: RequestFault| fault.to_string();
        let alert = |alert| said(RequestFault::Tls(TlsFault::Alert(alert)));
        assert!(alert(AlertDescription::NoApplicationProtocol).contains("alert no_application_protocol: "));
        assert!(alert(AlertDescription::CertificateRequired).contains("--cert"));
        assert_eq!(
            alert(AlertDescription::DecryptError),
            "tls: the server sent the TLS alert 51 (DecryptError)"
        );
        assert!(said(RequestFault::Tls(TlsFault::Plaintext)).contains("try http://"));
        assert!(said(RequestFault::NotHttp2).contains("--h2c"));
        assert!(said(RequestFault::Connect(io::ErrorKind::NotFound)).contains("--unix-socket"));
    }
}
