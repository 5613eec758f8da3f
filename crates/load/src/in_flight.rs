//! The requests in flight on one thread, in the order in which they expire.
//!
//! A table of fixed slots that are reused with their buffers, and a list of the slots in order of expiry. Requests expire a
//! constant time after their send, so a new request nearly always belongs at the end of the list. Adding, removing and finding
//! the first request take constant time for any number of requests. The table is exact to the nanosecond, where a timer wheel
//! would round.

use std::sync::Arc;

use crate::clock::Nanos;
use crate::record::ConnectionTimings;
use crate::request::PreparedRequest;
use crate::schedule::Arrival;
use crate::transport::response_parser::ReceivedResponse;
use crate::transport::{ArrivalTime, RequestLocation};

/// The key of a request in flight: its slot, and the generation of the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlightKey {
    slot: u32,
    generation: u32,
}

/// A reference to the request in flight.
#[derive(Debug, Clone)]
pub(crate) enum RequestRef {
    /// The index of a request in the run's list.
    Listed(usize),
    /// A request that is not in the list: read during the run, filled from a template, or made by a redirect.
    Owned(Arc<PreparedRequest>),
}

/// One request, from the time when the schedule returns it to its outcome.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    pub(crate) scheduled_arrival: Arrival,
    pub(crate) request: RequestRef,
    /// The request that was sent first, if a redirect was followed.
    pub(crate) original_request: Option<RequestRef>,
    /// The index of its target in the statistics.
    pub(crate) target_index: usize,
    /// The time by which this machine sent the request late.
    pub(crate) generator_lag: Nanos,
    /// The time when the first byte of the request left.
    pub(crate) sent_at: Option<Nanos>,
    pub(crate) first_response_byte_at: Option<Nanos>,
    /// The connection that carried it last, if the run keeps connection timings.
    pub(crate) connection_timings: Option<ConnectionTimings>,
    /// The time when the request is given up.
    pub(crate) expires: Nanos,
    /// The number of the trial that it belongs to.
    trial: u64,
    pub(crate) transport_location: RequestLocation,
    pub(crate) redirects: u32,
    /// The number of retries.
    pub(crate) retries: u32,
    pub(crate) answer: ReceivedResponse,
}

#[derive(Debug)]
struct Slot {
    flight: InFlightRequest,
    generation: u32,
    used: bool,
    earlier: u32,
    later: u32,
}

impl InFlightRequest {
    /// Records the arrival of the first byte of the response.
    #[inline]
    pub(crate) fn record_first_byte(&mut self, at: ArrivalTime) {
        let sent = self.sent_at.unwrap_or(at.read_at);
        self.first_response_byte_at.get_or_insert(at.for_request_sent_at(sent));
    }

    /// Returns the time when the response was complete.
    #[inline]
    pub(crate) fn response_end_time(&self, at: ArrivalTime) -> Nanos {
        at.for_request_sent_at(self.sent_at.unwrap_or(at.read_at))
            .max(self.first_response_byte_at.unwrap_or(0))
    }
}

/// The table of all requests in flight on one thread.
#[derive(Debug)]
pub(crate) struct InFlightTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    first: u32,
    last: u32,
    /// The number of the trial that new requests belong to.
    trial: u64,
}

/// The end of a list.
const NONE: u32 = u32::MAX;

impl InFlightTable {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), first: NONE, last: NONE, trial: 0 }
    }

    /// Sets the trial that new requests belong to.
    pub(crate) fn begin_trial(&mut self, trial: u64) {
        self.trial = trial;
    }

    /// Returns the number of requests in flight.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a request and returns its key.
    pub(crate) fn insert(
        &mut self,
        hit: Arrival,
        which: RequestRef,
        target: usize,
        expires: Nanos,
    ) -> InFlightKey {
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        let entry = &mut self.slots[slot as usize];
        entry.used = true;
        let flight = &mut entry.flight;
        (flight.scheduled_arrival, flight.request, flight.original_request, flight.target_index) =
            (hit, which, None, target);
        (flight.expires, flight.transport_location, flight.trial) =
            (expires, RequestLocation::Nowhere, self.trial);
        (flight.sent_at, flight.first_response_byte_at, flight.connection_timings) = (None, None, None);
        (flight.redirects, flight.retries) = (0, 0);
        let generation = entry.generation;
        self.link(slot);
        InFlightKey { slot, generation }
    }

    fn grow(&mut self) -> u32 {
        let flight = InFlightRequest {
            scheduled_arrival: Arrival { seq: 0, due: 0 },
            request: RequestRef::Listed(0),
            original_request: None,
            target_index: 0,
            generator_lag: 0,
            sent_at: None,
            first_response_byte_at: None,
            connection_timings: None,
            expires: 0,
            trial: 0,
            transport_location: RequestLocation::Nowhere,
            redirects: 0,
            retries: 0,
            answer: ReceivedResponse::default(),
        };
        self.slots.push(Slot { flight, generation: 0, used: false, earlier: NONE, later: NONE });
        // The in-flight bound is far below 2^32; the engine checks it.
        (self.slots.len() - 1) as u32
    }

    /// Moves the expiry of a request to a later time.
    pub(crate) fn postpone_expiry(&mut self, key: InFlightKey, expires: Nanos) {
        self.unlink(key.slot);
        self.get_mut(key).expires = expires;
        self.link(key.slot);
    }

    /// Removes a request. Its buffers stay in the slot.
    pub(crate) fn remove(&mut self, key: InFlightKey) {
        self.unlink(key.slot);
        let entry = &mut self.slots[key.slot as usize];
        entry.used = false;
        entry.generation = entry.generation.wrapping_add(1);
        (entry.flight.request, entry.flight.original_request) = (RequestRef::Listed(0), None);
        entry.flight.answer.clear();
        self.free.push(key.slot);
    }

    /// True if the key names a request in flight of the current trial. Events of other requests are ignored.
    #[inline]
    pub(crate) fn is_current(&self, key: InFlightKey) -> bool {
        let slot = &self.slots[key.slot as usize];
        slot.used && slot.generation == key.generation && slot.flight.trial == self.trial
    }

    /// Returns the request of a key that was not removed.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: InFlightKey) -> &mut InFlightRequest {
        &mut self.slots[key.slot as usize].flight
    }

    /// Returns the time when the first request expires.
    #[inline]
    pub(crate) fn first_expiry(&self) -> Nanos {
        self.slots.get(self.first as usize).map_or(Nanos::MAX, |slot| slot.flight.expires)
    }

    /// Returns a request that has expired by `now`.
    pub(crate) fn next_expired(&self, now: Nanos) -> Option<InFlightKey> {
        self.first_to_expire().filter(|_| self.first_expiry() <= now)
    }

    /// Returns the request that expires first.
    pub(crate) fn first_to_expire(&self) -> Option<InFlightKey> {
        let slot = self.slots.get(self.first as usize)?;
        Some(InFlightKey { slot: self.first, generation: slot.generation })
    }

    /// Inserts a slot behind all slots that expire at the same time or earlier.
    fn link(&mut self, slot: u32) {
        let expires = self.slots[slot as usize].flight.expires;
        let mut earlier = self.last;
        while earlier != NONE && self.slots[earlier as usize].flight.expires > expires {
            earlier = self.slots[earlier as usize].earlier;
        }
        let later = if earlier == NONE { self.first } else { self.slots[earlier as usize].later };
        self.join(earlier, slot);
        self.join(slot, later);
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { earlier, later, .. } = self.slots[slot as usize];
        self.join(earlier, later);
    }

    /// Makes two slots neighbours; `NONE` is the end of the list on its side.
    fn join(&mut self, earlier: u32, later: u32) {
        match self.slots.get_mut(earlier as usize) {
            Some(slot) => slot.later = later,
            None => self.first = later,
        }
        match self.slots.get_mut(later as usize) {
            Some(slot) => slot.earlier = earlier,
            None => self.last = earlier,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(flights: &mut InFlightTable, expires: Nanos) -> InFlightKey {
        flights.insert(Arrival { seq: expires, due: 0 }, RequestRef::Listed(0), 0, expires)
    }

    fn drain(flights: &mut InFlightTable) -> Vec<Nanos> {
        std::iter::from_fn(|| {
            let key = flights.first_to_expire()?;
            let expires = flights.get_mut(key).expires;
            flights.remove(key);
            Some(expires)
        })
        .collect()
    }

    #[test]
    fn they_expire_in_order_whatever_the_order_they_came_in() {
        let mut flights = InFlightTable::new();
        for expires in [5, 3, 9, 3, 1, 7] {
            add(&mut flights, expires);
        }
        assert_eq!(flights.next_expired(0), None);
        assert_eq!(flights.first_expiry(), 1);
        assert_eq!(drain(&mut flights), [1, 3, 3, 5, 7, 9]);
        assert_eq!((flights.len(), flights.first_expiry()), (0, Nanos::MAX));
    }

    #[test]
    fn one_that_is_postponed_has_its_new_place() {
        let mut flights = InFlightTable::new();
        let keys = [5, 3, 9].map(|expires| add(&mut flights, expires));
        flights.postpone_expiry(keys[1], 7);
        flights.postpone_expiry(keys[0], 11);
        assert_eq!(drain(&mut flights), [7, 9, 11]);
    }

    #[test]
    fn a_slot_is_used_again_under_another_key() {
        let mut flights = InFlightTable::new();
        let first = add(&mut flights, 1);
        let second = add(&mut flights, 2);
        flights.remove(first);
        let third = add(&mut flights, 3);
        assert_eq!((third.slot, flights.len(), flights.slots.len()), (first.slot, 2, 2));
        assert!(!flights.is_current(first) && flights.is_current(second));
        assert_eq!(drain(&mut flights), [2, 3]);
    }

    #[test]
    fn what_comes_of_a_flight_of_an_earlier_trial_is_not_the_next_ones() {
        let mut flights = InFlightTable::new();
        let earlier = add(&mut flights, 1);
        flights.begin_trial(1);
        let present = add(&mut flights, 2);
        assert!(!flights.is_current(earlier) && flights.is_current(present));
    }
}
