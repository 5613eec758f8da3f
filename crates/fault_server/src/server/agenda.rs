//! The schedule of due events, earliest first. Events at the same time keep their order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use super::NanosSinceStart;
use super::connection::ConnectionToken;
use crate::model::{PlannedResponse, RequestProgress};

/// A request between its arrival and its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub(super) connection: ConnectionToken,
    pub(super) progress: RequestProgress,
    pub(super) is_head: bool,
}

#[derive(Debug)]
pub(super) enum DueEvent {
    /// The request enters the faults when its connection is ready.
    Enter(PendingRequest),
    Proceed(PendingRequest),
    End(PendingRequest, PlannedResponse),
    /// The connection may have more input.
    ReadMore(ConnectionToken),
    /// The connection may have been idle for too long.
    CheckIdle(ConnectionToken),
    /// Accept again after a lack of file descriptors.
    Accept,
    DnsAnswer(SocketAddr, Vec<u8>),
}

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    entries: BinaryHeap<Reverse<Entry>>,
    put: u64,
}

#[derive(Debug)]
struct Entry {
    at: NanosSinceStart,
    number: u64,
    due: DueEvent,
}

/// The most events at one time: the excess of a hanging limiter (20,000/s for 30 s), and some more.
const MOST: usize = 1 << 20;

impl EventQueue {
    /// Adds an event.
    ///
    /// # Errors
    /// The event itself if the schedule is full.
    pub(super) fn push(&mut self, at: NanosSinceStart, due: DueEvent) -> Result<(), DueEvent> {
        if self.entries.len() >= MOST {
            return Err(due);
        }
        self.put += 1;
        self.entries.push(Reverse(Entry { at, number: self.put, due }));
        Ok(())
    }

    pub(super) fn next_due_time(&self) -> Option<NanosSinceStart> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event that is due.
    pub(super) fn pop_due(&mut self, now: NanosSinceStart) -> Option<(NanosSinceStart, DueEvent)> {
        let is_due = self.next_due_time().is_some_and(|at| at <= now);
        let Reverse(entry) = is_due.then(|| self.entries.pop()).flatten()?;
        Some((entry.at, entry.due))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_order_of_time_and_then_of_putting_down() {
        let mut agenda = EventQueue::default();
        for (at, port) in [(5, 1), (3, 2), (5, 3), (9, 4)] {
            agenda.push(at, DueEvent::DnsAnswer(([127, 0, 0, 1], port).into(), Vec::new())).unwrap();
        }
        let mut ports = Vec::new();
        while let Some((_, DueEvent::DnsAnswer(to, _))) = agenda.pop_due(5) {
            ports.push(to.port());
        }
        assert_eq!((ports, agenda.next_due_time()), (vec![2, 1, 3], Some(9)));
    }

    #[test]
    fn no_more_is_put_down_than_there_is_room_for() {
        let mut agenda = EventQueue::default();
        assert!((0..MOST).all(|_| agenda.push(1, DueEvent::Accept).is_ok()));
        assert!(agenda.push(1, DueEvent::Accept).is_err());
        let _ = agenda.pop_due(1);
        assert!(agenda.push(1, DueEvent::Accept).is_ok());
    }
}
