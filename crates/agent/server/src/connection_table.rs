//! Keeps the open connections of one traffic thread. Each entry has the client, the state, and the start time of the state.
//!
//! A connection has no timer of its own: ten thousand timers would need more memory than the connections. Every quarter of a second
//! the thread sweeps this table and ends overdue connections. When a connection limit is reached, the table chooses the connection
//! to end. The thread defines the entries ([`TableEntry`]). The table reads only the state of an entry and the start time of that
//! state.

use std::cell::Cell;
use std::cmp::Reverse;
use std::time::Duration;

use seawall_core::Moment;
use slab::Slab;

use super::client::ClientId;
use super::connection_permits::Permit;

/// The key of a connection of this thread. The key is valid while the connection is in the table.
pub(crate) type ConnectionKey = usize;

/// The interval between two sweeps for overdue connections. A timeout can be late by this interval.
pub(crate) const SWEEP: Duration = Duration::from_millis(250);

/// The write timeout. A connection ends if its client reads nothing of a waiting response for this time.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of evictable connections among which the table chooses one to end.
/// The chosen connection is nearly the oldest of all, and a search of the whole table would cost much more. Redis evicts keys by
/// the same sampling method.
const LOOKED_AT: usize = 64;

/// The largest number of table rows that one search visits.
/// A search reaches this limit only if few connections are evictable.
const WALKED: usize = 2048;

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// Waits for the first byte.
    AwaitingFirstByte,
    /// Waits for the rest of a request head.
    Head,
    /// Waits for the next request.
    Idle,
    /// Waits for an answer that is not ready yet. Such an answer has its own deadline.
    Busy,
    /// Waits for the client to read the answer.
    Write,
}

/// The longest time that a connection may stay in each state.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTimeouts {
    /// The time limit for the first byte of a request, and for the rest of the request head.
    pub head: Duration,
    /// The time limit for the next request on an idle connection.
    pub idle: Duration,
}

impl ConnectionTimeouts {
    fn allowed(&self, state: ConnectionState) -> Option<Duration> {
        match state {
            ConnectionState::AwaitingFirstByte | ConnectionState::Head => Some(self.head),
            ConnectionState::Idle => Some(self.idle),
            ConnectionState::Write => Some(WRITE_TIMEOUT),
            ConnectionState::Busy => None,
        }
    }
}

/// The client of a connection, and the two permits that the connection holds.
/// One permit counts toward the limit of the process, the other toward the limit of the client.
#[derive(Debug)]
pub(crate) struct ConnectionPermits {
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) process: Permit,
    pub(crate) caller: Permit,
    pub(crate) client: ClientId,
}

/// The state of a connection, and the start time of that state.
/// The connection stores this value, not the table, because every turn updates the state. During a turn the connection is in
/// the CPU cache, and the table usually is not.
#[derive(Debug)]
pub(crate) struct TimedState {
    state: Cell<ConnectionState>,
    since: Cell<Moment>,
}

impl TimedState {
    /// Returns the state of a connection that waits for its first byte.
    pub(crate) fn new(now: Moment) -> Self {
        Self { state: Cell::new(ConnectionState::AwaitingFirstByte), since: Cell::new(now) }
    }

    /// Sets the state, which starts at `now`.
    pub(crate) fn set_state(&self, state: ConnectionState, now: Moment) {
        // A partial head keeps the time of its first byte. Otherwise a client that sends one byte per second would never time out.
        if !matches!(
            (self.state.get(), state),
            (ConnectionState::Head | ConnectionState::AwaitingFirstByte, ConnectionState::Head)
        ) {
            self.since.set(now);
        }
        self.state.set(state);
    }

    /// The eviction order: first connections that never sent a byte, then idle connections. Within each group the oldest goes
    /// first.
    fn order(&self) -> (bool, Moment) {
        (self.state.get() != ConnectionState::AwaitingFirstByte, self.since.get())
    }

    /// True if the connection is between two requests.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.get() == ConnectionState::Idle
    }

    /// True if no client waits for an answer on this connection, so the table may end it.
    fn is_evictable(&self) -> bool {
        matches!(self.state.get(), ConnectionState::AwaitingFirstByte | ConnectionState::Idle)
    }
}

/// An entry of the table. This trait inverts the dependency: the thread owns the table and also defines the entry type.
pub(crate) trait TableEntry {
    /// Returns the state of the connection.
    fn state(&self) -> &TimedState;

    /// Ends the work of the entry. Returns true if a task still uses the connection.
    /// That task calls [`ConnectionTable::remove`] when the task ends. Until then the table must not reuse the key.
    fn end(&self) -> bool;
}

#[derive(Debug)]
struct Row<C> {
    /// The connection, or `None` after the table ended the connection. The row then waits until the connection's task has ended.
    connection: Option<C>,
    permits: Option<ConnectionPermits>,
}

/// The connections of one thread.
#[derive(Debug)]
pub(crate) struct ConnectionTable<C> {
    rows: Slab<Row<C>>,
    /// The row at which the next search for an evictable connection begins.
    looked: ConnectionKey,
}

impl<C> Default for ConnectionTable<C> {
    fn default() -> Self {
        Self { rows: Slab::new(), looked: 0 }
    }
}

impl<C: TableEntry> ConnectionTable<C> {
    /// Inserts a newly accepted connection. `make` builds the connection from its key.
    pub(crate) fn insert(
        &mut self,
        permits: ConnectionPermits,
        make: impl FnOnce(ConnectionKey) -> C,
    ) -> ConnectionKey {
        let place = self.rows.vacant_entry();
        let key = place.key();
        place.insert(Row { connection: Some(make(key)), permits: Some(permits) });
        key
    }

    /// Returns the connection with this key, unless the connection was ended.
    pub(crate) fn get(&self, key: ConnectionKey) -> Option<&C> {
        self.rows.get(key)?.connection.as_ref()
    }

    /// Counts a connection toward another client, because the thread has now identified the connection's client.
    pub(crate) fn reassign(&mut self, key: ConnectionKey, client: ClientId, permit: Permit) {
        if let Some(permits) = self.rows.get_mut(key).and_then(|row| row.permits.as_mut()) {
            (permits.client, permits.caller) = (client, permit);
        }
    }

    /// Removes a connection and releases its permits.
    pub(crate) fn remove(&mut self, key: ConnectionKey) {
        if self.rows.contains(key) {
            self.rows.remove(key);
        }
    }

    /// Ends the least needed connection of this client. Returns false if no connection of the client is evictable.
    /// Connections that never sent a byte go first, then idle connections. Within each group the oldest goes first.
    pub(crate) fn evict_from_client(&mut self, client: ClientId) -> bool {
        let own = self.evictable().filter(|(_, _, permits)| permits.client == client).take(LOOKED_AT);
        let least = own.min_by_key(|(_, waits, _)| waits.order());
        let key = least.map(|(key, ..)| key);
        key.is_some_and(|key| self.end(key))
    }

    /// Ends an evictable connection of the client with the most connections, if that client has more than `own` connections.
    /// Returns false if the table finds no such connection.
    pub(crate) fn evict_from_largest(&mut self, own: u32) -> bool {
        let others = self.evictable().filter(|(_, _, permits)| permits.caller.open() > own).take(LOOKED_AT);
        let least = others.min_by_key(|(_, waits, permits)| (Reverse(permits.caller.open()), waits.order()));
        let key = least.map(|(key, ..)| key);
        key.is_some_and(|key| self.end(key))
    }

    /// Returns the evictable connections among at most [`WALKED`] rows. Each search starts [`LOOKED_AT`] rows after the start of
    /// the previous search. A client with many connections can force thousands of evictions per second. A search of the whole table
    /// for each eviction would cost more than the accepts.
    fn evictable(&mut self) -> impl Iterator<Item = (ConnectionKey, &TimedState, &ConnectionPermits)> {
        let rows = &self.rows;
        let (begin, places) = (self.looked, rows.capacity().max(1));
        self.looked = (begin + LOOKED_AT) % places;
        let keys = (0..places.min(WALKED)).map(move |place| (begin + place) % places);
        keys.filter_map(move |key| {
            let row = rows.get(key)?;
            let waits = row.connection.as_ref()?.state();
            waits.is_evictable().then_some((key, waits, row.permits.as_ref()?))
        })
    }

    /// Ends at most `most` connections that are overdue in their state. Returns the number of ended connections.
    pub(crate) fn end_overdue(&mut self, timeouts: &ConnectionTimeouts, now: Moment, most: usize) -> usize {
        let is_overdue = |TimedState { state, since }: &TimedState| {
            timeouts.allowed(state.get()).is_some_and(|most| now.since(since.get()) > most)
        };
        let keys: Vec<ConnectionKey> = self.waiting(is_overdue).take(most).collect();
        keys.into_iter().filter(|key| self.end(*key)).count()
    }

    /// Ends every connection of a deleted client, in any state. Returns the number of ended connections.
    pub(crate) fn end_closed(&mut self) -> usize {
        let is_closed = |row: &Row<C>| row.permits.as_ref().is_some_and(|permits| permits.caller.is_closed());
        let keys: Vec<ConnectionKey> =
            self.rows.iter().filter(|(_, row)| is_closed(row)).map(|(key, _)| key).collect();
        keys.into_iter().filter(|key| self.end(*key)).count()
    }

    /// Returns all connections that are between two requests.
    pub(crate) fn idle(&self) -> Vec<C>
    where
        C: Clone,
    {
        self.waiting(TimedState::is_idle).filter_map(|key| self.get(key).cloned()).collect()
    }

    /// Ends every connection.
    pub(crate) fn end_all(&mut self) {
        let keys: Vec<ConnectionKey> = self.rows.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.end(key);
        }
    }

    /// Returns the keys of the open connections whose state satisfies `so`.
    fn waiting(&self, so: impl Fn(&TimedState) -> bool) -> impl Iterator<Item = ConnectionKey> {
        let waits = move |row: &Row<C>| row.connection.as_ref().is_some_and(|one| so(one.state()));
        self.rows.iter().filter(move |(_, row)| waits(row)).map(|(key, _)| key)
    }

    /// Returns the number of rows, including ended connections that a task still uses.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Ends a connection and releases its permits immediately.
    /// Returns false if the table has no such connection, or if the connection was already ended.
    fn end(&mut self, key: ConnectionKey) -> bool {
        let Some(row) = self.rows.get_mut(key) else { return false };
        let Some(connection) = row.connection.take() else { return false };
        row.permits = None;
        if !connection.end() {
            self.rows.remove(key);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::connection_permits::PermitCounter;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    /// A test entry that records whether the table ended it. No task uses the entry.
    #[derive(Debug)]
    struct Seen {
        waits: TimedState,
        is_ended: Cell<bool>,
    }

    impl Seen {
        fn is_ended(&self) -> bool {
            self.is_ended.get()
        }
    }

    impl TableEntry for Rc<Seen> {
        fn state(&self) -> &TimedState {
            &self.waits
        }

        fn end(&self) -> bool {
            self.is_ended.set(true);
            false
        }
    }

    fn enter(
        table: &mut ConnectionTable<Rc<Seen>>,
        caller: &Arc<PermitCounter>,
        state: ConnectionState,
        since: Moment,
    ) -> Rc<Seen> {
        enter_of(table, ClientId::unique(), caller, state, since)
    }

    fn enter_of(
        table: &mut ConnectionTable<Rc<Seen>>,
        client: ClientId,
        caller: &Arc<PermitCounter>,
        state: ConnectionState,
        since: Moment,
    ) -> Rc<Seen> {
        let process = Arc::new(PermitCounter::default());
        let permits = ConnectionPermits {
            process: process.take(10).unwrap(),
            caller: caller.take(10).unwrap(),
            client,
        };
        let seen = Rc::new(Seen { waits: TimedState::new(since), is_ended: Cell::new(false) });
        seen.waits.set_state(state, since);
        table.insert(permits, |_| seen.clone());
        seen
    }

    #[test]
    fn the_oldest_idle_connection_goes_first_and_only_the_callers_own() {
        let mut table = ConnectionTable::default();
        let (own, other) = (Arc::new(PermitCounter::default()), Arc::new(PermitCounter::default()));
        let mine = ClientId::unique();
        let foreign = enter(&mut table, &other, ConnectionState::Idle, at(1));
        let newer = enter_of(&mut table, mine, &own, ConnectionState::Idle, at(3));
        let older = enter_of(&mut table, mine, &own, ConnectionState::Idle, at(2));
        let busy = enter_of(&mut table, mine, &own, ConnectionState::Busy, at(0));
        assert!(table.evict_from_client(mine));
        assert!(older.is_ended());
        assert!(table.evict_from_client(mine));
        assert!(newer.is_ended());
        assert!(!table.evict_from_client(mine), "the rest is busy");
        assert!(!foreign.is_ended() && !busy.is_ended());
    }

    #[test]
    fn silent_connections_go_before_idle_ones_and_the_largest_callers_first() {
        let mut table = ConnectionTable::default();
        let (hoarder, quiet) = (Arc::new(PermitCounter::default()), Arc::new(PermitCounter::default()));
        let oldest = enter(&mut table, &quiet, ConnectionState::Idle, at(1));
        let idle = enter(&mut table, &hoarder, ConnectionState::Idle, at(2));
        let silent = enter(&mut table, &hoarder, ConnectionState::AwaitingFirstByte, at(3));
        assert!(table.evict_from_largest(1));
        assert!(silent.is_ended() && !idle.is_ended());
        assert!(!table.evict_from_largest(1), "nobody has more than one any more");
        assert!(!oldest.is_ended());
    }

    #[test]
    fn a_slow_head_times_out_though_bytes_keep_coming() {
        let mut table = ConnectionTable::default();
        let cap = Arc::new(PermitCounter::default());
        let timeouts = ConnectionTimeouts { head: Duration::from_secs(2), idle: Duration::from_secs(60) };
        let one = enter(&mut table, &cap, ConnectionState::Head, at(0));
        one.waits.set_state(ConnectionState::Head, at(1));
        one.waits.set_state(ConnectionState::Head, at(2));
        assert_eq!(table.end_overdue(&timeouts, at(2), 8), 0);
        assert_eq!(table.end_overdue(&timeouts, at(3), 8), 1);
    }

    #[test]
    fn an_answer_that_is_read_slowly_lives_and_one_that_is_not_read_ends() {
        let mut table = ConnectionTable::default();
        let cap = Arc::new(PermitCounter::default());
        let timeouts = ConnectionTimeouts { head: Duration::from_secs(2), idle: Duration::from_secs(60) };
        let one = enter(&mut table, &cap, ConnectionState::Write, at(0));
        one.waits.set_state(ConnectionState::Write, at(9));
        assert_eq!(table.end_overdue(&timeouts, at(19), 8), 0);
        assert_eq!(table.end_overdue(&timeouts, at(20), 8), 1);
        let busy = enter(&mut table, &cap, ConnectionState::Busy, at(0));
        assert_eq!(table.end_overdue(&timeouts, at(3600), 8), 0);
        assert!(!busy.is_ended(), "an answer in the making has its own deadline");
    }

    #[test]
    fn a_caller_that_is_gone_takes_its_connections_along_and_no_others() {
        let mut table = ConnectionTable::default();
        let (gone, other) = (Arc::new(PermitCounter::default()), Arc::new(PermitCounter::default()));
        let idle = enter(&mut table, &gone, ConnectionState::Idle, at(1));
        let busy = enter(&mut table, &gone, ConnectionState::Busy, at(1));
        let foreign = enter(&mut table, &other, ConnectionState::Idle, at(1));
        gone.close();
        assert_eq!(table.end_closed(), 2);
        assert!(idle.is_ended() && busy.is_ended() && !foreign.is_ended());
        assert!(gone.take(10).is_none());
        assert_eq!(gone.open(), 0);
    }

    /// A test entry that a task still uses until the table removes the entry.
    struct Busy(TimedState);

    impl TableEntry for Busy {
        fn state(&self) -> &TimedState {
            &self.0
        }

        fn end(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_key_is_nobodys_until_who_works_at_its_connection_has_left() {
        let (process, caller) = (Arc::new(PermitCounter::default()), Arc::new(PermitCounter::default()));
        let enter = |table: &mut ConnectionTable<Busy>| {
            let client = ClientId::unique();
            let permits = ConnectionPermits {
                process: process.take(10).unwrap(),
                caller: caller.take(10).unwrap(),
                client,
            };
            table.insert(permits, |_| Busy(TimedState::new(at(1))))
        };
        let mut table = ConnectionTable::default();
        let first = enter(&mut table);
        table.end_all();
        assert!(table.get(first).is_none());
        assert_eq!(process.open(), 0, "its permits are free at once");
        assert_ne!(enter(&mut table), first);
        table.remove(first);
        assert_eq!(enter(&mut table), first);
    }
}
