//! The open connections of one traffic thread: who holds them, what each is waiting for, since when.
//!
//! A connection's task carries no timer of its own: ten thousand timers would cost more memory than the
//! connections. One sweep a quarter of a second looks at this table and ends what is overdue. The same
//! table answers "which connection is needed least" when a cap is reached, and wakes those whose turn it is. Used by `serve` only.

use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

use seawall_core::{Moment, share};
use slab::Slab;
use tokio::task::AbortHandle;

use crate::turns::{self, Key};

/// How often overdue connections are looked for. Timeouts are late by at most this.
pub(crate) const SWEEP: Duration = Duration::from_millis(250);

/// A response that a client does not read is abandoned after this long without progress.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Candidates among which the least needed connection is chosen: nearly the oldest of all, for a fraction of the cost (Redis
/// evicts so, too).
const LOOKED_AT: usize = 64;

/// Places of the table that are walked for them at most, where few connections are candidates.
const WALKED: usize = 2048;

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The first byte.
    Silent,
    /// The rest of a request head.
    Head,
    /// The next request.
    Idle,
    /// An answer that is being made (it has its own deadline).
    Busy,
    /// The client to read the answer.
    Write,
}

/// How long a connection may stay in each state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) head: Duration,
    pub(crate) idle: Duration,
}

impl Timeouts {
    fn allowed(&self, state: State) -> Option<Duration> {
        match state {
            State::Silent | State::Head => Some(self.head),
            State::Idle => Some(self.idle),
            State::Write => Some(WRITE_TIMEOUT),
            State::Busy => None,
        }
    }
}

/// A count of open connections with a cap; one for the process, one per caller. Permits give back on drop.
#[derive(Debug, Default)]
pub(crate) struct Cap {
    open: AtomicU32,
    /// Set once, when the caller is gone: no more are let in, and those that are in are ended.
    closed: AtomicBool,
}

impl Cap {
    /// Whether one more is within its share, while the process has so many open of `most`.
    ///
    /// The last quarter is for callers with a few: whoever comes finds room, even if everybody else hoards and gives nothing back.
    /// Of the rest a caller may have eight times as many as it leaves free ([`seawall_core::share`], with places an eighth as
    /// large): two thirds of all when it is alone, and `n` together leave room for one more of their kind.
    pub(crate) fn may_take(&self, process: &Self, most: u32) -> bool {
        const FEW: u32 = 8;
        let free = share::free_for_many(u64::from(most), u64::from(process.open()));
        self.open() < FEW || share::may_take(u64::from(self.open() / 8), free)
    }

    /// Counts one more if that stays within `most`.
    pub(crate) fn take(self: &Arc<Self>, most: u32) -> Option<Permit> {
        if self.is_closed() {
            return None;
        }
        let taken =
            self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < most).then_some(n + 1));
        taken.is_ok().then(|| Permit(self.clone()))
    }

    /// How many are open.
    pub(crate) fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Nobody may come any more, and whoever is in must go: the next sweep of each thread sees to it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// One counted connection.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Cap>);

impl Permit {
    /// Whether this permit was taken from `cap`.
    fn is_of(&self, cap: &Arc<Cap>) -> bool {
        Arc::ptr_eq(&self.0, cap)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The permits that a connection holds: one of the process's cap, one of its caller's.
#[derive(Debug)]
pub(crate) struct Permits {
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) process: Permit,
    pub(crate) caller: Permit,
}

#[derive(Debug)]
struct Row {
    abort: Option<AbortHandle>,
    /// Gone once the connection was ended: the row then only waits for its task to be dropped.
    permits: Option<Permits>,
    state: State,
    since: Moment,
    /// Wakes it for its next turn, while it waits for one.
    parked: Option<Parked>,
}

/// A connection that waits for its next turn, and in whose queue.
#[derive(Debug)]
struct Parked {
    of: Rc<turns::Share>,
    waker: Waker,
}

/// One thread's connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    rows: Slab<Row>,
    /// Where the next look for a connection that is needed little begins.
    looked: Key,
}

impl Connections {
    /// Enters a connection that was just accepted.
    pub(crate) fn enter(&mut self, permits: Permits, now: Moment) -> Key {
        self.rows.insert(Row {
            abort: None,
            permits: Some(permits),
            state: State::Silent,
            since: now,
            parked: None,
        })
    }

    /// Names the task that can be ended.
    pub(crate) fn started(&mut self, key: Key, abort: AbortHandle) {
        if let Some(row) = self.rows.get_mut(key) {
            row.abort = Some(abort);
        }
    }

    /// Notes what the connection waits for from now on.
    pub(crate) fn note(&mut self, key: Key, state: State, now: Moment) {
        if let Some(row) = self.rows.get_mut(key) {
            // A partial head keeps the instant of its first byte, or a byte a second would never time out.
            if !matches!((row.state, state), (State::Head | State::Silent, State::Head)) {
                row.since = now;
            }
            row.state = state;
        }
    }

    /// Counts a connection against the caller that it turned out to be.
    pub(crate) fn settle(&mut self, key: Key, caller: Permit) {
        if let Some(permits) = self.rows.get_mut(key).and_then(|row| row.permits.as_mut()) {
            permits.caller = caller;
        }
    }

    /// Takes a connection out; its permits are given back.
    pub(crate) fn leave(&mut self, key: Key) {
        if self.rows.contains(key) {
            self.rows.remove(key);
        }
    }

    /// Lets a connection wait for its next turn.
    pub(crate) fn park(&mut self, key: Key, of: &Rc<turns::Share>, waker: Waker) {
        if let Some(row) = self.rows.get_mut(key) {
            row.parked = Some(Parked { of: of.clone(), waker });
        }
    }

    /// Wakes a connection that waits for its next turn in this queue. False if it is gone: its key may be another's by now.
    pub(crate) fn unpark(&mut self, key: Key, of: &Rc<turns::Share>) -> bool {
        let row = self.rows.get_mut(key);
        let parked = row.and_then(|row| row.parked.take_if(|parked| Rc::ptr_eq(&parked.of, of)));
        parked.map(|parked| parked.waker.wake()).is_some()
    }

    /// Ends a connection that this caller needs little: one that never said anything before one that is idle, and of those the
    /// oldest. False if it has none such.
    pub(crate) fn end_least_of(&mut self, caller: &Arc<Cap>) -> bool {
        let own = self.spare().filter(|(_, _, permits)| permits.caller.is_of(caller)).take(LOOKED_AT);
        let least = own.min_by_key(|(_, row, _)| (row.state != State::Silent, row.since));
        let key = least.map(|(key, ..)| key);
        key.is_some_and(|key| self.end(key))
    }

    /// Ends a connection that is needed little of the caller that has most, if that has more than `own`. False if there is none.
    pub(crate) fn end_least_of_the_largest(&mut self, own: u32) -> bool {
        let others = self.spare().filter(|(_, _, permits)| permits.caller.0.open() > own).take(LOOKED_AT);
        let least = others.min_by_key(|(_, row, permits)| {
            (Reverse(permits.caller.0.open()), row.state != State::Silent, row.since)
        });
        let key = least.map(|(key, ..)| key);
        key.is_some_and(|key| self.end(key))
    }

    /// Connections that nobody waits at, from where the last look ended: whoever has many makes room for thousands a second, and a
    /// look at all of them each time would cost more than accepting them.
    fn spare(&mut self) -> impl Iterator<Item = (Key, &Row, &Permits)> {
        let rows = &self.rows;
        let (begin, places) = (self.looked, rows.capacity().max(1));
        self.looked = (begin + LOOKED_AT) % places;
        let keys = (0..places.min(WALKED)).map(move |place| (begin + place) % places);
        let is_spare = |row: &Row| matches!(row.state, State::Silent | State::Idle) && row.abort.is_some();
        keys.filter_map(move |key| {
            let row = rows.get(key).filter(|row| is_spare(row))?;
            Some((key, row, row.permits.as_ref()?))
        })
    }

    /// Ends connections that waited longer than their state allows, so many at most; how many.
    pub(crate) fn end_overdue(&mut self, timeouts: &Timeouts, now: Moment, most: usize) -> usize {
        let overdue = |row: &Row| {
            row.abort.is_some() && timeouts.allowed(row.state).is_some_and(|most| now.since(row.since) > most)
        };
        let keys: Vec<Key> =
            self.rows.iter().filter(|(_, row)| overdue(row)).map(|(key, _)| key).take(most).collect();
        keys.into_iter().filter(|key| self.end(*key)).count()
    }

    /// Ends every connection whose caller is gone, whatever it waits for; how many.
    pub(crate) fn end_closed(&mut self) -> usize {
        let is_closed = |row: &Row| row.permits.as_ref().is_some_and(|permits| permits.caller.0.is_closed());
        let keys: Vec<Key> = self.rows.iter().filter(|(_, row)| is_closed(row)).map(|(key, _)| key).collect();
        keys.into_iter().filter(|key| self.end(*key)).count()
    }

    /// Ends every connection between two requests, for a drain.
    pub(crate) fn end_idle(&mut self) {
        let keys: Vec<Key> =
            self.rows.iter().filter(|(_, row)| row.state == State::Idle).map(|(key, _)| key).collect();
        for key in keys {
            self.end(key);
        }
    }

    /// How many are open on this thread.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Aborts a task and frees its permits at once; the row goes when the task is dropped, and not before, so that
    /// its key cannot meanwhile become another connection's.
    fn end(&mut self, key: Key) -> bool {
        let Some(row) = self.rows.get_mut(key) else { return false };
        let Some(abort) = row.abort.take() else { return false };
        abort.abort();
        row.permits = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn enter(table: &mut Connections, caller: &Arc<Cap>, state: State, since: Moment) -> (Key, AbortHandle) {
        let process = Arc::new(Cap::default());
        let permits = Permits { process: process.take(10).unwrap(), caller: caller.take(10).unwrap() };
        let key = table.enter(permits, since);
        let task = tokio::spawn(std::future::pending::<()>());
        table.started(key, task.abort_handle());
        table.note(key, state, since);
        (key, task.abort_handle())
    }

    #[tokio::test]
    async fn the_oldest_idle_connection_goes_first_and_only_the_callers_own() {
        let mut table = Connections::default();
        let (mine, other) = (Arc::new(Cap::default()), Arc::new(Cap::default()));
        let (_, foreign) = enter(&mut table, &other, State::Idle, at(1));
        let (_, newer) = enter(&mut table, &mine, State::Idle, at(3));
        let (_, older) = enter(&mut table, &mine, State::Idle, at(2));
        let (_, busy) = enter(&mut table, &mine, State::Busy, at(0));
        assert!(table.end_least_of(&mine));
        tokio::task::yield_now().await;
        assert!(older.is_finished());
        assert!(table.end_least_of(&mine));
        tokio::task::yield_now().await;
        assert!(newer.is_finished());
        assert!(!table.end_least_of(&mine), "the rest is busy");
        assert!(!foreign.is_finished() && !busy.is_finished());
    }

    #[tokio::test]
    async fn silent_connections_go_before_idle_ones_and_the_largest_callers_first() {
        let mut table = Connections::default();
        let (hoarder, quiet) = (Arc::new(Cap::default()), Arc::new(Cap::default()));
        let (_, oldest) = enter(&mut table, &quiet, State::Idle, at(1));
        let (_, idle) = enter(&mut table, &hoarder, State::Idle, at(2));
        let (_, silent) = enter(&mut table, &hoarder, State::Silent, at(3));
        assert!(table.end_least_of_the_largest(1));
        tokio::task::yield_now().await;
        assert!(silent.is_finished() && !idle.is_finished());
        assert!(!table.end_least_of_the_largest(1), "nobody has more than one any more");
        assert!(!oldest.is_finished());
    }

    #[test]
    fn hoarders_leave_connections_for_others_and_a_few_are_never_refused() {
        let process = Arc::new(Cap::default());
        let mut permits = Vec::new();
        let mut open = |cap: &Arc<Cap>| {
            let taken =
                cap.may_take(&process, 1600).then(|| (cap.take(1600).unwrap(), process.take(1600).unwrap()));
            taken.map(|pair| permits.push(pair)).is_some()
        };
        let hoarders: [Arc<Cap>; 9] = Default::default();
        // One after the other, and none gives anything back.
        hoarders.iter().for_each(|hoarder| while open(hoarder) {});
        assert!((1000..1200).contains(&hoarders[0].open()), "{hoarders:?}");
        let callers: [Arc<Cap>; 32] = std::array::from_fn(|_| Arc::default());
        assert!(callers.iter().all(|quiet| (0..8).all(|_| open(quiet))), "{callers:?}");
    }

    #[tokio::test]
    async fn a_slow_head_times_out_though_bytes_keep_coming() {
        let mut table = Connections::default();
        let cap = Arc::new(Cap::default());
        let timeouts = Timeouts { head: Duration::from_secs(2), idle: Duration::from_secs(60) };
        let (key, _) = enter(&mut table, &cap, State::Head, at(0));
        table.note(key, State::Head, at(1));
        table.note(key, State::Head, at(2));
        assert_eq!(table.end_overdue(&timeouts, at(2), 8), 0);
        assert_eq!(table.end_overdue(&timeouts, at(3), 8), 1);
    }

    #[tokio::test]
    async fn an_answer_that_is_read_slowly_lives_and_one_that_is_not_read_ends() {
        let mut table = Connections::default();
        let cap = Arc::new(Cap::default());
        let timeouts = Timeouts { head: Duration::from_secs(2), idle: Duration::from_secs(60) };
        let (key, _) = enter(&mut table, &cap, State::Write, at(0));
        table.note(key, State::Write, at(9));
        assert_eq!(table.end_overdue(&timeouts, at(19), 8), 0);
        assert_eq!(table.end_overdue(&timeouts, at(20), 8), 1);
        let (_, busy) = enter(&mut table, &cap, State::Busy, at(0));
        assert_eq!(table.end_overdue(&timeouts, at(3600), 8), 0);
        assert!(!busy.is_finished(), "an answer in the making has its own deadline");
    }

    #[tokio::test]
    async fn a_caller_that_is_gone_takes_its_connections_along_and_no_others() {
        let mut table = Connections::default();
        let (gone, other) = (Arc::new(Cap::default()), Arc::new(Cap::default()));
        let (_, idle) = enter(&mut table, &gone, State::Idle, at(1));
        let (_, busy) = enter(&mut table, &gone, State::Busy, at(1));
        let (_, foreign) = enter(&mut table, &other, State::Idle, at(1));
        gone.close();
        assert_eq!(table.end_closed(), 2);
        tokio::task::yield_now().await;
        assert!(idle.is_finished() && busy.is_finished() && !foreign.is_finished());
        assert!(gone.take(10).is_none());
        assert_eq!(gone.open(), 0);
    }

    #[test]
    fn a_cap_gives_back_what_is_dropped() {
        let cap = Arc::new(Cap::default());
        let first = cap.take(2).unwrap();
        let _second = cap.take(2).unwrap();
        assert!(cap.take(2).is_none());
        drop(first);
        assert_eq!(cap.open(), 1);
        assert!(cap.take(2).is_some());
    }
}
