//! The course of a request between the schedule and the accounts: it is sent, answered, redirected, retried or given up.

use crate::clock::Nanos;
use crate::in_flight::InFlightKey;
use crate::poller::EventPoller;
use crate::request_failure_reason::{OutcomeClass, RequestFault};
use crate::schedule::Arrival;
use crate::sender::SenderLoop;
use crate::transport::pool::ConnectionPool;
use crate::transport::retry::{RetryDecision, RetryPolicy, decide_retry};
use crate::transport::{ArrivalTime, RequestEvent, RequestLocation, TransportContext, TransportFailure};

impl SenderLoop {
    pub(crate) fn launch(&mut self, hit: Arrival) {
        let now = self.state.now;
        let deadline = hit.due.saturating_add(self.config.deadline);
        if deadline <= now {
            return self.record_never_sent(hit, RequestFault::DeadlineBeforeSend);
        }
        let Some((which, target)) = self.requests.select_request(hit.seq) else {
            return self.record_never_sent(hit, RequestFault::InvalidFilledTemplate);
        };
        let generator_lag =
            self.accounting.record_launch(hit, now, self.state.room_since, self.flights.len() + 1);
        let expires = deadline.min(now.saturating_add(self.config.timeout));
        let key = self.flights.insert(hit, which, target, expires);
        let flight = self.flights.get_mut(key);
        flight.generator_lag = generator_lag;
        flight.answer.set_expectations(self.requests.expectations(&flight.request));
        self.act_on_transport(|pool, now, desk| pool.assign(key, now, desk));
    }

    /// Runs an action of the transport and handles the events that it reports.
    #[inline]
    pub(crate) fn act_on_transport(
        &mut self,
        act: impl FnOnce(&mut ConnectionPool<EventPoller>, Nanos, &mut TransportContext<'_>),
    ) {
        self.instruct(act);
        while let Some(event) = self.pool.next_event() {
            self.handle_request_event(event);
        }
    }

    /// Runs an action of the transport while [`SenderLoop::act_on_transport`] handles events.
    #[inline]
    fn instruct(
        &mut self,
        act: impl FnOnce(&mut ConnectionPool<EventPoller>, Nanos, &mut TransportContext<'_>),
    ) {
        let now = self.state.now;
        let stats = &mut self.accounting.stats;
        let connections = stats.connections;
        let mut desk = TransportContext { flights: &mut self.flights, requests: &self.requests, stats };
        act(&mut self.pool, now, &mut desk);
        self.accounting.exclude_warm_up_connections(connections, now);
    }

    /// Handles an event of a request in flight. Later events must not have earlier times. Events of requests of an earlier trial
    /// are ignored.
    #[inline]
    fn handle_request_event(&mut self, event: RequestEvent) {
        if !self.flights.is_current(event.key()) {
            return;
        }
        match event {
            RequestEvent::Sent(key, at) => self.record_sent(key, at),
            RequestEvent::Wrote(key, at) => {
                self.advance_time_to(at);
                self.accounting.record_write_time(self.flights.get_mut(key), at);
            }
            RequestEvent::FirstResponseByte(key, at) => self.flights.get_mut(key).record_first_byte(at),
            RequestEvent::Done(key, at) => {
                self.advance_time_to(at.read_at);
                self.finish_answered(key, at);
            }
            RequestEvent::Failed(failure) => {
                self.advance_time_to(failure.at);
                self.restart_or_fail(failure);
            }
            RequestEvent::NoConnection(key, fault) => self.fail(key, fault),
        }
    }

    /// Records that a request was sent. Its timeout counts from its first send, because its wait for a connection was not the
    /// server's time.
    #[inline]
    fn record_sent(&mut self, key: InFlightKey, at: Nanos) {
        let flight = self.flights.get_mut(key);
        if flight.sent_at.is_some() {
            return;
        }
        flight.sent_at = Some(at);
        self.accounting.record_sent(flight, at);
        let deadline = flight.scheduled_arrival.due.saturating_add(self.config.deadline);
        let expires = deadline.min(at.saturating_add(self.config.timeout));
        if expires > flight.expires {
            self.flights.postpone_expiry(key, expires);
        }
    }

    /// Ends a request with a complete response, or follows its redirect.
    fn finish_answered(&mut self, key: InFlightKey, at: ArrivalTime) {
        // The figures of the interval before have been handed over.
        let interval_begins = self.state.interval_end.saturating_sub(self.config.interval);
        let flight = self.flights.get_mut(key);
        let end = flight.response_end_time(at).max(interval_begins);
        flight.transport_location = RequestLocation::Nowhere;
        match (flight.answer.location.take(), self.config.max_redirects) {
            (Some(location), Some(most)) => {
                let status = flight.answer.status;
                self.redirect(key, status, &location, most, end);
            }
            _ => {
                let outcome = flight.answer.verdict();
                self.finish(key, outcome, end);
            }
        }
    }

    fn redirect(&mut self, key: InFlightKey, status: u16, location: &str, most: u32, end: Nanos) {
        let flight = self.flights.get_mut(key);
        if flight.redirects >= most {
            return self.finish(key, Err(RequestFault::TooManyRedirects), end);
        }
        match self.requests.redirected(&flight.request, status, location) {
            Err(_) => self.finish(key, Err(RequestFault::BadLocation), end),
            Ok(which) => {
                flight.redirects += 1;
                let redirected = std::mem::replace(&mut flight.request, which);
                flight.original_request.get_or_insert(redirected);
                flight.answer.clear();
                self.accounting.record_redirect(flight.scheduled_arrival);
                self.instruct(|pool, now, desk| pool.assign(key, now, desk));
            }
        }
    }

    /// Sends a failed request again, or records its failure. The latency of a request that is sent again includes the lost time.
    fn restart_or_fail(&mut self, failure: TransportFailure) {
        let TransportFailure { key, cause, stage: progress, reused, .. } = failure;
        let flight = self.flights.get_mut(key);
        let idempotent = self.requests.request(&flight.request).is_idempotent();
        let policy = if self.config.retries_enabled { RetryPolicy::GO_CLIENT } else { RetryPolicy::NONE };
        let again = decide_retry(progress, reused, idempotent, flight.retries, policy);
        if again == RetryDecision::GiveUp {
            return self.fail(key, cause);
        }
        flight.transport_location = RequestLocation::Nowhere;
        flight.retries += 1;
        flight.answer.clear();
        self.accounting.record_retry(flight.scheduled_arrival);
        match again {
            RetryDecision::NewConnection => {
                self.instruct(|pool, now, desk| pool.assign_to_new_connection(key, now, desk));
            }
            RetryDecision::GiveUp | RetryDecision::AnyConnection => {
                self.instruct(|pool, now, desk| pool.assign(key, now, desk));
            }
        }
    }

    fn fail(&mut self, key: InFlightKey, fault: RequestFault) {
        self.flights.get_mut(key).transport_location = RequestLocation::Nowhere;
        self.finish(key, Err(fault), self.state.now);
    }

    /// Gives up the requests that have expired.
    #[inline]
    pub(crate) fn expire(&mut self) {
        while let Some(key) = self.flights.next_expired(self.state.now) {
            let flight = self.flights.get_mut(key);
            let by_deadline =
                flight.expires == flight.scheduled_arrival.due.saturating_add(self.config.deadline);
            let fault = match flight.transport_location {
                _ if by_deadline => RequestFault::Deadline,
                RequestLocation::Waiting(_) => RequestFault::NoConnection,
                RequestLocation::Nowhere | RequestLocation::OnConnection(_) => RequestFault::Timeout,
            };
            self.give_up(key, fault);
        }
    }

    pub(crate) fn give_up(&mut self, key: InFlightKey, fault: RequestFault) {
        self.act_on_transport(|pool, _, desk| pool.cancel(key, desk));
        self.finish(key, Err(fault), self.state.now);
    }

    /// Counts, records and removes a request. `end` may be earlier than now.
    fn finish(&mut self, key: InFlightKey, outcome: Result<u16, RequestFault>, end: Nanos) {
        let flight = self.flights.get_mut(key);
        self.accounting.record_finished(flight, outcome, end, &self.requests);
        self.flights.remove(key);
        let is_good = outcome.is_ok_and(|status| OutcomeClass::of_status(status) == OutcomeClass::Good);
        if is_good || !self.paused_slots.begin(self.state.now) {
            self.end_saturation();
        }
    }

    pub(crate) fn record_never_sent(&mut self, hit: Arrival, fault: RequestFault) {
        self.accounting.record_never_sent(hit, fault, self.state.now, &self.requests);
    }
}
