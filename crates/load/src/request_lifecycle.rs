//! The course of a request between the schedule and the accounts: it is sent, answered, redirected, retried or given up.

use crate::clock::Nanos;
use crate::fault::{OutcomeClass, RequestFault};
use crate::in_flight::InFlightKey;
use crate::poller::EventPoller;
use crate::schedule::Arrival;
use crate::sender::SenderLoop;
use crate::transport::pool::ConnectionPool;
use crate::transport::retry::{RetryDecision, RetryPolicy, retry};
use crate::transport::{ArrivalTime, RequestEvent, RequestLocation, TransportContext, TransportFailure};

impl SenderLoop {
    pub(crate) fn launch(&mut self, hit: Arrival) {
        let now = self.progress.now;
        let deadline = hit.due.saturating_add(self.rules.deadline);
        if deadline <= now {
            return self.never_sent(hit, RequestFault::Shed);
        }
        let Some((which, target)) = self.supply.select_request(hit.seq) else {
            return self.never_sent(hit, RequestFault::Template);
        };
        let generator_lag =
            self.accounting.record_launch(hit, now, self.progress.room_since, self.flights.len() + 1);
        let expires = deadline.min(now.saturating_add(self.rules.timeout));
        let key = self.flights.insert(hit, which, target, expires);
        let flight = self.flights.get_mut(key);
        flight.generator_lag = generator_lag;
        flight.answer.expect(self.supply.expected(&flight.request));
        self.run_transport(|pool, now, desk| pool.assign(key, now, desk));
    }

    /// Has the transport do something, and looks after what it tells.
    #[inline]
    pub(crate) fn run_transport(
        &mut self,
        act: impl FnOnce(&mut ConnectionPool<EventPoller>, Nanos, &mut TransportContext<'_>),
    ) {
        self.instruct(act);
        while let Some(event) = self.pool.next_event() {
            self.handle_request_event(event);
        }
    }

    /// The same where [`SenderLoop::run_transport`] is at work.
    #[inline]
    fn instruct(
        &mut self,
        act: impl FnOnce(&mut ConnectionPool<EventPoller>, Nanos, &mut TransportContext<'_>),
    ) {
        let now = self.progress.now;
        let stats = &mut self.accounting.stats;
        let connections = stats.connections;
        let mut desk = TransportContext { flights: &mut self.flights, supply: &self.supply, stats };
        act(&mut self.pool, now, &mut desk);
        self.accounting.record_transport_work(connections, now);
    }

    /// Handles an event of a request in flight. Later events must not have earlier times. Events of requests of an earlier trial are in no figures.
    #[inline]
    fn handle_request_event(&mut self, event: RequestEvent) {
        if !self.flights.is_current(event.key()) {
            return;
        }
        match event {
            RequestEvent::Sent(key, at) => self.record_sent(key, at),
            RequestEvent::Wrote(key, at) => {
                self.advance(at);
                self.accounting.record_written(self.flights.get_mut(key), at);
            }
            RequestEvent::Head(key, at) => self.flights.get_mut(key).begin_answer(at),
            RequestEvent::Done(key, at) => {
                self.advance(at.seen);
                self.finish_answered(key, at);
            }
            RequestEvent::Failed(failure) => {
                self.advance(failure.at);
                self.restart_or_fail(failure);
            }
            RequestEvent::NoConnection(key, fault) => self.fail(key, fault),
        }
    }

    /// A flight's timeout counts from its first send: what it waited for a connection was not the server's time.
    #[inline]
    fn record_sent(&mut self, key: InFlightKey, at: Nanos) {
        let flight = self.flights.get_mut(key);
        if flight.sent.is_some() {
            return;
        }
        flight.sent = Some(at);
        self.accounting.record_sent(flight, at);
        let deadline = flight.hit.due.saturating_add(self.rules.deadline);
        let expires = deadline.min(at.saturating_add(self.rules.timeout));
        if expires > flight.expires {
            self.flights.postpone(key, expires);
        }
    }

    /// A flight with a complete answer is done or redirected.
    fn finish_answered(&mut self, key: InFlightKey, at: ArrivalTime) {
        // The figures of the interval before have been handed over.
        let interval_begins = self.progress.interval_end.saturating_sub(self.rules.interval);
        let flight = self.flights.get_mut(key);
        let end = flight.end_of_answer(at).max(interval_begins);
        flight.place = RequestLocation::Nowhere;
        match (flight.answer.location.take(), self.rules.redirects) {
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
        match self.supply.redirected(&flight.request, status, location) {
            Err(_) => self.finish(key, Err(RequestFault::BadLocation), end),
            Ok(which) => {
                flight.redirects += 1;
                let redirected = std::mem::replace(&mut flight.request, which);
                flight.original_request.get_or_insert(redirected);
                flight.answer.clear();
                self.accounting.record_redirect(flight.hit);
                self.instruct(|pool, now, desk| pool.assign(key, now, desk));
            }
        }
    }

    /// Sends a failed request again, or records its failure. The latency of a request that is sent again includes the lost time.
    fn restart_or_fail(&mut self, failure: TransportFailure) {
        let TransportFailure { key, cause, progress, reused, .. } = failure;
        let flight = self.flights.get_mut(key);
        let idempotent = self.supply.request(&flight.request).is_idempotent();
        let policy = if self.rules.retries { RetryPolicy::GO } else { RetryPolicy::NONE };
        let again = retry(progress, reused, idempotent, flight.retries, policy);
        if again == RetryDecision::GiveUp {
            return self.fail(key, cause);
        }
        flight.place = RequestLocation::Nowhere;
        flight.retries += 1;
        flight.answer.clear();
        self.accounting.record_retry(flight.hit);
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
        self.flights.get_mut(key).place = RequestLocation::Nowhere;
        self.finish(key, Err(fault), self.progress.now);
    }

    /// Gives up what has taken too long.
    #[inline]
    pub(crate) fn expire(&mut self) {
        while let Some(key) = self.flights.expired(self.progress.now) {
            let flight = self.flights.get_mut(key);
            let by_deadline = flight.expires == flight.hit.due.saturating_add(self.rules.deadline);
            let fault = match flight.place {
                _ if by_deadline => RequestFault::Deadline,
                RequestLocation::Waiting(_) => RequestFault::NoConnection,
                RequestLocation::Nowhere | RequestLocation::OnConnection(_) => RequestFault::Timeout,
            };
            self.give_up(key, fault);
        }
    }

    pub(crate) fn give_up(&mut self, key: InFlightKey, fault: RequestFault) {
        self.run_transport(|pool, _, desk| pool.cancel(key, desk));
        self.finish(key, Err(fault), self.progress.now);
    }

    /// Counts, records and forgets a flight, which may have ended before this thread came to know.
    fn finish(&mut self, key: InFlightKey, outcome: Result<u16, RequestFault>, end: Nanos) {
        let flight = self.flights.get_mut(key);
        self.accounting.record_finished(flight, outcome, end, &self.supply);
        self.flights.remove(key);
        let is_good = outcome.is_ok_and(|status| OutcomeClass::of_status(status) == OutcomeClass::Good);
        if is_good || !self.paused_slots.begin(self.progress.now) {
            self.end_saturation();
        }
    }

    pub(crate) fn never_sent(&mut self, hit: Arrival, fault: RequestFault) {
        self.accounting.record_never_sent(hit, fault, self.progress.now, &self.supply);
    }
}
