//! One HTTP/1.1 answer on its way in: bytes in, progress out. No socket, no clock.
//!
//! Called by the sender with whatever a read brought. Nothing is copied unless a head arrives in pieces, or the run
//! keeps headers and bodies for its results.

use std::mem::MaybeUninit;
use std::sync::Arc;

use seawall_http::request::header_buffer;
use seawall_http::{
    BodyDecoder, BodyEvent, HeadLimits, Header, Parsed, ResponseError, ResponseHead, parse_response, unfold,
};

use crate::expectation::ExpectationSet;
use crate::expectation::check::ResponseCheck;
use crate::expectation::grpc;
use crate::record::{Record, ResponseHeaders};
use crate::request_fault::RequestFault;

/// A head may be larger than what the agent accepts: servers in the field set many cookies. Go allows 10 MiB and any
/// number of lines (net/http `Transport.MaxResponseHeaderBytes`), for which nobody here waits.
pub(crate) const HEAD_LIMITS: HeadLimits = HeadLimits { max_head_bytes: 256 * 1024, max_target_bytes: 0 };

/// Most lines of a head. Room for so many costs a tenth of the time that an ordinary head takes, so it is only made for
/// one that needs it.
pub(crate) const MOST_LINES: usize = 1024;

/// Informational answers before the real one; more are not an answer but a way to hold us.
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
    /// Not the end.
    More,
    /// The answer is complete. False when bytes came after its end: the connection cannot be trusted further.
    Done { clean: bool },
}

/// The parts of a response that the run needs.
#[derive(Debug, Default)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    pub(crate) bytes_in: u64,
    /// Of a redirect that is to be followed.
    pub(crate) location: Option<String>,
    pub(crate) capture: ResponseCapture,
    /// The conditions on the response; none if only its status matters.
    pub(crate) check: Option<Box<ResponseCheck>>,
}

/// The parts of a response that a record needs; the buffers are reused for the next response.
#[derive(Debug, Default)]
pub(crate) struct ResponseCapture {
    pub(crate) reason: String,
    pub(crate) headers: ResponseHeaders,
    pub(crate) body: Vec<u8>,
}

/// The parts of responses to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CaptureOptions {
    pub(crate) location: bool,
    /// Headers, and so many bytes of the body; `None` keeps nothing.
    pub(crate) record_body_limit: Option<usize>,
    /// True to keep the connection's timings.
    pub(crate) connection_timings: bool,
}

impl ResponseCapture {
    /// Fills the answer's part of a record and takes the record's buffers in exchange. As in vegeta, a failure leaves
    /// no status and no headers, and a status outside 200 to 399 is an error that reads like the status line. A wrong answer
    /// is a failure with the reason of its check, and leaves its headers and its body.
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
                // No code, as of any failure, for whoever counts successes by it; the rest is what a reader looks for.
                std::mem::swap(&mut record.headers, &mut self.headers);
                std::mem::swap(&mut record.body, &mut self.body);
                _ = match check.and_then(ResponseCheck::reason) {
                    Some(wrong) => write!(record.error, "wrong-answer: {wrong}"),
                    None => write!(record.error, "{fault}"),
                };
            }
            Err(fault) => _ = write!(record.error, "{fault}"),
            Ok(status) => {
                record.code = status;
                std::mem::swap(&mut record.headers, &mut self.headers);
                std::mem::swap(&mut record.body, &mut self.body);
                if !record.is_success() {
                    _ = write!(record.error, "{status} {}", self.reason);
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
        self.capture.reason.clear();
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
    pub(crate) fn expect(&mut self, expected: Option<&Arc<ExpectationSet>>) {
        if expected.is_some() || self.check.is_some() {
            self.expect_anew(expected);
        }
    }

    // What follows is kept out of line, so that an answer of which nothing is expected costs a look and no more.

    #[cold]
    #[inline(never)]
    fn expect_anew(&mut self, expected: Option<&Arc<ExpectationSet>>) {
        self.check.get_or_insert_default().expect(expected.cloned());
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
        self.check.get_or_insert_default().begin_grpc(status);
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

    /// The trailers of an answer over HTTP/2.
    #[cold]
    pub(crate) fn receive_http2_trailers(&mut self, trailers: &http::HeaderMap) {
        if let (Some(check), Some(status)) = (&mut self.check, trailers.get(GRPC_STATUS)) {
            check.end_grpc(status.as_bytes());
        }
    }

    fn begin(&mut self, head: &ResponseHead<'_, '_>, keep: CaptureOptions) {
        self.status = head.status;
        self.keep_alive = head.keep_alive;
        if self.check.is_some() {
            self.check_head(head);
        }
        if keep.location && is_redirect(head.status) {
            let named = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("location"));
            self.location = named.and_then(|header| location(&unfold(header.value)));
        }
        if keep.record_body_limit.is_some() {
            self.capture.reason.push_str(&String::from_utf8_lossy(head.reason));
            self.capture.headers.mark_present();
            for header in head.headers {
                self.capture.headers.push_canonical(header.name.as_bytes(), &unfold(header.value));
            }
        }
    }

    /// The head of an answer over HTTP/2, which has no reason phrase.
    pub(crate) fn receive_http2_head<B>(&mut self, head: &http::Response<B>, keep: CaptureOptions) {
        self.status = head.status().as_u16();
        self.check_http2(head.headers());
        if keep.location && is_redirect(self.status) {
            let named = head.headers().get(http::header::LOCATION);
            self.location = named.and_then(|value| location(value.as_bytes()));
        }
        if keep.record_body_limit.is_some() {
            self.capture.reason.push_str(head.status().canonical_reason().unwrap_or(""));
            self.capture.headers.mark_present();
            for (name, value) in head.headers() {
                self.capture.headers.push_canonical(name.as_str().as_bytes(), value.as_bytes());
            }
        }
    }

    /// Looks at a head for what is expected of it. Of gRPC more is expected than of others, whatever the user says.
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

/// The code of a gRPC call, in a trailer or, without a body, in the head.
const GRPC_STATUS: &str = "grpc-status";

/// Returns the target of a redirect. For an empty location, the redirect itself is the response, as in Go (net/http `Client.do`).
fn location(value: &[u8]) -> Option<String> {
    (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned())
}

/// Those that Go's client follows.
fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

impl ResponseParser {
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Head, held: Vec::new(), interim: 0 }
    }

    /// Ready for the next answer.
    pub(crate) fn reset(&mut self) {
        self.stage = Stage::Head;
        self.held.clear();
        self.interim = 0;
    }

    /// True when no byte of the answer has come.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(self.stage, Stage::Head) && self.held.is_empty() && self.interim == 0
    }

    /// Takes the bytes of one read.
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

    /// The slow way: a head that came in pieces.
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

    /// Takes one head, informational or final.
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

    /// The same with room for more lines.
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
            // 101 is final: nobody here asked for another protocol.
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

    /// The server has closed its side: the end of the answer if its framing says so, else a fault.
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
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: CaptureOptions =
        CaptureOptions { location: true, record_body_limit: Some(usize::MAX), connection_timings: false };

    /// The answer that `bytes` make in pieces of `step`, and whether they end clean.
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
                (answer.capture.reason.as_str(), answer.capture.body.as_slice()),
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
            .feed(bytes, "GET", CaptureOptions { location: true, ..CaptureOptions::default() }, &mut answer)
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
