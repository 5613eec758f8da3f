//! The open connections of one traffic thread: who holds them, what each is waiting for, since when.
//!
//! A connection's task carries no timer of its own: ten thousand timers would cost more memory than the
//! connections. One sweep a quarter of a second looks at this table and ends what is overdue. The same
//! table answers "which idle connection is the oldest" when a cap is reached. Used by `serve` only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use seawall_core::Moment;
use slab::Slab;
use tokio::task::AbortHandle;

/// How often overdue connections are looked for. Timeouts are late by at most this.
pub(crate) const SWEEP: Duration = Duration::from_millis(250);

/// A response that a client does not read is abandoned after this long without progress.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The rest of a request head, or the first one.
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
            State::Head => Some(self.head),
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
struct Slot {
    abort: Option<AbortHandle>,
    /// Gone once the connection was ended: the slot then only waits for its task to be dropped.
    permits: Option<Permits>,
    state: State,
    since: Moment,
}

/// Where a connection stands in its thread's table.
pub(crate) type Key = usize;

/// One thread's connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Slab<Slot>,
}

impl Connections {
    /// Enters a connection that was just accepted.
    pub(crate) fn enter(&mut self, permits: Permits, now: Moment) -> Key {
        self.slots.insert(Slot { abort: None, permits: Some(permits), state: State::Head, since: now })
    }

    /// Names the task that can be ended.
    pub(crate) fn started(&mut self, key: Key, abort: AbortHandle) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.abort = Some(abort);
        }
    }

    /// Notes what the connection waits for from now on.
    pub(crate) fn note(&mut self, key: Key, state: State, now: Moment) {
        if let Some(slot) = self.slots.get_mut(key) {
            // A partial head keeps the instant of its first byte, or a byte a second would never time out.
            if slot.state != State::Head || state != State::Head {
                slot.since = now;
            }
            slot.state = state;
        }
    }

    /// Counts a connection against the caller that it turned out to be.
    pub(crate) fn settle(&mut self, key: Key, caller: Permit) {
        if let Some(permits) = self.slots.get_mut(key).and_then(|slot| slot.permits.as_mut()) {
            permits.caller = caller;
        }
    }

    /// Takes a connection out; its permits are given back.
    pub(crate) fn leave(&mut self, key: Key) {
        if self.slots.contains(key) {
            self.slots.remove(key);
        }
    }

    /// Ends the connection that has been idle longest, of one caller or of all. False if none is idle.
    pub(crate) fn end_oldest_idle(&mut self, of: Option<&Arc<Cap>>) -> bool {
        let candidates =
            self.slots.iter().filter(|(_, slot)| slot.state == State::Idle && slot.abort.is_some());
        let oldest = candidates
            .filter(|(_, slot)| {
                of.is_none_or(|cap| slot.permits.as_ref().is_some_and(|p| p.caller.is_of(cap)))
            })
            .min_by_key(|(_, slot)| slot.since)
            .map(|(key, _)| key);
        oldest.is_some_and(|key| self.end(key))
    }

    /// Ends every connection that waited longer than its state allows; how many.
    pub(crate) fn end_overdue(&mut self, timeouts: &Timeouts, now: Moment) -> usize {
        let overdue =
            |slot: &Slot| timeouts.allowed(slot.state).is_some_and(|most| now.since(slot.since) > most);
        let keys: Vec<Key> =
            self.slots.iter().filter(|(_, slot)| overdue(slot)).map(|(key, _)| key).collect();
        keys.into_iter().filter(|key| self.end(*key)).count()
    }

    /// Ends every connection whose caller is gone, whatever it waits for; how many.
    pub(crate) fn end_closed(&mut self) -> usize {
        let is_closed =
            |slot: &Slot| slot.permits.as_ref().is_some_and(|permits| permits.caller.0.is_closed());
        let keys: Vec<Key> =
            self.slots.iter().filter(|(_, slot)| is_closed(slot)).map(|(key, _)| key).collect();
        keys.into_iter().filter(|key| self.end(*key)).count()
    }

    /// Ends every connection between two requests, for a drain.
    pub(crate) fn end_idle(&mut self) {
        let keys: Vec<Key> =
            self.slots.iter().filter(|(_, slot)| slot.state == State::Idle).map(|(key, _)| key).collect();
        for key in keys {
            self.end(key);
        }
    }

    /// How many are open on this thread.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Aborts a task and frees its permits at once; the slot goes when the task is dropped, and not before, so that
    /// its key cannot meanwhile become another connection's.
    fn end(&mut self, key: Key) -> bool {
        let Some(slot) = self.slots.get_mut(key) else { return false };
        let Some(abort) = slot.abort.take() else { return false };
        abort.abort();
        slot.permits = None;
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
        assert!(table.end_oldest_idle(Some(&mine)));
        tokio::task::yield_now().await;
        assert!(older.is_finished());
        assert!(table.end_oldest_idle(None));
        tokio::task::yield_now().await;
        assert!(foreign.is_finished());
        assert!(!newer.is_finished() && !busy.is_finished());
    }

    #[tokio::test]
    async fn a_slow_head_times_out_though_bytes_keep_coming() {
        let mut table = Connections::default();
        let cap = Arc::new(Cap::default());
        let timeouts = Timeouts { head: Duration::from_secs(2), idle: Duration::from_secs(60) };
        let (key, _) = enter(&mut table, &cap, State::Head, at(0));
        table.note(key, State::Head, at(1));
        table.note(key, State::Head, at(2));
        assert_eq!(table.end_overdue(&timeouts, at(2)), 0);
        assert_eq!(table.end_overdue(&timeouts, at(3)), 1);
    }

    #[tokio::test]
    async fn an_answer_that_is_read_slowly_lives_and_one_that_is_not_read_ends() {
        let mut table = Connections::default();
        let cap = Arc::new(Cap::default());
        let timeouts = Timeouts { head: Duration::from_secs(2), idle: Duration::from_secs(60) };
        let (key, _) = enter(&mut table, &cap, State::Write, at(0));
        table.note(key, State::Write, at(9));
        assert_eq!(table.end_overdue(&timeouts, at(19)), 0);
        assert_eq!(table.end_overdue(&timeouts, at(20)), 1);
        let (_, busy) = enter(&mut table, &cap, State::Busy, at(0));
        assert_eq!(table.end_overdue(&timeouts, at(3600)), 0);
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
