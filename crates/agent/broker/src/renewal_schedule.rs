//! The schedule of renewals: one task with one timetable. The schedule identifies cache entries (`S`) by id, and does not
//! interpret their principals (`P`).
//!
//! A cache entry has at most one row in the timetable, and the schedule removes the row when the entry is dropped. A pod can
//! request any number of principals one after another. Without this limit, a pod could fill the memory with rows.

use std::collections::{BTreeSet, HashMap};

use seawall_core::{Clock, Moment};
use tokio::sync::mpsc;

/// A message to the task of the schedule.
#[derive(Debug)]
pub(crate) enum ScheduleMessage<S, P> {
    /// The renewal of this cache entry is due at this time. This time replaces the time of any earlier message for the entry.
    Due(Moment, u64, S),
    /// The cache entry with this id was dropped.
    Removed(u64, P),
}

pub(crate) trait RenewalHandler<S, P> {
    /// Handles a cache entry that is due.
    fn on_due(&self, slot: &S);
    /// Handles a cache entry that was dropped.
    fn on_removed(&self, principal: &P);
}

/// Runs the schedule until all senders of messages are dropped.
pub(crate) async fn run<S, P>(
    watcher: impl RenewalHandler<S, P>,
    clock: Clock,
    mut notices: mpsc::UnboundedReceiver<ScheduleMessage<S, P>>,
) {
    let mut timetable = Timetable::default();
    loop {
        let tick = async {
            match timetable.next() {
                Some(at) => clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            notice = notices.recv() => match notice {
                None => return,
                Some(ScheduleMessage::Due(at, number, slot)) => timetable.enter(at, number, slot),
                Some(ScheduleMessage::Removed(number, principal)) => {
                    timetable.strike(number);
                    watcher.on_removed(&principal);
                }
            },
            () = tick => {
                if let Some(slot) = timetable.pop() {
                    watcher.on_due(&slot);
                }
            }
        }
    }
}

#[derive(Debug)]
struct Timetable<S> {
    by_time: BTreeSet<(Moment, u64)>,
    slots: HashMap<u64, (Moment, S)>,
}

impl<S> Default for Timetable<S> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), slots: HashMap::new() }
    }
}

impl<S> Timetable<S> {
    fn next(&self) -> Option<Moment> {
        self.by_time.first().map(|(at, _)| *at)
    }

    fn enter(&mut self, at: Moment, number: u64, slot: S) {
        self.strike(number);
        self.by_time.insert((at, number));
        self.slots.insert(number, (at, slot));
    }

    fn strike(&mut self, number: u64) {
        if let Some((at, _)) = self.slots.remove(&number) {
            self.by_time.remove(&(at, number));
        }
    }

    fn pop(&mut self) -> Option<S> {
        let (_, number) = self.by_time.pop_first()?;
        self.slots.remove(&number).map(|(_, slot)| slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    #[test]
    fn a_slot_stands_in_the_timetable_at_most_once() {
        let mut timetable = Timetable::default();
        for nanos in [30, 10, 20] {
            timetable.enter(at(nanos), 1, 'a');
        }
        timetable.enter(at(5), 2, 'b');
        assert_eq!(timetable.by_time.len(), 2);
        timetable.strike(2);
        timetable.strike(2);
        assert_eq!(timetable.next(), Some(at(20)));
        assert!(timetable.pop().is_some());
        assert!(timetable.pop().is_none());
        assert!(timetable.slots.is_empty());
    }
}
