//! When to look at which slot: one task, one timetable.
//!
//! A slot stands in the timetable at most once and leaves it when it is dropped. Entries that only go stale would be
//! memory that a pod fills by inventing principals and giving them up.

use std::collections::{BTreeSet, HashMap};
use std::sync::Weak;

use seawall_core::{Clock, Moment, Principal};
use tokio::sync::mpsc;

use crate::slot::Slot;

/// What the task is told.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Look at this slot then, and not when it was said before.
    Due(Moment, u64, Weak<Slot>),
    /// The slot of this number is gone.
    Gone(u64, Principal),
}

/// Whom the task tells.
pub(crate) trait Watcher {
    /// A slot's time has come.
    fn due(&self, slot: &Weak<Slot>);
    /// A slot is gone.
    fn gone(&self, principal: &Principal);
}

/// Runs until nobody can send notices any more.
pub(crate) async fn run(watcher: impl Watcher, clock: Clock, mut notices: mpsc::UnboundedReceiver<Notice>) {
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
                Some(Notice::Due(at, number, slot)) => timetable.enter(at, number, slot),
                Some(Notice::Gone(number, principal)) => {
                    timetable.strike(number);
                    watcher.gone(&principal);
                }
            },
            () = tick => {
                if let Some(slot) = timetable.pop() {
                    watcher.due(&slot);
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct Timetable {
    by_time: BTreeSet<(Moment, u64)>,
    slots: HashMap<u64, (Moment, Weak<Slot>)>,
}

impl Timetable {
    fn next(&self) -> Option<Moment> {
        self.by_time.first().map(|(at, _)| *at)
    }

    fn enter(&mut self, at: Moment, number: u64, slot: Weak<Slot>) {
        self.strike(number);
        self.by_time.insert((at, number));
        self.slots.insert(number, (at, slot));
    }

    fn strike(&mut self, number: u64) {
        if let Some((at, _)) = self.slots.remove(&number) {
            self.by_time.remove(&(at, number));
        }
    }

    fn pop(&mut self) -> Option<Weak<Slot>> {
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
            timetable.enter(at(nanos), 1, Weak::new());
        }
        timetable.enter(at(5), 2, Weak::new());
        assert_eq!(timetable.by_time.len(), 2);
        timetable.strike(2);
        timetable.strike(2);
        assert_eq!(timetable.next(), Some(at(20)));
        assert!(timetable.pop().is_some());
        assert!(timetable.pop().is_none());
        assert!(timetable.slots.is_empty());
    }
}
