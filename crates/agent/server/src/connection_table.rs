//! Keeps the open connections of one traffic thread. Each entry has the client, the state, and the start time of the state.
//!
//! Connections have no separate timers, because ten thousand timers would need more memory than the connections. Instead, the
//! thread sweeps this table every quarter of a second and ends overdue connections. When memory or file descriptors are short,
//! the table ends idle connections. The thread defines the type of the entries, and the table uses an entry only through the
//! trait [`TableEntry`].

use std::cell::Cell;
use std::cmp::Reverse;
use std::time::Duration;

use seawall_core::Moment;
use slab::Slab;

use super::connection_client::ClientId;
use super::connection_permits::{GUARANTEED_CONNECTIONS, Permit};

/// The key of a connection in the table of its thread. The key is valid while the connection is in the table.
pub(crate) type ConnectionKey = usize;

/// The interval between two sweeps for overdue connections. A timeout can be late by this interval.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// The write timeout. The thread ends a connection if the client reads no bytes of a response for this long.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The shortest idle time after which the table may end a connection to free memory.
const LEAST_IDLE: Duration = Duration::from_secs(1);

/// The number of evictable connections in a sample. The table ends one connection of the sample.
/// The ended connection is nearly the oldest connection. A search of the whole table would cost much more. Redis evicts keys by
/// the same sampling method.
const LOOKED_AT: usize = 64;

/// The largest number of table rows that one search visits.
/// A search reaches this limit only if few connections are evictable.
const WALKED: usize = 2048;

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// The connection waits for the first byte.
    AwaitingFirstByte,
    /// The connection waits for the rest of a request head.
    AwaitingHead,
    /// The connection waits for the next request.
    Idle,
    /// The connection waits for an answer that is not ready yet. Each such answer has a separate deadline.
    Busy,
    /// The connection waits until the client reads the answer.
    Writing,
}

/// The time limit for a guest's request head, from the first byte to the last byte. A guest is a connection that ends after one
/// answer. While other connections wait for the place of the guest, this is also the time limit for its first byte.
const GUEST_HEAD: Duration = Duration::from_millis(500);

/// Whether other connections wait for the place of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestPlaceDemand {
    Unwanted,
    Wanted,
}

/// The longest time that a connection may stay in each state.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTimeouts {
    /// The time limit for a request head, from the first byte to the last byte.
    pub head: Duration,
    /// The longest time that a connection may wait for its first request or its next request.
    pub idle: Duration,
}

impl ConnectionTimeouts {
    /// Returns the longest time that a connection may stay in this state, or `None` if the table sets no limit.
    /// A client that has sent no bytes may be a pod without CPU time, so it has as much time as an idle client. A guest has less
    /// time, because a shard has few places for guests. A guest with a partial head has the least time. A real client sends its
    /// head in one TCP segment, but a hostile pod could occupy all guest places of its shard with partial heads. A guest that has sent
    /// nothing has no more time than that while other connections of its shard wait for its place.
    fn allowed(&self, state: ConnectionState, guest: Option<GuestPlaceDemand>) -> Option<Duration> {
        match (state, guest) {
            (ConnectionState::AwaitingFirstByte, Some(GuestPlaceDemand::Unwanted)) => Some(self.head),
            (ConnectionState::AwaitingHead, Some(_))
            | (ConnectionState::AwaitingFirstByte, Some(GuestPlaceDemand::Wanted)) => {
                Some(self.head.min(GUEST_HEAD))
            }
            (ConnectionState::AwaitingHead, None) => Some(self.head),
            (ConnectionState::AwaitingFirstByte, None) | (ConnectionState::Idle, _) => Some(self.idle),
            (ConnectionState::Writing, _) => Some(WRITE_TIMEOUT),
            (ConnectionState::Busy, _) => None,
        }
    }
}

/// The client of a connection, and the two permits that the connection holds.
/// One permit counts toward the limit of the process. The other permit counts toward the limit of the client.
#[derive(Debug)]
pub(crate) struct ConnectionPermits {
    #[expect(dead_code, reason = "dropping this field releases the permit")]
    pub(crate) process_permit: Permit,
    pub(crate) client_permit: Permit,
    pub(crate) client: ClientId,
}

/// The state of a connection, and the start time of that state.
/// The connection stores this value, because every turn updates the state. During a turn, the CPU cache usually contains the
/// connection but not the table.
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

    /// Sets the state. The new state starts at `now`.
    pub(crate) fn set_state(&self, state: ConnectionState, now: Moment) {
        // A partial head keeps the time of its first byte. Otherwise a client that sends one byte per second would never time out.
        if !matches!(
            (self.state.get(), state),
            (ConnectionState::AwaitingHead, ConnectionState::AwaitingHead)
        ) {
            self.since.set(now);
        }
        self.state.set(state);
    }

    /// Returns the connection's sort key for eviction. The smallest key is evicted first.
    /// The table evicts connections without a first byte before idle connections. In each group, it evicts the oldest connection
    /// first.
    fn order(&self) -> (bool, Moment) {
        (self.state.get() != ConnectionState::AwaitingFirstByte, self.since.get())
    }

    /// True if the connection waits for its first request or its next request.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state.get(), ConnectionState::Idle | ConnectionState::AwaitingFirstByte)
    }

    /// True if the agent has read nothing of the client yet.
    pub(crate) fn is_awaiting_first_byte(&self) -> bool {
        self.state.get() == ConnectionState::AwaitingFirstByte
    }

    /// True if the table may end this connection, because the client has not used the connection for a while.
    /// A connection without a first byte may belong to a pod that gets no CPU time. Therefore the table keeps such a connection
    /// for at least the time limit of a request head.
    fn is_evictable(&self, timeouts: &ConnectionTimeouts, now: Moment) -> bool {
        let waited = now.since(self.since.get());
        match self.state.get() {
            ConnectionState::AwaitingFirstByte => waited >= timeouts.head,
            ConnectionState::Idle => waited >= LEAST_IDLE,
            ConnectionState::AwaitingHead | ConnectionState::Busy | ConnectionState::Writing => false,
        }
    }
}

/// An entry of the table. The thread owns the table and defines the entry type, so this module does not depend on the thread.
pub(crate) trait TableEntry {
    /// Returns the state of the connection.
    fn state(&self) -> &TimedState;

    /// Returns whether others want a guest's place, or `None` if the connection does not end after its next answer.
    fn guest_place_demand(&self, now: Moment) -> Option<GuestPlaceDemand>;

    /// True if the client has sent bytes that the thread has not read.
    fn has_unread_bytes(&self) -> bool;

    /// Stops the connection's task, if there is a task. Returns true if a task still uses the connection.
    /// That task calls [`ConnectionTable::remove`] when the task ends. Until then the table must not reuse the key.
    fn end(&self) -> bool;
}

#[derive(Debug)]
struct Row<C> {
    /// The connection, or `None` after the table ended the connection. The row then remains until the connection's task has
    /// ended.
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

    /// Returns the connection with this key, or `None` if the table has ended the connection.
    pub(crate) fn get(&self, key: ConnectionKey) -> Option<&C> {
        self.rows.get(key)?.connection.as_ref()
    }

    /// Moves a connection to another client, because the thread has now identified the connection's client.
    pub(crate) fn reassign(&mut self, key: ConnectionKey, client: ClientId, permit: Permit) {
        if let Some(permits) = self.rows.get_mut(key).and_then(|row| row.permits.as_mut()) {
            (permits.client, permits.client_permit) = (client, permit);
        }
    }

    /// Removes a connection and releases its permits.
    pub(crate) fn remove(&mut self, key: ConnectionKey) {
        if self.rows.contains(key) {
            self.rows.remove(key);
        }
    }

    /// Ends the longest-idle connection of the client with the most connections.
    /// Returns the connection, or `None` if the table finds no such connection, because each client has few connections or uses its
    /// connections. The table never ends a connection with unread bytes, because its client waits for an answer.
    pub(crate) fn end_longest_idle_of_largest_client(
        &mut self,
        timeouts: &ConnectionTimeouts,
        now: Moment,
    ) -> Option<C> {
        // The table ends no connection of a client with few connections, even if other clients have many.
        let idle = self
            .evictable(timeouts, now)
            .filter(|(_, _, permits)| permits.client_permit.open_count() >= GUARANTEED_CONNECTIONS)
            .take(LOOKED_AT);
        let least = idle
            .min_by_key(|(_, waits, permits)| (Reverse(permits.client_permit.open_count()), waits.order()));
        let key = least.map(|(key, ..)| key);
        self.end(key?)
    }

    /// Returns the evictable connections among at most [`WALKED`] rows. Each search starts [`LOOKED_AT`] rows after the start of
    /// the previous search, because a search of the whole table would cost too much.
    fn evictable<'a>(
        &'a mut self,
        timeouts: &'a ConnectionTimeouts,
        now: Moment,
    ) -> impl Iterator<Item = (ConnectionKey, &'a TimedState, &'a ConnectionPermits)> {
        let rows = &self.rows;
        let (begin, places) = (self.looked, rows.capacity().max(1));
        self.looked = (begin + LOOKED_AT) % places;
        let keys = (0..places.min(WALKED)).map(move |place| (begin + place) % places);
        keys.filter_map(move |key| {
            let row = rows.get(key)?;
            let connection = row.connection.as_ref()?;
            let waits = connection.state();
            let is_evictable = waits.is_evictable(timeouts, now) && !connection.has_unread_bytes();
            is_evictable.then_some((key, waits, row.permits.as_ref()?))
        })
    }

    /// Ends at most `most` connections whose state has lasted longer than the timeout of that state.
    /// Returns the ended connections.
    pub(crate) fn end_overdue(&mut self, timeouts: &ConnectionTimeouts, now: Moment, most: usize) -> Vec<C> {
        let is_overdue = |one: &C| {
            let TimedState { state, since } = one.state();
            let is_late = timeouts
                .allowed(state.get(), one.guest_place_demand(now))
                .is_some_and(|most| now.since(since.get()) > most);
            // The request of an idle connection can have arrived while the connection waited for its turn.
            is_late && !(one.state().is_idle() && one.has_unread_bytes())
        };
        let keys: Vec<ConnectionKey> = self.waiting(is_overdue).take(most).collect();
        keys.into_iter().filter_map(|key| self.end(key)).collect()
    }

    /// Ends every connection of a deleted client, in any state. Returns the ended connections.
    pub(crate) fn end_deleted_clients(&mut self) -> Vec<C> {
        let is_closed =
            |row: &Row<C>| row.permits.as_ref().is_some_and(|permits| permits.client_permit.is_closed());
        let keys: Vec<ConnectionKey> =
            self.rows.iter().filter(|(_, row)| is_closed(row)).map(|(key, _)| key).collect();
        keys.into_iter().filter_map(|key| self.end(key)).collect()
    }

    /// Returns all connections that are between two requests.
    pub(crate) fn idle_connections(&self) -> Vec<C>
    where
        C: Clone,
    {
        self.waiting(|one| one.state().is_idle()).filter_map(|key| self.get(key).cloned()).collect()
    }

    pub(crate) fn end_all(&mut self) {
        let keys: Vec<ConnectionKey> = self.rows.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.end(key);
        }
    }

    /// Returns the keys of the open connections for which `so` returns true.
    fn waiting(&self, so: impl Fn(&C) -> bool) -> impl Iterator<Item = ConnectionKey> {
        let waits = move |row: &Row<C>| row.connection.as_ref().is_some_and(&so);
        self.rows.iter().filter(move |(_, row)| waits(row)).map(|(key, _)| key)
    }

    /// Returns the number of rows, including ended connections that a task still uses.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Ends a connection, releases its permits immediately, and returns the connection.
    /// Returns `None` if the table has no such connection, or if the table has already ended the connection.
    fn end(&mut self, key: ConnectionKey) -> Option<C> {
        let row = self.rows.get_mut(key)?;
        let connection = row.connection.take()?;
        row.permits = None;
        if !connection.end() {
            self.rows.remove(key);
        }
        Some(connection)
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
        guest_place_demand: Cell<Option<GuestPlaceDemand>>,
        has_unread_bytes: Cell<bool>,
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

        fn guest_place_demand(&self, _: Moment) -> Option<GuestPlaceDemand> {
            self.guest_place_demand.get()
        }

        fn has_unread_bytes(&self) -> bool {
            self.has_unread_bytes.get()
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
        enter_of(table, ClientId::new_unique(), caller, state, since)
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
            process_permit: process.take(10).unwrap(),
            client_permit: caller.take(1000).unwrap(),
            client,
        };
        let seen = Rc::new(Seen {
            waits: TimedState::new(since),
            is_ended: Cell::default(),
            guest_place_demand: Cell::default(),
            has_unread_bytes: Cell::default(),
        });
        seen.waits.set_state(state, since);
        table.insert(permits, |_| seen.clone());
        seen
    }

    const TIMEOUTS: ConnectionTimeouts =
        ConnectionTimeouts { head: Duration::from_secs(2), idle: Duration::from_secs(60) };

    #[test]
    fn for_memory_the_longest_idle_connections_of_the_largest_client_end_first() {
        let mut table = ConnectionTable::default();
        let (hoarder, quiet) = (Arc::new(PermitCounter::default()), Arc::new(PermitCounter::default()));
        let _others: Vec<_> = (0..GUARANTEED_CONNECTIONS).map(|_| hoarder.take(1000).unwrap()).collect();
        let _quiet = enter(&mut table, &quiet, ConnectionState::Idle, at(1));
        let [older, newer] =
            [2, 3].map(|since| enter(&mut table, &hoarder, ConnectionState::Idle, at(since)));
        let busy = enter(&mut table, &hoarder, ConnectionState::Busy, at(0));
        assert!(table.end_longest_idle_of_largest_client(&TIMEOUTS, at(9)).is_some());
        assert!(older.is_ended() && !newer.is_ended());
        assert!(table.end_longest_idle_of_largest_client(&TIMEOUTS, at(9)).is_some());
        assert!(newer.is_ended() && !busy.is_ended());
    }

    #[test]
    fn a_connection_on_which_a_client_waits_never_ends_for_memory() {
        let mut table = ConnectionTable::default();
        let cap = Arc::new(PermitCounter::default());
        let _others: Vec<_> = (0..GUARANTEED_CONNECTIONS).map(|_| cap.take(1000).unwrap()).collect();
        let unread = enter(&mut table, &cap, ConnectionState::Idle, at(0));
        unread.has_unread_bytes.set(true);
        let _just_served = enter(&mut table, &cap, ConnectionState::Idle, at(8));
        let _slow_to_send = enter(&mut table, &cap, ConnectionState::AwaitingFirstByte, at(7));
        let _in_a_head = enter(&mut table, &cap, ConnectionState::AwaitingHead, at(0));
        assert!(
            table.end_longest_idle_of_largest_client(&TIMEOUTS, Moment::from_nanos(8_900_000_000)).is_none()
        );
        assert!(
            table.end_longest_idle_of_largest_client(&TIMEOUTS, at(9)).is_some(),
            "the one that sent nothing for two seconds"
        );
    }

    #[test]
    fn half_heads_hold_the_places_of_guests_for_half_a_second() {
        let mut table = ConnectionTable::default();
        let cap = Arc::new(PermitCounter::default());
        let [kept, guest] = [None, Some(GuestPlaceDemand::Unwanted)].map(|demand| {
            let seen = enter(&mut table, &cap, ConnectionState::AwaitingHead, at(0));
            seen.guest_place_demand.set(demand);
            seen
        });
        assert_eq!(table.end_overdue(&TIMEOUTS, Moment::from_nanos(500_000_000), 8).len(), 0);
        assert_eq!(table.end_overdue(&TIMEOUTS, Moment::from_nanos(501_000_000), 8).len(), 1);
        assert!(guest.is_ended() && !kept.is_ended());
    }

    #[test]
    fn a_client_that_sends_late_has_time_and_a_guest_has_less() {
        let mut table = ConnectionTable::default();
        let cap = Arc::new(PermitCounter::default());
        let late = enter(&mut table, &cap, ConnectionState::AwaitingFirstByte, at(0));
        let guest = enter(&mut table, &cap, ConnectionState::AwaitingFirstByte, at(0));
        guest.guest_place_demand.set(Some(GuestPlaceDemand::Unwanted));
        assert_eq!(table.end_overdue(&TIMEOUTS, at(1), 8).len(), 0);
        assert_eq!(table.end_overdue(&TIMEOUTS, at(3), 8).len(), 1);
        assert!(guest.is_ended() && !late.is_ended());
        late.waits.set_state(ConnectionState::AwaitingHead, at(50));
        assert_eq!(
            table.end_overdue(&TIMEOUTS, at(52), 8).len(),
            0,
            "the time of a head begins with its first byte"
        );
        assert_eq!(table.end_overdue(&TIMEOUTS, at(53), 8).len(), 1);
    }

    /// In a shard whose places all belonged to silent connections, another client waited for 11 s.
    #[test]
    fn a_guest_that_has_sent_nothing_gives_up_its_place_after_half_a_second_if_others_wait_for_it() {
        let mut table = ConnectionTable::default();
        let cap = Arc::new(PermitCounter::default());
        let guest = enter(&mut table, &cap, ConnectionState::AwaitingFirstByte, at(0));
        guest.guest_place_demand.set(Some(GuestPlaceDemand::Unwanted));
        assert_eq!(table.end_overdue(&TIMEOUTS, at(1), 8).len(), 0);
        guest.guest_place_demand.set(Some(GuestPlaceDemand::Wanted));
        assert_eq!(table.end_overdue(&TIMEOUTS, Moment::from_nanos(500_000_000), 8).len(), 0);
        guest.has_unread_bytes.set(true);
        assert_eq!(table.end_overdue(&TIMEOUTS, at(1), 8).len(), 0, "its request has arrived");
        guest.has_unread_bytes.set(false);
        assert_eq!(table.end_overdue(&TIMEOUTS, at(1), 8).len(), 1);
    }

    /// A connection whose client has no turns left is read late. Bytes behind a slow head or an unread answer protect nobody.
    #[test]
    fn only_an_idle_connection_whose_request_has_arrived_is_not_overdue() {
        let mut table = ConnectionTable::default();
        let cap = Arc::new(PermitCounter::default());
        for state in [ConnectionState::AwaitingFirstByte, ConnectionState::Idle] {
            let guest = enter(&mut table, &cap, state, at(0));
            guest.guest_place_demand.set(Some(GuestPlaceDemand::Unwanted));
            guest.has_unread_bytes.set(true);
            assert_eq!(table.end_overdue(&TIMEOUTS, at(100), 8).len(), 0, "{state:?}");
            guest.has_unread_bytes.set(false);
            assert_eq!(table.end_overdue(&TIMEOUTS, at(100), 8).len(), 1, "{state:?}");
        }
        for state in [ConnectionState::AwaitingHead, ConnectionState::Writing] {
            enter(&mut table, &cap, state, at(0)).has_unread_bytes.set(true);
            assert_eq!(table.end_overdue(&TIMEOUTS, at(100), 8).len(), 1, "{state:?}");
        }
    }

    #[test]
    fn a_slow_head_times_out_though_bytes_keep_coming() {
        let mut table = ConnectionTable::default();
        let cap = Arc::new(PermitCounter::default());
        let timeouts = TIMEOUTS;
        let one = enter(&mut table, &cap, ConnectionState::AwaitingHead, at(0));
        one.waits.set_state(ConnectionState::AwaitingHead, at(1));
        one.waits.set_state(ConnectionState::AwaitingHead, at(2));
        assert_eq!(table.end_overdue(&timeouts, at(2), 8).len(), 0);
        assert_eq!(table.end_overdue(&timeouts, at(3), 8).len(), 1);
    }

    #[test]
    fn an_answer_that_is_read_slowly_lives_and_one_that_is_not_read_ends() {
        let mut table = ConnectionTable::default();
        let cap = Arc::new(PermitCounter::default());
        let timeouts = TIMEOUTS;
        let one = enter(&mut table, &cap, ConnectionState::Writing, at(0));
        one.waits.set_state(ConnectionState::Writing, at(9));
        assert_eq!(table.end_overdue(&timeouts, at(19), 8).len(), 0);
        assert_eq!(table.end_overdue(&timeouts, at(20), 8).len(), 1);
        let busy = enter(&mut table, &cap, ConnectionState::Busy, at(0));
        assert_eq!(table.end_overdue(&timeouts, at(3600), 8).len(), 0);
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
        assert_eq!(table.end_deleted_clients().len(), 2);
        assert!(idle.is_ended() && busy.is_ended() && !foreign.is_ended());
        assert!(gone.take(10).is_none());
        assert_eq!(gone.open_count(), 0);
    }

    /// A test entry that a task still uses until the table removes the entry.
    struct Busy(TimedState);

    impl TableEntry for Busy {
        fn state(&self) -> &TimedState {
            &self.0
        }

        fn guest_place_demand(&self, _: Moment) -> Option<GuestPlaceDemand> {
            None
        }

        fn has_unread_bytes(&self) -> bool {
            false
        }

        fn end(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_key_is_nobodys_until_who_works_at_its_connection_has_left() {
        let (process, caller) = (Arc::new(PermitCounter::default()), Arc::new(PermitCounter::default()));
        let enter = |table: &mut ConnectionTable<Busy>| {
            let client = ClientId::new_unique();
            let permits = ConnectionPermits {
                process_permit: process.take(10).unwrap(),
                client_permit: caller.take(10).unwrap(),
                client,
            };
            table.insert(permits, |_| Busy(TimedState::new(at(1))))
        };
        let mut table = ConnectionTable::default();
        let first = enter(&mut table);
        table.end_all();
        assert!(table.get(first).is_none());
        assert_eq!(process.open_count(), 0, "its permits are free at once");
        assert_ne!(enter(&mut table), first);
        table.remove(first);
        assert_eq!(enter(&mut table), first);
    }
}
