//! The accounting of one thread for the requests of a trial: figures, the counts for the error budget, and records if the run
//! writes them.
//!
//! The send loop reports what happened and when; this module decides what counts. At the end of each interval the thread sends
//! its figures to the collector, which sends an empty [`LoadStats`] back, so that no thread waits for another.

use std::sync::mpsc::{Receiver, Sender};

use crate::clock::{Nanos, RunClock};
use crate::completed_request::CompletedRequest;
use crate::in_flight::InFlightRequest;
use crate::record::{ConnectionTimings, Record, RecordedConnection, Zone, ZonedTimestamp};
use crate::record_output::Recorder;
use crate::request::PreparedRequest;
use crate::request_failure_reason::{OutcomeClass, RequestFault};
use crate::request_source::SenderRequests;
use crate::schedule::Arrival;
use crate::stats::{FinishedRequest, LoadStats};
use crate::target_outcomes::MAX_TARGETS;
use crate::transport::response_parser::ReceivedResponse;

/// The settings of the accounting, which are the same for all threads of a trial. All instants are session time.
#[derive(Debug, Clone)]
pub(crate) struct AccountingConfig {
    /// The start of the trial.
    pub(crate) trial_start: Nanos,
    /// The end of the warm-up. Requests that are due before it are sent and not counted.
    pub(crate) warm_up_end: Nanos,
    /// The planned end of the schedule.
    pub(crate) schedule_end: Nanos,
    /// True for a closed loop, whose requests have no send lag.
    pub(crate) is_closed_loop: bool,
    /// True to count outcomes by target and status, too.
    pub(crate) collect_target_outcomes: bool,
    /// The maximum number of body bytes in a record.
    pub(crate) max_body: usize,
    /// The function that is called with the length of each body that is longer than `max_body`.
    pub(crate) cut_body_callback: Option<fn(u64)>,
    /// The maximum number of responses that are kept of each outcome.
    pub(crate) max_samples_per_outcome: usize,
    /// True to report each completed request with the interval in which the request ended.
    pub(crate) report_each_request: bool,
    /// True to write the timings of the connection into each record.
    pub(crate) write_connection_timings: bool,
    /// The name of the attack in the records.
    pub(crate) attack_name: String,
}

impl AccountingConfig {
    /// Converts the outcome of a request to the time of the trial.
    fn fate(
        &self,
        finished: &FinishedRequest,
        generator_lag: Nanos,
        retries: u32,
        carrier: Option<ConnectionTimings>,
    ) -> CompletedRequest {
        let since = |at: Nanos| at.saturating_sub(self.trial_start);
        CompletedRequest {
            target_index: finished.target_index,
            due: since(finished.due),
            sent_at: finished.sent_at.map(since),
            generator_lag,
            end: since(finished.end),
            outcome: finished.outcome,
            response_body_bytes: finished.bytes_in,
            retries,
            connection_timings: carrier,
        }
    }

    fn carriage_of(&self, carrier: Option<ConnectionTimings>) -> RecordedConnection {
        let told = carrier.map_or(RecordedConnection::None, RecordedConnection::Timings);
        if self.write_connection_timings { told } else { RecordedConnection::ConnectionNotRecorded }
    }
}

/// The figures that a thread gives to the collector.
#[derive(Debug)]
pub(crate) struct SenderReport {
    pub(crate) sender_index: usize,
    pub(crate) interval_stats: Box<LoadStats>,
    /// The end of the interval of these figures.
    pub(crate) interval_end: Nanos,
    /// True if the thread has ended.
    pub(crate) ended: bool,
}

/// The channels between a thread and the collector.
#[derive(Debug)]
pub(crate) struct CollectorLink {
    pub(crate) sender_index: usize,
    pub(crate) report_channel: Sender<SenderReport>,
    pub(crate) spare_stats_channel: Receiver<Box<LoadStats>>,
}

/// The accounting of one thread.
pub(crate) struct Accounting {
    /// The figures since the last report to the collector.
    pub(crate) stats: Box<LoadStats>,
    counting: AccountingConfig,
    clock: RunClock,
    tally: OutcomeTally,
    lengths: BodyLengths,
    recorder: Option<Recorder>,
    collection: CollectorLink,
}

/// The number of outcomes so far, and the number of those that are not good.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct OutcomeTally {
    pub(crate) done: u64,
    pub(crate) errors: u64,
}

impl Accounting {
    pub(crate) fn new(
        counting: AccountingConfig,
        clock: RunClock,
        recorder: Option<Recorder>,
        collection: CollectorLink,
    ) -> Self {
        Self {
            stats: LoadStats::preallocated(),
            counting,
            clock,
            tally: OutcomeTally::default(),
            lengths: BodyLengths::default(),
            recorder,
            collection,
        }
    }

    pub(crate) fn tally(&self) -> OutcomeTally {
        self.tally
    }

    /// Sets the end of the schedule to `at` if `at` is earlier than the present end.
    pub(crate) fn limit_schedule_end(&mut self, at: Nanos) {
        self.counting.schedule_end = self.counting.schedule_end.min(at);
    }

    /// Records that a request is sent, with the number of requests in flight. `room_since` is the time since which the in-flight
    /// bound has not been reached. Returns the request's generator lag, see [`CompletedRequest::generator_lag`].
    #[inline]
    pub(crate) fn record_launch(
        &mut self,
        hit: Arrival,
        now: Nanos,
        room_since: Nanos,
        in_flight: usize,
    ) -> Nanos {
        if !self.counts(hit) {
            return 0;
        }
        self.stats.in_flight_peak = self.stats.in_flight_peak.max(in_flight as u64);
        if self.counting.is_closed_loop || hit.due < room_since {
            return 0;
        }
        let generator_lag = now.saturating_sub(hit.due);
        self.stats.generator_lag.record(generator_lag);
        generator_lag
    }

    /// True if the request is due after the warm-up.
    #[inline]
    fn counts(&self, hit: Arrival) -> bool {
        hit.due >= self.counting.warm_up_end
    }

    /// Adds the time since `since`, during which the in-flight bound was reached. The warm-up is excluded.
    pub(crate) fn record_saturated_time(&mut self, since: Nanos, now: Nanos) {
        self.stats.saturated_time += now.saturating_sub(since.max(self.counting.warm_up_end));
    }

    /// During the warm-up, sets the connection count back to `connections`, so that connections opened then are not counted.
    #[inline]
    pub(crate) fn exclude_warm_up_connections(&mut self, connections: u64, now: Nanos) {
        if now < self.counting.warm_up_end {
            self.stats.connections = connections;
        }
    }

    /// Counts a redirect that is followed.
    pub(crate) fn record_redirect(&mut self, hit: Arrival) {
        self.stats.redirects += u64::from(self.counts(hit));
    }

    /// Counts a retry.
    pub(crate) fn record_retry(&mut self, hit: Arrival) {
        self.stats.retried += u64::from(self.counts(hit));
    }

    /// Records the scheduler lag of a look at the clock that was due at `due`, and of the looks that were due each `every` since.
    pub(crate) fn record_scheduler_lag(&mut self, due: Nanos, now: Nanos, every: Nanos) {
        let all = (due..=now).step_by(usize::try_from(every).unwrap_or(usize::MAX));
        for due in all.filter(|&due| due >= self.counting.warm_up_end) {
            self.stats.scheduler_lag.record(now - due);
        }
    }

    /// Records that the first byte of a request was sent.
    #[inline]
    pub(crate) fn record_sent(&mut self, flight: &InFlightRequest, at: Nanos) {
        if self.counts(flight.scheduled_arrival) {
            self.stats.sent += 1;
            self.late(flight.scheduled_arrival, at);
        }
    }

    #[inline]
    fn late(&mut self, hit: Arrival, at: Nanos) {
        if !self.counting.is_closed_loop {
            self.stats.send_lag.record(at.saturating_sub(hit.due));
        }
    }

    /// Records that the last byte of a request was handed to the system.
    #[inline]
    pub(crate) fn record_write_time(&mut self, flight: &InFlightRequest, now: Nanos) {
        if self.counts(flight.scheduled_arrival) {
            self.stats.write.record(now.saturating_sub(flight.sent_at.unwrap_or(now)));
        }
    }

    /// Records the outcome of a request that was in flight.
    pub(crate) fn record_finished(
        &mut self,
        flight: &mut InFlightRequest,
        outcome: Result<u16, RequestFault>,
        end: Nanos,
        supply: &SenderRequests,
    ) {
        if !self.counts(flight.scheduled_arrival) {
            return;
        }
        // As in vegeta, a result is about the original request, even if a redirect led to another origin.
        let request = supply.request(flight.original_request.as_ref().unwrap_or(&flight.request));
        let finished = finished(flight, request, outcome, end);
        if finished.sent_at.is_none() {
            self.stats.no_connection += 1;
            self.late(flight.scheduled_arrival, end);
        }
        match outcome {
            Ok(_) => {}
            Err(RequestFault::WrongAnswer(_)) => self.record_wrong_answer(flight),
            Err(fault) => self.stats.keep_failure_example(fault, request),
        }
        // Targets that are read during the run count as one, and have no first response.
        let is_listed = !supply.is_read_during_run();
        let other =
            outcome.is_ok() && is_listed && self.lengths.is_other(flight.target_index, finished.bytes_in);
        self.stats.length_mismatch += u64::from(other);
        self.count(&finished);
        if let Some(variant) = &request.origin().variant {
            self.stats.variants.record_finished(&variant.name, &finished);
        }
        if self.counting.max_samples_per_outcome > 0 {
            let at = end.saturating_sub(self.counting.trial_start);
            self.stats.response_samples.keep(
                self.counting.max_samples_per_outcome,
                outcome,
                at,
                &flight.answer,
            );
        }
        if self.counting.report_each_request {
            let (lag, retries) = (flight.generator_lag, flight.retries);
            self.stats.completed_requests.push(self.counting.fate(&finished, lag, retries, carrier(flight)));
        }
        if let Some(recorder) = &mut self.recorder {
            let carriage = self.counting.carriage_of(carrier(flight));
            let max_body = self.counting.max_body;
            if let Some(warn) =
                self.counting.cut_body_callback.filter(|_| finished.bytes_in > max_body as u64)
            {
                warn(finished.bytes_in);
            }
            let (seq, ReceivedResponse { capture: kept, check, .. }) =
                (flight.scheduled_arrival.seq, &mut flight.answer);
            recorder.record(|record| {
                fill(record, &finished, seq, &self.clock, &self.counting.attack_name);
                name_request(record, request);
                kept.move_into(record, outcome, check.as_deref());
                record.response_body.truncate(max_body);
                record.connection = carriage;
            });
        }
    }

    /// Records the mistake in a wrong response, which the fault alone does not name.
    #[cold]
    #[inline(never)]
    fn record_wrong_answer(&mut self, flight: &InFlightRequest) {
        if let Some(reason) = flight.answer.check.as_ref().and_then(|check| check.reason()) {
            self.stats.record_wrong_answer(flight.answer.status, &reason);
        }
    }

    /// Counts and records a request that ended without being sent.
    pub(crate) fn record_never_sent(
        &mut self,
        hit: Arrival,
        fault: RequestFault,
        now: Nanos,
        supply: &SenderRequests,
    ) {
        if !self.counts(hit) {
            return;
        }
        let finished = FinishedRequest {
            target_index: supply.target_index(hit.seq),
            outcome: Err(fault),
            due: hit.due,
            sent_at: None,
            first_response_byte_at: None,
            end: now,
            bytes_in: 0,
            bytes_out: 0,
        };
        self.count(&finished);
        if let Some(variant) = supply.variant_name(hit.seq) {
            self.stats.variants.record_finished(variant, &finished);
        }
        if self.counting.report_each_request {
            self.stats.completed_requests.push(self.counting.fate(&finished, 0, 0, None));
        }
        if let Some(recorder) = &mut self.recorder {
            let picked = supply.select_request(hit.seq);
            let carriage = self.counting.carriage_of(None);
            recorder.record(|record| {
                fill(record, &finished, hit.seq, &self.clock, &self.counting.attack_name);
                record.connection = carriage;
                if let Some((which, _)) = &picked {
                    name_request(record, supply.request(which));
                }
                record.error.push_str(&fault.to_string());
            });
        }
    }

    #[inline]
    fn count(&mut self, finished: &FinishedRequest) {
        self.stats.record_finished(finished);
        self.tally.count(finished);
        if finished.end > self.counting.schedule_end {
            self.stats.record_after_schedule(finished);
        }
        if self.counting.collect_target_outcomes {
            self.stats.outcomes.record_finished(finished);
        }
    }

    /// Hands the pending records to the writer.
    pub(crate) fn flush_records(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }

    /// Sends the figures to the collector if an empty [`LoadStats`] is available to replace them; otherwise keeps them.
    pub(crate) fn hand_over_stats(&mut self, to: Nanos, ended: bool) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
            self.stats.output_blocked_time += std::mem::take(&mut recorder.output_blocked_time);
            self.stats.records_dropped += std::mem::take(&mut recorder.lost);
        }
        let CollectorLink { sender_index: sender, report_channel: harvest, spare_stats_channel: spare } =
            &self.collection;
        let empty = if ended { Some(Box::default()) } else { spare.try_recv().ok() };
        if let Some(empty) = empty {
            let stats = std::mem::replace(&mut self.stats, empty);
            // The collector outlives the threads; without it the figures are not needed.
            let _ = harvest.send(SenderReport {
                sender_index: *sender,
                interval_stats: stats,
                interval_end: to,
                ended,
            });
        }
    }
}

impl OutcomeTally {
    #[inline]
    fn count(&mut self, finished: &FinishedRequest) {
        let good = finished.outcome.is_ok_and(|status| OutcomeClass::of_status(status) == OutcomeClass::Good);
        self.done += 1;
        self.errors += u64::from(!good);
    }
}

/// Body lengths by target, to detect responses whose length differs from the first one.
#[derive(Debug, Default)]
struct BodyLengths(Vec<Option<u64>>);

impl BodyLengths {
    #[inline]
    fn is_other(&mut self, target: usize, length: u64) -> bool {
        if target >= MAX_TARGETS {
            return false;
        }
        if target >= self.0.len() {
            self.0.resize(target + 1, None);
        }
        *self.0[target].get_or_insert(length) != length
    }
}

fn finished(
    flight: &InFlightRequest,
    request: &PreparedRequest,
    outcome: Result<u16, RequestFault>,
    end: Nanos,
) -> FinishedRequest {
    FinishedRequest {
        target_index: flight.target_index,
        outcome,
        due: flight.scheduled_arrival.due,
        sent_at: flight.sent_at,
        first_response_byte_at: flight.first_response_byte_at,
        end,
        bytes_in: flight.answer.bytes_in,
        bytes_out: request.body_length,
    }
}

/// Fills the parts of a record that do not depend on the response. The caller passes an empty record.
fn fill(record: &mut Record, finished: &FinishedRequest, seq: u64, clock: &RunClock, name: &str) {
    record.attack.push_str(name);
    record.seq = seq;
    record.due_timestamp = ZonedTimestamp::from_unix_ns(clock.unix_ns(finished.due), Zone::Utc);
    record.latency_ns = i64::try_from(finished.end.saturating_sub(finished.due)).unwrap_or(i64::MAX);
    record.bytes_out = finished.bytes_out;
    record.bytes_in = finished.bytes_in;
}

/// Returns the timings of the connection that carried a request last.
fn carrier(flight: &InFlightRequest) -> Option<ConnectionTimings> {
    let first_byte =
        flight.first_response_byte_at.zip(flight.sent_at).map(|(first, sent)| first.saturating_sub(sent));
    flight.connection_timings.map(|carrier| ConnectionTimings { first_byte, ..carrier })
}

fn name_request(record: &mut Record, request: &PreparedRequest) {
    record.method.push_str(request.method());
    record.url.push_str(request.url());
}
