//! What becomes of a hit between the schedule and the books: sent, answered, sent on or again, given up.

use crate::clock::Nanos;
use crate::fault::{Class, Fault};
use crate::flights::FlightKey;
use crate::poller::Poller;
use crate::schedule::Hit;
use crate::shard::Shard;
use crate::transport::pool::Pool;
use crate::transport::retry::{Again, Policy, retry};
use crate::transport::{Desk, Event, Failure, Place};

impl Shard {
    pub(crate) fn launch(&mut self, hit: Hit) {
        let now = self.progress.now;
        let deadline = hit.due.saturating_add(self.rules.deadline);
        if deadline <= now {
            return self.never_sent(hit, Fault::Shed);
        }
        let Some((which, target)) = self.supply.pick(hit.seq) else {
            return self.never_sent(hit, Fault::Template);
        };
        let own_lag = self.books.launched(hit, now, self.progress.room_since, self.flights.len() + 1);
        let expires = deadline.min(now.saturating_add(self.rules.timeout));
        let key = self.flights.insert(hit, which, target, expires);
        self.flights.of(key).own_lag = own_lag;
        self.travel(|pool, now, desk| pool.place(key, now, desk));
    }

    /// Has the transport do something, and looks after what it tells.
    #[inline]
    pub(crate) fn travel(&mut self, act: impl FnOnce(&mut Pool<Poller>, Nanos, &mut Desk<'_>)) {
        self.instruct(act);
        while let Some(event) = self.pool.next_event() {
            self.note(event);
        }
    }

    /// The same where [`Shard::travel`] is at work.
    #[inline]
    fn instruct(&mut self, act: impl FnOnce(&mut Pool<Poller>, Nanos, &mut Desk<'_>)) {
        let now = self.progress.now;
        let stats = &mut self.books.stats;
        let connections = stats.connections;
        let mut desk = Desk { flights: &mut self.flights, supply: &self.supply, stats };
        act(&mut self.pool, now, &mut desk);
        self.books.travelled(connections, now);
    }

    /// What follows must not be dated before what has been told. What is told of a flight of an earlier trial is in no
    /// figures.
    #[inline]
    fn note(&mut self, event: Event) {
        if !self.flights.is_current(event.flight()) {
            return;
        }
        match event {
            Event::Sent(key, at) => self.sent(key, at),
            Event::Wrote(key, at) => {
                self.advance(at);
                self.books.written(self.flights.of(key), at);
            }
            Event::Head(key, at) => _ = self.flights.of(key).first_byte.get_or_insert(at),
            Event::Done(key, at) => {
                self.advance(at);
                self.conclude(key);
            }
            Event::Failed(failure) => {
                self.advance(failure.at);
                self.restart_or_fail(failure);
            }
            Event::Unreached(key, fault) => self.fail(key, fault),
        }
    }

    /// A flight's timeout counts from its first send: what it waited for a connection was not the server's time.
    #[inline]
    fn sent(&mut self, key: FlightKey, at: Nanos) {
        let flight = self.flights.of(key);
        if flight.sent.is_some() {
            return;
        }
        flight.sent = Some(at);
        self.books.sent(flight, at);
        let deadline = flight.hit.due.saturating_add(self.rules.deadline);
        let expires = deadline.min(at.saturating_add(self.rules.timeout));
        if expires > flight.expires {
            self.flights.postpone(key, expires);
        }
    }

    /// A flight with a complete answer is done or redirected.
    fn conclude(&mut self, key: FlightKey) {
        let flight = self.flights.of(key);
        flight.place = Place::Nowhere;
        let status = flight.answer.status;
        match (flight.answer.location.take(), self.rules.redirects) {
            (Some(location), Some(most)) => self.redirect(key, status, &location, most),
            _ => self.finish(key, Ok(status)),
        }
    }

    fn redirect(&mut self, key: FlightKey, status: u16, location: &str, most: u32) {
        let flight = self.flights.of(key);
        if flight.redirects >= most {
            return self.finish(key, Err(Fault::Redirects));
        }
        match self.supply.redirected(&flight.which, status, location) {
            Err(_) => self.finish(key, Err(Fault::Location)),
            Ok(which) => {
                flight.redirects += 1;
                let redirected = std::mem::replace(&mut flight.which, which);
                flight.first.get_or_insert(redirected);
                flight.answer.clear();
                self.books.redirected(flight.hit);
                self.instruct(|pool, now, desk| pool.place(key, now, desk));
            }
        }
    }

    /// What goes out again has the time that it lost in its latency.
    fn restart_or_fail(&mut self, failure: Failure) {
        let Failure { key, cause, progress, reused, .. } = failure;
        let flight = self.flights.of(key);
        let idempotent = self.supply.request(&flight.which).is_idempotent();
        let policy = if self.rules.retries { Policy::GO } else { Policy::NONE };
        let again = retry(progress, reused, idempotent, flight.retries, policy);
        if again == Again::No {
            return self.fail(key, cause);
        }
        flight.place = Place::Nowhere;
        flight.retries += 1;
        flight.answer.clear();
        self.books.retried(flight.hit);
        match again {
            Again::Fresh => self.instruct(|pool, now, desk| pool.place_fresh(key, now, desk)),
            Again::No | Again::Anywhere => self.instruct(|pool, now, desk| pool.place(key, now, desk)),
        }
    }

    fn fail(&mut self, key: FlightKey, fault: Fault) {
        self.flights.of(key).place = Place::Nowhere;
        self.finish(key, Err(fault));
    }

    /// Gives up what has taken too long.
    #[inline]
    pub(crate) fn expire(&mut self) {
        while let Some(key) = self.flights.expired(self.progress.now) {
            let flight = self.flights.of(key);
            let by_deadline = flight.expires == flight.hit.due.saturating_add(self.rules.deadline);
            let fault = match flight.place {
                _ if by_deadline => Fault::Deadline,
                Place::Waiting(_) => Fault::Unconnected,
                Place::Nowhere | Place::On(_) => Fault::Timeout,
            };
            self.give_up(key, fault);
        }
    }

    pub(crate) fn give_up(&mut self, key: FlightKey, fault: Fault) {
        self.travel(|pool, _, desk| pool.cancel(key, desk));
        self.finish(key, Err(fault));
    }

    /// Counts, records and forgets a flight.
    fn finish(&mut self, key: FlightKey, outcome: Result<u16, Fault>) {
        let flight = self.flights.of(key);
        self.books.finished(flight, outcome, self.progress.now, &self.supply);
        self.flights.remove(key);
        let is_good = outcome.is_ok_and(|status| Class::of_status(status) == Class::Good);
        if is_good || !self.resting.begin(self.progress.now) {
            self.make_room();
        }
    }

    pub(crate) fn never_sent(&mut self, hit: Hit, fault: Fault) {
        self.books.never_sent(hit, fault, self.progress.now, &self.supply);
    }
}
