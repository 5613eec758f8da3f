//! Tests one response against the conditions of its target while the response arrives. Uses no socket and no clock.
//!
//! Headers are tested when they come. A text in the body is searched while the body streams past, across the borders of its
//! parts. Only regular expressions on the body and JSON pointers need the body itself, of which [`MOST_BODY`] bytes are kept.

use std::sync::Arc;

use memchr::memmem::Finder;
use serde_json::Value;

use super::{Condition, ExpectationSet, TextTest, grpc};
use crate::request_failure_reason::{OutcomeClass, RequestFault, WrongAnswer};

/// The number of body bytes that are kept for regular expressions and JSON pointers. A longer body fails the condition, because
/// the rest is not read.
pub(crate) const MOST_BODY: usize = 1 << 20;

/// A buffer larger than this is freed after use.
const LARGE: usize = 64 << 10;

/// The test of one response; its buffers are reused for the next response.
#[derive(Debug, Default)]
pub(crate) struct ResponseCheck {
    expected: Option<Arc<ExpectationSet>>,
    /// The progress of each condition.
    progress: Vec<Progress>,
    needs_body: bool,
    body: Vec<u8>,
    is_too_long: bool,
    is_compressed: bool,
    grpc: Option<GrpcStatus>,
    /// The index of the condition that failed.
    failed: Option<usize>,
    wrong: Option<WrongAnswer>,
}

/// The progress of one condition.
#[derive(Debug, Default, Clone)]
struct Progress {
    /// True if the header met the condition, or the text was found.
    is_found: bool,
    /// The last bytes of the body so far, which can be the start of the text.
    tail: Vec<u8>,
}

/// The `grpc-status` of a gRPC response.
#[derive(Debug, Default)]
struct GrpcStatus(Option<Vec<u8>>);

impl ResponseCheck {
    /// Prepares the test of a response to a request with these conditions.
    pub(crate) fn set_expectations(&mut self, expected: Option<Arc<ExpectationSet>>) {
        self.clear();
        self.expected = expected;
    }

    /// Forgets the response and keeps the conditions.
    pub(crate) fn clear(&mut self) {
        self.progress.clear();
        self.needs_body = false;
        self.body.clear();
        if self.body.capacity() > LARGE {
            self.body = Vec::new();
        }
        (self.is_too_long, self.is_compressed, self.grpc) = (false, false, None);
        (self.failed, self.wrong) = (None, None);
    }

    /// Tests the headers of a response.
    pub(crate) fn check_headers<'h>(&mut self, headers: impl Iterator<Item = (&'h str, &'h [u8])>) {
        self.clear();
        let Some(expected) = &self.expected else { return };
        self.needs_body = expected.needs_body();
        self.progress.resize_with(expected.0.len(), Progress::default);
        // A field may occur several times: one occurrence that matches is enough, also to fail a condition that excludes the
        // text.
        for (field, value) in headers {
            // RFC 9110, section 8.4: `identity` stands for no encoding.
            self.is_compressed |= field.eq_ignore_ascii_case("content-encoding")
                && !value.trim_ascii().eq_ignore_ascii_case(b"identity");
            for (one, progress) in expected.iter().zip(&mut self.progress) {
                if let Condition::Header { name, test } = &one.condition {
                    progress.is_found |= field.eq_ignore_ascii_case(name) && test.finds(value);
                }
            }
        }
    }

    /// Notes that the response is gRPC, and the status in its head, if there is one.
    pub(crate) fn mark_as_grpc(&mut self, status: Option<&[u8]>) {
        self.grpc = Some(GrpcStatus(status.map(<[u8]>::to_owned)));
    }

    pub(crate) fn is_grpc(&self) -> bool {
        self.grpc.is_some()
    }

    /// Sets the status from the trailers. Without this call, the status of the head is used.
    pub(crate) fn set_grpc_trailer_status(&mut self, status: &[u8]) {
        self.grpc = Some(GrpcStatus(Some(status.to_owned())));
    }

    /// Tests a part of the body.
    pub(crate) fn check_body_data(&mut self, data: &[u8]) {
        let Some(expected) = &self.expected else { return };
        for (one, progress) in expected.iter().zip(&mut self.progress) {
            if let Condition::Body(TextTest::Contains { text, .. }) = &one.condition {
                progress.follow(text, data);
            }
        }
        if self.needs_body && !self.is_too_long {
            self.is_too_long = self.body.len() + data.len() > MOST_BODY;
            if !self.is_too_long {
                self.body.extend_from_slice(data);
            }
        }
    }

    /// Returns the verdict on the complete response.
    pub(crate) fn verdict(&mut self, status: u16, length: u64) -> Result<u16, RequestFault> {
        if OutcomeClass::of_status(status) != OutcomeClass::Good {
            return Ok(status);
        }
        self.wrong = self.wrong_answer(status, length);
        self.wrong.map_or(Ok(status), |wrong| Err(RequestFault::WrongAnswer(wrong)))
    }

    /// Returns the reason why the response failed. The text is bounded and contains no part of the response.
    pub(crate) fn reason(&self) -> Option<String> {
        let failed = self.failed.zip(self.expected.as_ref()).and_then(|(at, expected)| expected.0.get(at));
        self.wrong.map(|wrong| match (wrong, failed) {
            (WrongAnswer::Condition(_), Some(failed)) => failed.failure_message().to_owned(),
            (wrong, _) => wrong.to_string(),
        })
    }

    fn wrong_answer(&mut self, status: u16, length: u64) -> Option<WrongAnswer> {
        if let Some(GrpcStatus(status)) = &self.grpc
            && let Err(wrong) = grpc::verdict(status.as_deref())
        {
            return Some(wrong);
        }
        let expected = self.expected.as_ref()?;
        let mut json = None;
        for (at, (one, progress)) in expected.iter().zip(&self.progress).enumerate() {
            if self.is_too_long && one.needs_body() {
                return Some(WrongAnswer::BodyTooLong);
            }
            // `body!~error` would hold for every compressed error.
            if self.is_compressed && matches!(one.condition, Condition::Body(_) | Condition::Json { .. }) {
                return Some(WrongAnswer::BodyCompressed);
            }
            let is_met = match &one.condition {
                Condition::Status(ranges) => ranges.iter().any(|range| range.contains(&status)),
                Condition::Header { test, .. } | Condition::Body(test @ TextTest::Contains { .. }) => {
                    test.is_met(progress.is_found)
                }
                Condition::Body(test) => test.is_met(test.finds(&self.body)),
                Condition::Json { pointer, value, is_equal } => {
                    let document: &Option<Value> =
                        json.get_or_insert_with(|| serde_json::from_slice(&self.body).ok());
                    // A body that is not JSON fails both forms.
                    document.as_ref().is_some_and(|document| {
                        let found = document.pointer(pointer);
                        found.is_some_and(|found| is_same_json(found, value)) == *is_equal
                    })
                }
                Condition::Length(test) => test.0.contains(&length),
            };
            if !is_met {
                self.failed = Some(at);
                return Some(WrongAnswer::Condition(one.subject()));
            }
        }
        None
    }
}

/// True if two JSON values are equal; 1 and 1.0 are the same number.
fn is_same_json(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        _ => one == other,
    }
}

impl Progress {
    /// Searches for a text in new data, including matches that begin in earlier data.
    fn follow(&mut self, text: &Finder<'_>, data: &[u8]) {
        if self.is_found {
            return;
        }
        // At most this number of bytes of the text can be on the other side of a border.
        let most = text.needle().len() - 1;
        let before = self.tail.len();
        self.tail.extend_from_slice(&data[..data.len().min(most)]);
        self.is_found = before > 0 && text.find(&self.tail).is_some() || text.find(data).is_some();
        if data.len() >= most {
            self.tail.clear();
            self.tail.extend_from_slice(&data[data.len() - most..]);
        } else {
            self.tail.drain(..self.tail.len().saturating_sub(most));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_failure_reason::ExpectationSubject;

    const HEADERS: [(&str, &[u8]); 3] =
        [("Content-Type", b"application/json"), ("Via", b"a"), ("via", b"b 1.1")];

    fn check(conditions: &[&str]) -> ResponseCheck {
        let conditions = conditions.iter().map(|text| text.parse().unwrap()).collect();
        let mut check = ResponseCheck::default();
        check.set_expectations(ExpectationSet::new(conditions));
        check
    }

    /// Returns the verdict on a response whose body comes in parts of `step` bytes: the reason if the response is wrong.
    fn judged(conditions: &[&str], body: &[u8], step: usize) -> Option<String> {
        let mut check = check(conditions);
        check.check_headers(HEADERS.into_iter());
        body.chunks(step).for_each(|part| check.check_body_data(part));
        let verdict = check.verdict(200, body.len() as u64);
        assert_eq!(verdict.is_err(), check.reason().is_some());
        check.reason()
    }

    #[test]
    fn a_text_is_found_wherever_the_body_is_cut() {
        let body = br#"{"a":"aab aaab","status":"ok"}"#;
        for step in 1..=body.len() {
            assert_eq!(
                judged(&["body~aaab", r#"body~"ok"}"#, "body~{", "body!~error"], body, step),
                None,
                "{step}"
            );
            assert_eq!(judged(&["body~okay"], body, step).unwrap(), r#"body lacks "okay""#, "{step}");
            assert_eq!(judged(&["body!~aaab"], body, step).unwrap(), r#"body contains "aaab""#, "{step}");
        }
        assert_eq!(judged(&["body~a"], b"", 1).unwrap(), r#"body lacks "a""#);
    }

    /// The reference is a naive search. Texts of two letters overlap themselves in all ways.
    #[test]
    fn the_search_across_borders_agrees_with_a_search_of_the_whole() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..5_000 {
            let letters = |random: &mut fastrand::Rng, n: usize| -> String {
                (0..n).map(|_| if random.bool() { 'a' } else { 'b' }).collect()
            };
            let (length, wanted) = (random.usize(0..20), random.usize(1..6));
            let (body, text) = (letters(&mut random, length), letters(&mut random, wanted));
            let step = random.usize(1..8);
            let is_met = judged(&[&format!("body~{text}")], body.as_bytes(), step).is_none();
            assert_eq!(is_met, body.contains(&text), "{body} {text} {step}");
        }
    }

    #[test]
    fn every_subject_is_tested_and_the_first_failure_is_the_reason() {
        let body = br#"{"status":"ok","n":1,"list":[{"a/b":null}]}"#;
        let met = [
            "status=2xx",
            "header:content-type=application/json",
            "header:VIA=b 1.1",
            "header:via!~nginx",
            "header:x-none!~a",
            "header:via=~^b",
            "json:/status=ok",
            "json:/n=1.0",
            "json:/list/0/a~1b=null",
            "json:/status!=no",
            "json:/none!=1",
            "body=~(?s)^\\{.*\\}$",
            "length>=10",
        ];
        assert_eq!(judged(&met, body, 7), None);
        for (failing, reason) in [
            ("status=204,3xx", "status is not 204,3xx"),
            ("header:content-type=application", r#"header content-type is not "application""#),
            ("header:x-none~a", r#"header x-none lacks "a""#),
            ("json:/status=no", r#"json:/status is not "no""#),
            ("json:/none=null", "json:/none is not null"),
            ("json:/status!=ok", r#"json:/status is "ok""#),
            ("body=~^x", r#"body does not match "^x""#),
            ("length<10", "length is not <10"),
        ] {
            let conditions = [&met[..], &[failing, "body~neither"]].concat();
            assert_eq!(judged(&conditions, body, 7).unwrap(), reason);
        }
        assert_eq!(judged(&["json:/a=1"], b"no JSON", 3).unwrap(), "json:/a is not 1");
        assert!(judged(&["json:/a!=1"], b"no JSON", 3).is_some());
    }

    #[test]
    fn a_body_beyond_a_mebibyte_is_not_kept_and_what_streams_has_no_limit() {
        let body = [&vec![b'x'; MOST_BODY][..], b"ok"].concat();
        assert_eq!(judged(&["body~ok", "length=1048578"], &body, 60_000), None);
        for condition in ["body=~ok", "json:/a=1"] {
            let mut check = check(&[condition]);
            check.check_headers(HEADERS.into_iter());
            body.chunks(60_000).for_each(|part| check.check_body_data(part));
            assert!(check.body.len() <= MOST_BODY);
            let verdict = check.verdict(200, body.len() as u64);
            assert_eq!(verdict, Err(RequestFault::WrongAnswer(WrongAnswer::BodyTooLong)));
            assert!(check.reason().unwrap().starts_with("body exceeds 1 MiB"), "{:?}", check.reason());
            check.clear();
            assert_eq!(check.body.capacity(), 0);
        }
        assert_eq!(judged(&["body=~x$"], &body[..MOST_BODY], 60_000), None);
    }

    /// `body!~error` held for compressed bodies whose text was an error, so a gate stood open.
    #[test]
    fn a_compressed_body_fails_every_condition_on_its_content() {
        for (encoding, fails) in [("gzip", true), ("Identity", false)] {
            for condition in ["body!~error", "body=~^x", "json:/a!=1"] {
                let mut check = check(&["length=1", "status=200", condition]);
                check.check_headers([("Content-Encoding", encoding.as_bytes())].into_iter());
                check.check_body_data(b"x");
                let compressed =
                    check.verdict(200, 1) == Err(RequestFault::WrongAnswer(WrongAnswer::BodyCompressed));
                assert_eq!(compressed, fails, "{condition} {encoding}");
            }
            let mut check = check(&["length=1"]);
            check.check_headers([("content-encoding", encoding.as_bytes())].into_iter());
            assert_eq!(check.verdict(200, 1), Ok(200));
        }
    }

    #[test]
    fn a_status_that_is_an_error_stays_that_error() {
        let mut check = check(&["body~ok", "status=200"]);
        check.check_headers(HEADERS.into_iter());
        assert_eq!(check.verdict(503, 0), Ok(503));
        assert_eq!(check.reason(), None);
        check.check_headers(HEADERS.into_iter());
        let body = WrongAnswer::Condition(ExpectationSubject::Body);
        assert_eq!(check.verdict(200, 0), Err(RequestFault::WrongAnswer(body)));
    }

    #[test]
    fn a_grpc_status_in_the_trailers_replaces_that_of_the_head() {
        let judged = |head: Option<&[u8]>, trailer: Option<&[u8]>| {
            let mut check = ResponseCheck::default();
            check.check_headers(HEADERS.into_iter());
            check.mark_as_grpc(head);
            trailer.into_iter().for_each(|status| check.set_grpc_trailer_status(status));
            check.verdict(200, 0).err().and(check.reason())
        };
        assert_eq!(judged(None, Some(b"0")), None);
        assert_eq!(judged(Some(b"0"), None), None);
        assert_eq!(judged(None, Some(b"14")).unwrap(), "grpc-status is 14 UNAVAILABLE");
        assert_eq!(judged(Some(b"8"), None).unwrap(), "grpc-status is 8 RESOURCE_EXHAUSTED");
        assert_eq!(judged(None, None).unwrap(), "grpc-status is missing");
    }
}
