//! The figures of a run, in memory that does not grow with the run.
//!
//! Each thread fills a [`LoadStats`] of its own and reports it at the end of each interval; the collector adds the reports up.
//! Latencies are kept per [`OutcomeClass`], in nanoseconds, in HDR histograms of three significant digits (stated error 0.1 %).
//! Targets are not distinguished here, where each would cost a third of a megabyte per class and thread: records and
//! [`TargetOutcomes`] distinguish them.
//!
//! Every request has three figures: *service time* (from the real send), *response time* (from the intended instant) and *send
//! lag* (between the two). A request that timed out is in its histograms with the time at which it was given up. If it timed out
//! before it had a connection, it has a response time and no service time. A request that failed before it had a connection, or
//! that was not even to be sent, has neither and is only counted.

mod histogram;
mod json;
mod packed;
mod status_counts;
mod wrong_answers;

use serde::{Deserialize, Serialize};

use crate::by_variant::StatsByVariant;
use crate::clock::Nanos;
use crate::completed_request::CompletedRequest;
use crate::request::{PreparedRequest, without_secrets};
use crate::request_failure_reason::{OutcomeClass, RequestFault, WrongAnswer};
use crate::response_samples::ResponseSamples;
use crate::target_outcomes::TargetOutcomes;

pub use histogram::LatencyHistogram;
pub use status_counts::StatusCounts;
pub use wrong_answers::WrongAnswerCounts;

/// The service times and response times of a group of requests: a class, a variant or all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestTimes {
    /// The time from the real send to the end.
    pub service_time: LatencyHistogram,
    /// The time from the intended instant to the end.
    pub response_time: LatencyHistogram,
}

impl RequestTimes {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.service_time.merge(&other.service_time);
        self.response_time.merge(&other.response_time);
    }

    fn clear(&mut self) {
        self.service_time.clear();
        self.response_time.clear();
    }
}

/// The figures of one thread in an interval, or of all threads in a run.
///
/// Requests that are due in the warm-up are excluded, and so is all that happens before its end, with two exceptions.
/// [`LoadStats::busy_poll_time`] includes the warm-up, like the CPU time of the whole trial. The times of lookups and handshakes
/// include it, because most of them occur in a warm-up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadStats {
    /// Requests whose first byte was sent.
    pub sent: u64,
    /// Requests that ended before their first byte was sent, such as those that waited for a connection in vain.
    pub no_connection: u64,
    /// Requests whose outcome is known, including those that were never sent.
    pub completed: u64,
    /// Sent requests that ended after the schedule.
    pub after_schedule: AfterSchedule,
    /// Responses by status, without wrong answers; `[0]` is status 100.
    pub statuses: StatusCounts,
    /// Failed requests by [`RequestFault::kind_index`].
    #[serde(with = "json::failures")]
    pub failures: [u64; RequestFault::KIND_COUNT],
    /// The error text of one failure of each kind.
    #[serde(with = "json::failure_examples")]
    pub failure_examples: [Option<Box<str>>; RequestFault::KIND_COUNT],
    /// Wrong answers by reason, such as `body lacks "ok"`.
    #[serde(default, skip_serializing_if = "WrongAnswerCounts::is_empty")]
    pub wrong_answers: WrongAnswerCounts,
    /// Statuses of wrong answers. [`LoadStats::statuses`] leaves wrong answers out, because it tells which responses are good.
    #[serde(default, skip_serializing_if = "StatusCounts::is_empty")]
    pub wrong_answer_statuses: StatusCounts,
    /// Bytes of response bodies.
    pub bytes_in: u64,
    /// Bytes of request bodies.
    pub bytes_out: u64,
    /// Connections opened, after the warm-up.
    pub connections: u64,
    /// Requests sent again because the server had closed an idle connection or had not processed them.
    pub retried: u64,
    /// Redirects followed.
    pub redirects: u64,
    /// Responses whose body length differs from the first response of their target; ab calls this a length failure.
    pub length_mismatch: u64,
    /// Records that were dropped because the results output blocked.
    pub records_dropped: u64,
    /// Time that sending threads waited because the results output blocked, summed over the threads.
    #[serde(rename = "output_blocked_seconds", with = "crate::duration_json")]
    pub output_blocked_time: Nanos,
    /// Time during which the in-flight bound was reached, summed over the threads.
    #[serde(rename = "saturated_seconds", with = "crate::duration_json")]
    pub saturated_time: Nanos,
    /// CPU time spent on busy polling, summed over the threads. The warm-up is included.
    #[serde(rename = "busy_poll_seconds", with = "crate::duration_json")]
    pub busy_poll_time: Nanos,
    /// The maximum number of requests in flight. [`LoadStats::merge`] keeps the larger one, which is right for intervals that
    /// follow each other; the engine adds the threads up.
    pub in_flight_peak: u64,
    /// The time from the intended to the real send. A request that never got a connection counts with its wait for one.
    pub send_lag: LatencyHistogram,
    /// The send lag of requests that had room when they were due: this generator caused it. Requests that waited for room are
    /// excluded, because when the response that made room could have been read is unknown.
    pub generator_lag: LatencyHistogram,
    /// The delay with which a sending thread looked at its clock, which it does ten times a second while it sends. The lag does
    /// not depend on the requests in flight.
    pub scheduler_lag: LatencyHistogram,
    /// Name lookups that were made for a request.
    pub lookup: LatencyHistogram,
    /// The duration of the TCP handshake of each connection, including those in the warm-up.
    pub connect: LatencyHistogram,
    /// The duration of the TLS handshake of each connection, including those in the warm-up.
    pub tls: LatencyHistogram,
    /// The time from the send until the last byte of the request was handed to the system.
    pub write: LatencyHistogram,
    /// The time from the send to the first byte of the response.
    pub first_byte: LatencyHistogram,
    /// The time from the first to the last byte of the response.
    pub body: LatencyHistogram,
    /// Outcomes by target and status; empty unless the plan asks for them.
    pub outcomes: TargetOutcomes,
    /// Outcomes by variant, for targets that have one.
    pub variants: StatsByVariant,
    /// Some responses of each outcome; none unless the plan asks for them.
    ///
    /// They are not part of the figures as data: responses may be secret, so intervals contain no head and no body.
    #[serde(skip)]
    pub response_samples: ResponseSamples,
    /// The outcome of each request that ended in an interval. It is empty unless the load asks for it, and empty in every sum of
    /// intervals. The requests of one thread follow those of another, each in the order in which they ended.
    #[serde(skip)]
    pub completed_requests: Vec<CompletedRequest>,
    /// Times by [`OutcomeClass`].
    #[serde(with = "json::classes")]
    pub classes: [RequestTimes; OutcomeClass::COUNT],
}

/// Requests that ended after the schedule did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AfterSchedule {
    /// Sent requests that ended, with or without a good response.
    pub completed: u64,
    /// Requests with a good response.
    pub good: u64,
}

/// One finished request.
#[derive(Debug, Clone, Copy)]
pub struct FinishedRequest {
    /// The index of its target.
    pub target_index: usize,
    /// The status of its complete response, or the reason why there is none.
    pub outcome: Result<u16, RequestFault>,
    /// The intended instant.
    pub due: Nanos,
    /// The time of the send; `None` if the request ended before it.
    pub sent_at: Option<Nanos>,
    /// The time of the first byte of the response, if one came.
    pub first_response_byte_at: Option<Nanos>,
    /// The time of the last byte, or of the failure.
    pub end: Nanos,
    /// Bytes of the response body.
    pub bytes_in: u64,
    /// Bytes of the request body.
    pub bytes_out: u64,
}

/// Lists every counter of a [`LoadStats`] that adds up, by value or borrowed.
macro_rules! counters {
    ($stats:expr $(, $($borrowed:tt)+)?) => {
        [
            $($($borrowed)+)? $stats.sent,
            $($($borrowed)+)? $stats.no_connection,
            $($($borrowed)+)? $stats.completed,
            $($($borrowed)+)? $stats.after_schedule.completed,
            $($($borrowed)+)? $stats.after_schedule.good,
            $($($borrowed)+)? $stats.bytes_in,
            $($($borrowed)+)? $stats.bytes_out,
            $($($borrowed)+)? $stats.connections,
            $($($borrowed)+)? $stats.retried,
            $($($borrowed)+)? $stats.redirects,
            $($($borrowed)+)? $stats.length_mismatch,
            $($($borrowed)+)? $stats.records_dropped,
            $($($borrowed)+)? $stats.output_blocked_time,
            $($($borrowed)+)? $stats.saturated_time,
            $($($borrowed)+)? $stats.busy_poll_time,
        ]
    };
}

impl LoadStats {
    /// Counts one finished request.
    #[inline]
    pub fn record_finished(&mut self, finished: &FinishedRequest) {
        self.completed += 1;
        self.bytes_in += finished.bytes_in;
        let class = match finished.outcome {
            Ok(status) => {
                self.statuses.record(status, 1);
                OutcomeClass::of_status(status)
            }
            Err(fault) => {
                self.failures[fault.kind_index()] += 1;
                self.failure_examples[fault.kind_index()].get_or_insert_with(|| fault.to_string().into());
                if !fault.was_attempted() {
                    return;
                }
                fault.class()
            }
        };
        // A failure without a connection takes nanoseconds and would read as a fast response. A wait that timed out is a lower
        // bound.
        if finished.sent_at.is_none() && class == OutcomeClass::Failed {
            return;
        }
        let times = &mut self.classes[class as usize];
        times.response_time.record(finished.end.saturating_sub(finished.due));
        let Some(sent) = finished.sent_at else { return };
        times.service_time.record(finished.end.saturating_sub(sent));
        self.bytes_out += finished.bytes_out;
        if let Some(first) = finished.first_response_byte_at {
            self.first_byte.record(first.saturating_sub(sent));
            self.body.record(finished.end.saturating_sub(first));
        }
    }

    /// Remembers the request of the first failure of a kind: an error text alone does not say which of several targets failed.
    #[cold]
    pub(crate) fn keep_failure_example(&mut self, fault: RequestFault, request: &PreparedRequest) {
        self.failure_examples[fault.kind_index()].get_or_insert_with(|| {
            let url = without_secrets(request.url());
            format!("{} {url}: {fault}", request.method()).into()
        });
    }

    /// Counts a wrong answer by its reason and status, which [`LoadStats::record_finished`] does not know.
    pub(crate) fn record_wrong_answer(&mut self, status: u16, reason: &str) {
        self.wrong_answers.record(reason, 1);
        self.wrong_answer_statuses.record(status, 1);
        let kind = RequestFault::WrongAnswer(WrongAnswer::NoGrpcStatus).kind_index();
        self.failure_examples[kind].get_or_insert_with(|| format!("wrong-answer: {reason}").into());
    }

    /// Returns the times of a class.
    #[must_use]
    pub fn times_of_class(&self, class: OutcomeClass) -> &RequestTimes {
        &self.classes[class as usize]
    }

    /// Returns the times of all classes: all sent requests and, in the response times, requests that timed out without a
    /// connection.
    #[must_use]
    pub fn all_times(&self) -> RequestTimes {
        let mut sum = RequestTimes::default();
        self.classes.iter().for_each(|times| sum.merge(times));
        sum
    }

    /// Counts a request that ended after the schedule.
    pub(crate) fn record_after_schedule(&mut self, finished: &FinishedRequest) {
        let good = finished.outcome.is_ok_and(|status| OutcomeClass::of_status(status) == OutcomeClass::Good);
        self.after_schedule.completed += u64::from(finished.sent_at.is_some());
        self.after_schedule.good += u64::from(good);
    }

    /// Returns the number of sent requests that ended, with or without a good response.
    #[must_use]
    pub fn ended_after_send_count(&self) -> u64 {
        let never_sent = RequestFault::NOT_ATTEMPTED.into_iter().map(|fault| self.fault_count(fault));
        never_sent.fold(self.completed.saturating_sub(self.no_connection), u64::saturating_sub)
    }

    /// Returns the number of complete responses with a status from 200 to 399, without wrong answers.
    #[must_use]
    pub fn good_count(&self) -> u64 {
        let good = self.statuses.iter().filter(|(status, _)| (200..400).contains(status));
        good.map(|(_, count)| count).fold(0, u64::saturating_add)
    }

    /// Returns all complete responses by status: wrong answers are counted with the status that the server sent.
    #[must_use]
    pub fn all_status_counts(&self) -> StatusCounts {
        let mut all = self.statuses.clone();
        all.merge(&self.wrong_answer_statuses);
        all
    }

    /// Returns the number of failures of this kind.
    #[must_use]
    pub fn fault_count(&self, fault: RequestFault) -> u64 {
        self.failures[fault.kind_index()]
    }

    /// Adds the figures of another thread or another interval, without the outcomes of single requests. Counters saturate,
    /// because figures that were read from a file can have any value.
    pub fn merge(&mut self, other: &Self) {
        let counters = self.counters_mut().into_iter().zip(other.counters());
        counters.for_each(|(ours, theirs)| *ours = ours.saturating_add(theirs));
        let failures = self.failures.iter_mut().zip(other.failures);
        failures.for_each(|(ours, theirs)| *ours = ours.saturating_add(theirs));
        self.in_flight_peak = self.in_flight_peak.max(other.in_flight_peak);
        self.statuses.merge(&other.statuses);
        for (ours, theirs) in self.failure_examples.iter_mut().zip(&other.failure_examples) {
            if ours.is_none() {
                ours.clone_from(theirs);
            }
        }
        self.wrong_answers.merge(&other.wrong_answers);
        self.wrong_answer_statuses.merge(&other.wrong_answer_statuses);
        self.outcomes.merge(&other.outcomes);
        self.variants.merge(&other.variants);
        self.response_samples.merge(&other.response_samples);
        let theirs = other.histograms();
        self.histograms_mut().into_iter().zip(theirs).for_each(|(ours, theirs)| ours.merge(theirs));
        self.classes.iter_mut().zip(&other.classes).for_each(|(ours, theirs)| ours.merge(theirs));
    }

    /// Adds the figures of another generator for the same time. The maximums in flight are added.
    pub fn merge_concurrent(&mut self, other: &Self) {
        let peak = self.in_flight_peak.saturating_add(other.in_flight_peak);
        self.merge(other);
        self.in_flight_peak = peak;
    }

    /// Returns the largest of all counters, without histograms. A reader can reject figures that are too large to be real.
    #[must_use]
    pub fn largest_counter(&self) -> u64 {
        let own = self.counters().into_iter().chain(self.failures).chain([self.in_flight_peak]);
        let statuses = self.statuses.iter().chain(self.wrong_answer_statuses.iter()).map(|(_, count)| count);
        let outcomes = self.outcomes.iter().map(|(_, outcome)| outcome.largest_counter());
        let variants = self.variants.iter().map(|(_, figures)| figures.completed.max(figures.good));
        let wrong = self.wrong_answers.iter().map(|(_, count)| count);
        own.chain(statuses).chain(wrong).chain(outcomes).chain(variants).max().unwrap_or(0)
    }

    /// Makes empty figures and allocates the histograms that every request and every connection uses, so that the first requests
    /// are not slower.
    pub(crate) fn preallocated() -> Box<Self> {
        let mut stats = Box::<Self>::default();
        stats.reserve();
        stats
    }

    fn reserve(&mut self) {
        let Self { send_lag, generator_lag, connect, write, first_byte, body, .. } = self;
        [send_lag, generator_lag, connect, write, first_byte, body]
            .into_iter()
            .for_each(LatencyHistogram::reserve_usual_latencies);
        let RequestTimes { service_time, response_time } = &mut self.classes[OutcomeClass::Good as usize];
        [service_time, response_time].into_iter().for_each(LatencyHistogram::reserve_usual_latencies);
    }

    /// Removes all figures and keeps the memory.
    pub fn clear(&mut self) {
        self.histograms_mut().into_iter().for_each(LatencyHistogram::clear);
        self.classes.iter_mut().for_each(RequestTimes::clear);
        let classes = std::mem::take(&mut self.classes);
        let [send_lag, generator_lag, scheduler_lag, lookup, connect, tls, write, first_byte, body] =
            self.histograms_mut().map(std::mem::take);
        let (mut outcomes, mut fates) =
            (std::mem::take(&mut self.outcomes), std::mem::take(&mut self.completed_requests));
        outcomes.clear();
        fates.clear();
        *self = Self {
            classes,
            outcomes,
            completed_requests: fates,
            send_lag,
            generator_lag,
            scheduler_lag,
            lookup,
            connect,
            tls,
            write,
            first_byte,
            body,
            ..Self::default()
        };
    }

    /// Returns the counters that add up.
    fn counters(&self) -> [u64; 15] {
        counters!(self)
    }

    /// Returns the counters that add up, in the same order, for changes.
    fn counters_mut(&mut self) -> [&mut u64; 15] {
        counters!(self, &mut)
    }

    fn histograms(&self) -> [&LatencyHistogram; 9] {
        let Self {
            send_lag,
            generator_lag,
            scheduler_lag,
            lookup,
            connect,
            tls,
            write,
            first_byte,
            body,
            ..
        } = self;
        [send_lag, generator_lag, scheduler_lag, lookup, connect, tls, write, first_byte, body]
    }

    fn histograms_mut(&mut self) -> [&mut LatencyHistogram; 9] {
        let Self {
            send_lag,
            generator_lag,
            scheduler_lag,
            lookup,
            connect,
            tls,
            write,
            first_byte,
            body,
            ..
        } = self;
        [send_lag, generator_lag, scheduler_lag, lookup, connect, tls, write, first_byte, body]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(outcome: Result<u16, RequestFault>, due: Nanos, sent: Nanos, end: Nanos) -> FinishedRequest {
        FinishedRequest {
            target_index: 0,
            outcome,
            due,
            sent_at: Some(sent),
            first_response_byte_at: None,
            end,
            bytes_in: 1,
            bytes_out: 2,
        }
    }

    #[test]
    fn a_stalled_send_is_in_the_response_time_and_not_in_the_service_time() {
        let mut stats = LoadStats::default();
        stats.record_finished(&finished(Ok(200), 0, 1_000, 1_500));
        let times = stats.times_of_class(OutcomeClass::Good);
        assert_eq!((times.service_time.max(), times.response_time.max()), (500, 1_500));
    }

    #[test]
    fn timeouts_are_in_the_histograms_and_what_was_never_sent_is_only_counted() {
        let mut stats = LoadStats::default();
        stats.record_finished(&finished(Err(RequestFault::Timeout), 0, 0, 1_000));
        stats.record_finished(&finished(Err(RequestFault::Dropped), 0, 0, 0));
        assert_eq!((stats.completed, stats.all_times().response_time.count()), (2, 1));
        assert_eq!(
            (stats.fault_count(RequestFault::Timeout), stats.fault_count(RequestFault::Dropped)),
            (1, 1)
        );
        assert_eq!(stats.times_of_class(OutcomeClass::TimedOut).response_time.max(), 1_000);
    }

    /// A name that was not found in 198 ns used to be the median response time.
    #[test]
    fn a_failure_without_a_connection_is_in_no_latency_and_a_wait_that_timed_out_is() {
        let mut stats = LoadStats::default();
        let without = |fault| FinishedRequest { sent_at: None, ..finished(Err(fault), 0, 0, 1_000) };
        stats.record_finished(&without(RequestFault::Resolve(
            crate::request_failure_reason::NameFault::NoHost,
        )));
        stats.record_finished(&without(RequestFault::Connect(std::io::ErrorKind::ConnectionRefused)));
        assert_eq!((stats.completed, stats.all_times().response_time.count()), (2, 0));
        stats.record_finished(&without(RequestFault::NoConnection));
        assert_eq!((stats.completed, stats.all_times().response_time.count()), (3, 1));
        stats.record_finished(&finished(Err(RequestFault::ClosedEarly), 0, 0, 1_000));
        assert_eq!((stats.completed, stats.all_times().response_time.count()), (4, 2));
    }

    #[test]
    fn a_wrong_answer_has_times_of_its_own_and_is_not_good() {
        let mut stats = LoadStats::default();
        let wrong = RequestFault::WrongAnswer(WrongAnswer::Grpc(14));
        stats.record_wrong_answer(200, "grpc-status is 14 UNAVAILABLE");
        stats.record_finished(&finished(Err(wrong), 0, 1_000, 1_500));
        assert_eq!((stats.good_count(), stats.ended_after_send_count(), stats.fault_count(wrong)), (0, 1, 1));
        assert_eq!(stats.all_status_counts().iter().collect::<Vec<_>>(), [(200, 1)]);
        assert!(stats.statuses.is_empty());
        assert_eq!(stats.times_of_class(OutcomeClass::WrongAnswer).service_time.max(), 500);
        let example = stats.failure_examples[wrong.kind_index()].as_deref().unwrap();
        assert_eq!(example, "wrong-answer: grpc-status is 14 UNAVAILABLE");
        let json = serde_json::to_string(&stats).unwrap();
        assert_eq!(serde_json::from_str::<LoadStats>(&json).unwrap(), stats);
    }

    /// Files of intervals that were written before there were conditions can still be read.
    #[test]
    fn figures_without_wrong_answers_do_not_mention_them() {
        let json = serde_json::to_string(&LoadStats::default()).unwrap();
        assert!(!json.contains("wrong"), "{json}");
        assert_eq!(serde_json::from_str::<LoadStats>(&json).unwrap(), LoadStats::default());
    }

    #[test]
    fn what_never_had_a_connection_has_no_service_time_and_did_not_go_out() {
        let mut stats = LoadStats::default();
        stats.record_finished(&FinishedRequest {
            sent_at: None,
            ..finished(Err(RequestFault::NoConnection), 0, 0, 1_000)
        });
        let times = stats.times_of_class(OutcomeClass::TimedOut);
        assert_eq!((times.response_time.max(), times.service_time.count(), stats.bytes_out), (1_000, 0, 0));
    }

    /// A forged file of intervals can have such counters.
    #[test]
    fn sums_that_no_counter_holds_end_at_its_end() {
        let mut most = LoadStats {
            in_flight_peak: u64::MAX,
            failures: [u64::MAX; RequestFault::KIND_COUNT],
            ..LoadStats::default()
        };
        most.counters_mut().into_iter().for_each(|counter| *counter = u64::MAX);
        most.statuses.0.fill(u64::MAX);
        let mut sum = most.clone();
        sum.merge_concurrent(&most);
        sum.merge(&most);
        assert_eq!(
            (sum.completed, sum.busy_poll_time, sum.good_count(), sum.ended_after_send_count()),
            (u64::MAX, u64::MAX, u64::MAX, 0)
        );
        assert_eq!((sum.in_flight_peak, sum.failures), (u64::MAX, most.failures));
        assert!(sum == most && sum.largest_counter() == u64::MAX);
    }

    #[test]
    fn the_largest_counter_is_found_wherever_it_stands() {
        let hit = finished(Ok(200), 0, 0, 1);
        let mut stats = LoadStats::default();
        assert_eq!(stats.largest_counter(), 0);
        (0..3).for_each(|_| stats.outcomes.record_finished(&hit));
        assert_eq!(stats.largest_counter(), 6, "bytes of requests");
        (0..7).for_each(|_| stats.variants.record_finished("v", &hit));
        assert_eq!(stats.largest_counter(), 7);
        stats.statuses.record(200, 8);
        assert_eq!(stats.largest_counter(), 8);
        stats.failures[0] = 9;
        assert_eq!(stats.largest_counter(), 9);
        stats.after_schedule.good = 10;
        assert_eq!(stats.largest_counter(), 10);
        (0..11).for_each(|_| stats.record_wrong_answer(200, "body lacks \"ok\""));
        assert_eq!(stats.largest_counter(), 11);
    }

    #[test]
    fn adding_is_exact_and_clearing_forgets() {
        let mut one = LoadStats::default();
        one.record_finished(&finished(Ok(200), 0, 0, 1_000));
        one.send_lag.record(5);
        let mut sum = LoadStats::default();
        sum.record_finished(&finished(Ok(503), 0, 0, 2_000));
        sum.merge(&one);
        assert_eq!(sum.statuses.iter().collect::<Vec<_>>(), [(200, 1), (503, 1)]);
        assert_eq!(
            (sum.completed, sum.good_count(), sum.send_lag.count(), sum.all_times().service_time.count()),
            (2, 1, 1, 2)
        );
        sum.clear();
        assert_eq!((sum.completed, sum.send_lag.count(), sum.all_times().service_time.count()), (0, 0, 0));
        assert_eq!(sum.statuses.iter().count(), 0);
    }
}
