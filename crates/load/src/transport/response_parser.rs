//! Parses one HTTP/1.1 response: bytes in, progress out. Uses no socket and no clock.
//!
//! The sender passes the data of each read. Nothing is copied unless a head arrives in pieces, or the run keeps headers and
//! bodies for its results.

use std::mem::MaybeUninit;
use std::sync::Arc;

use seawall_http::request::header_buffer;
use seawall_http::{
    BodyDecoder, BodyEvent, HeadLimits, Header, Parsed, ResponseError, ResponseHead, parse_response,
    unfold_header_value,
};

use crate::expectation::ExpectationSet;
use crate::expectation::check::ResponseCheck;
use crate::expectation::grpc;
use crate::record::{Record, ResponseHeaders};
use crate::request_failure_reason::RequestFault;

/// The limits of a head. They are larger than the agent's, because some servers set many cookies. Go allows 10 MiB and any number
/// of lines (net/http `Transport.MaxResponseHeaderBytes`), which no target needs.
pub(crate) const HEAD_LIMITS: HeadLimits = HeadLimits { max_head_bytes: 256 * 1024, max_target_bytes: 0 };

/// The maximum number of lines of a head. Room for this many costs a tenth of the time of an ordinary head, so it is made only
/// for a head that needs it.
pub(crate) const MOST_LINES: usize = 1024;

/// The maximum number of informational responses before the final one. More would let a server block the client.
pub(crate) const MOST_INTERIM: u8 = 16;

/// The state of the parser within a response.
#[derive(Debug)]
pub(crate) struct ResponseParser {
    stage: Stage,
    /// The start of a head that came in pieces.
    held: Vec<u8>,
    interim: u8,
}

#[derive(Debug)]
enum Stage {
    Head,
    Body(BodyDecoder),
}

/// The progress of parsing after the bytes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParseProgress {
    /// The response is not complete.
    More,
    /// The response is complete. `clean` is false if bytes came after its end: the connection cannot be reused.
    Done { clean: bool },
}

/// The parts of a response that the run needs.
#[derive(Debug, Default)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    pub(crate) bytes_in: u64,
    /// The location of a redirect that is to be followed.
    pub(crate) location: Option<String>,
    pub(crate) capture: ResponseCapture,
    /// The test of the conditions on the response; `None` if only its status matters.
    pub(crate) check: Option<Box<ResponseCheck>>,
}

/// The parts of a response that a record needs; the buffers are reused for the next response.
#[derive(Debug, Default)]
pub(crate) struct ResponseCapture {
    pub(crate) reason_phrase: String,
    pub(crate) headers: ResponseHeaders,
    pub(crate) body: Vec<u8>,
}

/// The parts of responses to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CaptureOptions {
    pub(crate) keep_location: bool,
    /// Keeps headers, and this number of body bytes; `None` keeps nothing.
    pub(crate) record_body_limit: Option<usize>,
    /// True to keep the connection's timings.
    pub(crate) keep_connection_timings: bool,
}

impl ResponseCapture {
    /// Fills the response's part of a record and takes the record's buffers in exchange. As in vegeta, a failure leaves no status
    /// and no headers, and a status outside 200 to 399 is an error that reads like the status line. A wrong answer is a failure
    /// with the reason of its check, and leaves its headers and its body.
    pub(crate) fn move_into(
        &mut self,
        record: &mut Record,
        outcome: Result<u16, RequestFault>,
        check: Option<&ResponseCheck>,
    ) {
        use std::fmt::Write as _;
        match outcome {
            // Writing to a string cannot fail.
            Err(fault @ RequestFault::WrongAnswer(_)) => {
                // The record has no code, like that of any failure, because readers count successes by the code. It has headers
                // and body, which explain the failure.
                std::mem::swap(&mut record.response_headers, &mut self.headers);
                std::mem::swap(&mut record.response_body, &mut self.body);
                _ = match check.and_then(ResponseCheck::reason) {
                    Some(wrong) => write!(record.error, "wrong-answer: {wrong}"),
                    None => write!(record.error, "{fault}"),
                };
            }
            Err(fault) => _ = write!(record.error, "{fault}"),
            Ok(status) => {
                record.code = status;
                std::mem::swap(&mut record.response_headers, &mut self.headers);
                std::mem::swap(&mut record.response_body, &mut self.body);
                if !record.is_success() {
                    _ = write!(record.error, "{status} {}", self.reason_phrase);
                }
            }
        }
    }
}

impl ReceivedResponse {
    pub(crate) fn clear(&mut self) {
        self.status = 0;
        self.keep_alive = false;
        self.bytes_in = 0;
        self.location = None;
        self.capture.reason_phrase.clear();
        self.capture.headers.clear();
        self.capture.body.clear();
        if self.check.is_some() {
            self.clear_check();
        }
    }

    #[cold]
    #[inline(never)]
    fn clear_check(&mut self) {
        self.check.iter_mut().for_each(|check| check.clear());
    }

    /// Sets the conditions on the response.
    #[inline]
    pub(crate) fn set_expectations(&mut self, expected: Option<&Arc<ExpectationSet>>) {
        if expected.is_some() || self.check.is_some() {
            self.expect_anew(expected);
        }
    }

    // The following functions are not inlined, so that a response without conditions costs a single check.

    #[cold]
    #[inline(never)]
    fn expect_anew(&mut self, expected: Option<&Arc<ExpectationSet>>) {
        self.check.get_or_insert_default().set_expectations(expected.cloned());
    }

    /// Returns the verdict on a complete response: its status, or its mistake.
    #[inline]
    pub(crate) fn verdict(&mut self) -> Result<u16, RequestFault> {
        if self.check.is_none() { Ok(self.status) } else { self.checked() }
    }

    #[cold]
    #[inline(never)]
    fn checked(&mut self) -> Result<u16, RequestFault> {
        let Self { status, bytes_in, .. } = *self;
        self.check.as_mut().map_or(Ok(status), |check| check.verdict(status, bytes_in))
    }

    #[cold]
    #[inline(never)]
    fn check_head(&mut self, head: &ResponseHead<'_, '_>) {
        if let Some(check) = &mut self.check {
            check.check_headers(head.headers.iter().map(|header| (header.name, header.value)));
        }
    }

    #[cold]
    #[inline(never)]
    fn check_headers(&mut self, headers: &http::HeaderMap) {
        if let Some(check) = &mut self.check {
            check.check_headers(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
        }
    }

    #[cold]
    #[inline(never)]
    fn check_grpc(&mut self, headers: &http::HeaderMap) {
        let status = headers.get(GRPC_STATUS).map(http::HeaderValue::as_bytes);
        self.check.get_or_insert_default().mark_as_grpc(status);
    }

    #[cold]
    #[inline(never)]
    fn check_data(&mut self, data: &[u8]) {
        self.check.iter_mut().for_each(|check| check.check_body_data(data));
    }

    /// True if the response is gRPC, whose trailers have its status.
    #[inline]
    pub(crate) fn is_grpc(&self) -> bool {
        self.check.as_ref().is_some_and(|check| check.is_grpc())
    }

    /// Handles the trailers of a response over HTTP/2.
    #[cold]
    pub(crate) fn receive_http2_trailers(&mut self, trailers: &http::HeaderMap) {
        if let (Some(check), Some(status)) = (&mut self.check, trailers.get(GRPC_STATUS)) {
            check.set_grpc_trailer_status(status.as_bytes());
        }
    }

    fn begin(&mut self, head: &ResponseHead<'_, '_>, keep: CaptureOptions) {
        self.status = head.status;
        self.keep_alive = head.keep_alive;
        if self.check.is_some() {
            self.check_head(head);
        }
        if keep.keep_location && is_redirect(head.status) {
            let named = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("location"));
            self.location = named.and_then(|header| location(&unfold_header_value(header.value)));
        }
        if keep.record_body_limit.is_some() {
            self.capture.reason_phrase.push_str(&String::from_utf8_lossy(head.reason));
            self.capture.headers.mark_present();
            for header in head.headers {
                self.capture
                    .headers
                    .push_canonical(header.name.as_bytes(), &unfold_header_value(header.value));
            }
        }
    }

    /// Handles the head of a response over HTTP/2, which has no reason phrase.
    pub(crate) fn receive_http2_head<B>(&mut self, head: &http::Response<B>, keep: CaptureOptions) {
        self.status = head.status().as_u16();
        self.check_http2(head.headers());
        if keep.keep_location && is_redirect(self.status) {
            let named = head.headers().get(http::header::LOCATION);
            self.location = named.and_then(|value| location(value.as_bytes()));
        }
        if keep.record_body_limit.is_some() {
            self.capture.reason_phrase.push_str(head.status().canonical_reason().unwrap_or(""));
            self.capture.headers.mark_present();
            for (name, value) in head.headers() {
                self.capture.headers.push_canonical(name.as_str().as_bytes(), value.as_bytes());
            }
        }
    }

    /// Checks the headers of a response over HTTP/2. A gRPC response has further conditions, whatever the user says.
    #[inline]
    fn check_http2(&mut self, headers: &http::HeaderMap) {
        if self.check.is_some() {
            self.check_headers(headers);
        }
        let content_type = headers.get(http::header::CONTENT_TYPE);
        if content_type.is_some_and(|value| grpc::is_grpc(value.as_bytes())) {
            self.check_grpc(headers);
        }
    }

    pub(crate) fn receive_body_data(&mut self, data: &[u8], keep: CaptureOptions) {
        self.bytes_in += data.len() as u64;
        if self.check.is_some() {
            self.check_data(data);
        }
        if let Some(most) = keep.record_body_limit {
            let room = most.saturating_sub(self.capture.body.len());
            self.capture.body.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
}

/// The name of the field with the code of a gRPC call, in a trailer or, without a body, in the head.
const GRPC_STATUS: &str = "grpc-status";

/// Returns the target of a redirect. For an empty location, the redirect itself is the response, as in Go (net/http `Client.do`).
fn location(value: &[u8]) -> Option<String> {
    (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned())
}

/// True for the statuses of redirects that Go's client follows.
fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

impl ResponseParser {
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Head, held: Vec::new(), interim: 0 }
    }

    /// Prepares the parser for the next response.
    pub(crate) fn reset(&mut self) {
        self.stage = Stage::Head;
        self.held.clear();
        self.interim = 0;
    }

    /// True if no byte of the response has come.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(self.stage, Stage::Head) && self.held.is_empty() && self.interim == 0
    }

    /// Parses the data of one read.
    #[inline]
    pub(crate) fn feed(
        &mut self,
        input: &[u8],
        method: &str,
        keep: CaptureOptions,
        answer: &mut ReceivedResponse,
    ) -> Result<ParseProgress, RequestFault> {
        if !self.held.is_empty() {
            return self.feed_joined(input, method, keep, answer);
        }
        let (step, taken) = self.advance(input, method, keep, answer)?;
        if taken < input.len() && step == ParseProgress::More {
            self.held.extend_from_slice(&input[taken..]);
        }
        Ok(step)
    }

    /// Parses data after the start of a head that came in pieces.
    fn feed_joined(
        &mut self,
        input: &[u8],
        method: &str,
        keep: CaptureOptions,
        answer: &mut ReceivedResponse,
    ) -> Result<ParseProgress, RequestFault> {
        let mut joined = std::mem::take(&mut self.held);
        joined.extend_from_slice(input);
        let (step, taken) = self.advance(&joined, method, keep, answer)?;
        joined.drain(..taken);
        self.held = joined;
        Ok(step)
    }

    /// Parses more bytes. Returns the progress and the number of parsed bytes.
    fn advance(
        &mut self,
        bytes: &[u8],
        method: &str,
        keep: CaptureOptions,
        answer: &mut ReceivedResponse,
    ) -> Result<(ParseProgress, usize), RequestFault> {
        let mut at = 0;
        loop {
            match &mut self.stage {
                Stage::Head => match self.head(&bytes[at..], method, keep, answer)? {
                    Some(taken) => at += taken,
                    None => return Ok((ParseProgress::More, at)),
                },
                Stage::Body(decoder) => match decoder.decode(&bytes[at..])? {
                    BodyEvent::Data(data, taken) => {
                        answer.receive_body_data(data, keep);
                        at += taken;
                    }
                    BodyEvent::NeedMore(taken) => return Ok((ParseProgress::More, at + taken)),
                    BodyEvent::End(taken) => {
                        at += taken;
                        return Ok((ParseProgress::Done { clean: at == bytes.len() }, at));
                    }
                },
            }
        }
    }

    /// Handles one head, informational or final.
    fn head(
        &mut self,
        bytes: &[u8],
        method: &str,
        keep: CaptureOptions,
        answer: &mut ReceivedResponse,
    ) -> Result<Option<usize>, RequestFault> {
        let mut room = header_buffer();
        match parse_response(bytes, method, &mut room, &HEAD_LIMITS) {
            Err(ResponseError::TooLarge) => self.long_head(bytes, method, keep, answer),
            parsed => self.accept(parsed?, keep, answer),
        }
    }

    /// Parses a head with many lines.
    #[cold]
    #[inline(never)]
    fn long_head(
        &mut self,
        bytes: &[u8],
        method: &str,
        keep: CaptureOptions,
        answer: &mut ReceivedResponse,
    ) -> Result<Option<usize>, RequestFault> {
        let mut room: [MaybeUninit<Header<'_>>; MOST_LINES] = [const { MaybeUninit::uninit() }; MOST_LINES];
        let parsed = parse_response(bytes, method, &mut room, &HEAD_LIMITS)?;
        self.accept(parsed, keep, answer)
    }

    #[inline]
    fn accept(
        &mut self,
        parsed: Parsed<ResponseHead<'_, '_>>,
        keep: CaptureOptions,
        answer: &mut ReceivedResponse,
    ) -> Result<Option<usize>, RequestFault> {
        match parsed {
            Parsed::Partial => Ok(None),
            // 101 is final: the client never asks for another protocol.
            Parsed::Complete(head, taken) if head.status < 200 && head.status != 101 => {
                self.interim += 1;
                let too_many = self.interim > MOST_INTERIM;
                if too_many { Err(ResponseError::TooLarge.into()) } else { Ok(Some(taken)) }
            }
            Parsed::Complete(head, taken) => {
                answer.begin(&head, keep);
                self.stage = Stage::Body(BodyDecoder::of_response(head.framing));
                Ok(Some(taken))
            }
        }
    }

    /// Handles the end of the stream: the end of the response if its framing allows it, otherwise a fault.
    pub(crate) fn end_of_input(&mut self) -> Result<(), RequestFault> {
        match &self.stage {
            Stage::Body(decoder) if decoder.is_complete_at_eof() => Ok(()),
            Stage::Body(_) => Err(RequestFault::Truncated),
            Stage::Head if self.is_untouched() => Err(RequestFault::ClosedEarly),
            Stage::Head => Err(RequestFault::Truncated),
        }
    }
}

#[cfg(test)]
mod hyper_comparison;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: CaptureOptions = CaptureOptions {
        keep_location: true,
        record_body_limit: Some(usize::MAX),
        keep_connection_timings: false,
    };

    /// Parses a response in pieces of `step` bytes. Returns the progress and the response.
    fn answer(bytes: &[u8], step: usize) -> Result<(ParseProgress, ReceivedResponse), RequestFault> {
        let (mut exchange, mut answer) = (ResponseParser::new(), ReceivedResponse::default());
        let mut last = ParseProgress::More;
        for piece in bytes.chunks(step) {
            assert_eq!(last, ParseProgress::More);
            last = exchange.feed(piece, "GET", ALL, &mut answer)?;
        }
        if last == ParseProgress::More {
            exchange.end_of_input()?;
        }
        Ok((last, answer))
    }

    #[test]
    fn any_split_gives_the_same_answer() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nx-a: b\r\n\
            Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: u\r\n\r\n";
        for step in 1..=bytes.len() {
            let (last, answer) = answer(bytes, step).unwrap();
            assert_eq!(last, ParseProgress::Done { clean: true }, "{step}");
            assert_eq!((answer.status, answer.bytes_in, answer.keep_alive), (404, 5, true), "{step}");
            assert_eq!(
                (answer.capture.reason_phrase.as_str(), answer.capture.body.as_slice()),
                ("Not Found", &b"abcde"[..])
            );
            assert_eq!(answer.capture.headers.iter().last(), Some((&b"X-A"[..], &b"b"[..])));
        }
    }

    #[test]
    fn the_close_ends_a_body_only_where_it_may() {
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\n\r\nabc", 9).unwrap().1.bytes_in, 3);
        assert_eq!(
            answer(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", 9).unwrap_err(),
            RequestFault::Truncated
        );
        assert_eq!(answer(b"HTTP/1.1 20", 99).unwrap_err(), RequestFault::Truncated);
        assert_eq!(answer(b"", 1).unwrap_err(), RequestFault::ClosedEarly);
    }

    #[test]
    fn bytes_after_the_end_spoil_the_connection_not_the_answer() {
        let (last, answer) = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc", 99).unwrap();
        assert_eq!((last, answer.bytes_in), (ParseProgress::Done { clean: false }, 1));
    }

    #[test]
    fn endless_interim_answers_are_refused() {
        let bytes = b"HTTP/1.1 102 Processing\r\n\r\n".repeat(17);
        assert!(matches!(answer(&bytes, 7), Err(RequestFault::Head(_))));
    }

    #[test]
    fn only_what_is_asked_for_is_kept() {
        let (mut exchange, mut answer) = (ResponseParser::new(), ReceivedResponse::default());
        let bytes = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 4\r\n\r\nabcd";
        exchange
            .feed(
                bytes,
                "GET",
                CaptureOptions { keep_location: true, ..CaptureOptions::default() },
                &mut answer,
            )
            .unwrap();
        assert_eq!((answer.location.as_deref(), answer.capture.body.len()), (Some("/x"), 0));
        assert!(answer.capture.headers.is_absent());
        let (mut exchange, mut answer) = (ResponseParser::new(), ReceivedResponse::default());
        exchange
            .feed(
                bytes,
                "GET",
                CaptureOptions { record_body_limit: Some(3), ..CaptureOptions::default() },
                &mut answer,
            )
            .unwrap();
        assert_eq!(
            (answer.location, answer.capture.body.as_slice(), answer.bytes_in),
            (None, &b"abc"[..], 4)
        );
    }
}
