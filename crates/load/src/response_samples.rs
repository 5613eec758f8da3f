//! A few responses of each outcome as they came, so that a surprising figure can be examined.
//!
//! Samples are kept only if [`crate::engine::LoadSpec::max_response_samples_per_outcome`] asks for them: the first ones of each interval and
//! thread. Their number and size are bounded, because a server chooses its responses. The outcomes are those of
//! [`crate::target_outcomes`].

use crate::clock::Nanos;
use crate::request_failure_reason::RequestFault;
use crate::target_outcomes::RequestOutcome;
use crate::transport::response_parser::ReceivedResponse;

/// The maximum number of body bytes that are kept.
pub const MAX_BODY_BYTES: usize = 1024;

/// The maximum number of head bytes that are kept.
const HEAD: usize = 4096;

/// The maximum number of outcomes that are distinguished.
const MOST_OUTCOMES: usize = 32;

/// One response, or the part of it that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseSample {
    /// The outcome of the request.
    pub outcome: RequestOutcome,
    /// The time when the request ended, in the time of the trial.
    pub ended_at: Nanos,
    /// The status of the response, also if it was truncated; 0 without a response.
    pub status: u16,
    /// Its header lines by name, each with CRLF, up to 4 KiB.
    pub header_lines: Vec<u8>,
    /// The first bytes of its body, at most [`MAX_BODY_BYTES`].
    pub body: Vec<u8>,
    /// The fault, if the request failed.
    pub fault: Option<RequestFault>,
}

/// The samples of an interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseSamples {
    /// The maximum number of samples of each outcome.
    most: usize,
    samples: Vec<ResponseSample>,
}

impl ResponseSamples {
    /// Returns the samples in the order in which they were kept.
    pub fn iter(&self) -> impl Iterator<Item = &ResponseSample> {
        self.samples.iter()
    }

    /// Keeps a response, unless there are enough samples of its outcome.
    pub(crate) fn keep(
        &mut self,
        most: usize,
        outcome: Result<u16, RequestFault>,
        at: Nanos,
        answer: &ReceivedResponse,
    ) {
        self.most = most;
        let kind =
            outcome.map_or_else(|fault| RequestOutcome::Fault(fault.kind_index()), RequestOutcome::Status);
        if self.wants(kind) {
            let body = &answer.capture.body[..answer.capture.body.len().min(MAX_BODY_BYTES)];
            self.samples.push(ResponseSample {
                outcome: kind,
                ended_at: at,
                status: answer.status,
                header_lines: head(answer),
                body: body.to_owned(),
                fault: outcome.err(),
            });
        }
    }

    fn wants(&self, kind: RequestOutcome) -> bool {
        let of_its_kind = self.samples.iter().filter(|sample| sample.outcome == kind).count();
        // The maximum number of samples also bounds the number of outcomes.
        of_its_kind < self.most && self.samples.len() < MOST_OUTCOMES * self.most
    }

    /// Adds the samples of another thread or another interval.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.most = self.most.max(other.most);
        for sample in &other.samples {
            if self.wants(sample.outcome) {
                self.samples.push(sample.clone());
            }
        }
    }
}

fn head(answer: &ReceivedResponse) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in answer.capture.headers.iter() {
        if head.len() >= HEAD {
            break;
        }
        [name, b": ", value, b"\r\n"].iter().for_each(|part| head.extend_from_slice(part));
    }
    head.truncate(HEAD);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, size: usize) -> ReceivedResponse {
        let mut answer = ReceivedResponse { status, ..ReceivedResponse::default() };
        answer.capture.headers.push_canonical(b"X-Long", &vec![b'x'; size]);
        answer.capture.body = vec![b'y'; size];
        answer
    }

    #[test]
    fn so_many_of_each_outcome_are_kept_and_no_more_of_any() {
        let mut samples = ResponseSamples::default();
        for at in 0..10 {
            samples.keep(2, Ok(200), at, &answer(200, 10));
            samples.keep(2, Err(RequestFault::Truncated), at, &answer(500, 100_000));
        }
        let told: Vec<_> = samples
            .iter()
            .map(|sample| (sample.ended_at, sample.status, sample.header_lines.len(), sample.body.len()))
            .collect();
        assert_eq!(
            told,
            [
                (0, 200, 20, 10),
                (0, 500, HEAD, MAX_BODY_BYTES),
                (1, 200, 20, 10),
                (1, 500, HEAD, MAX_BODY_BYTES)
            ]
        );
        let mut sum = samples.clone();
        sum.merge(&samples);
        assert_eq!(sum.iter().count(), 4);
    }

    #[test]
    fn a_server_that_invents_statuses_fills_no_memory() {
        let mut samples = ResponseSamples::default();
        for status in 100..1000 {
            samples.keep(3, Ok(status), 0, &answer(status, 1));
        }
        assert_eq!(samples.iter().count(), 3 * MOST_OUTCOMES);
    }
}
