//! Keeps the sockets of ended connections until the client has acknowledged the last bytes and closed, within a bound.
//!
//! A closed socket whose last bytes are not acknowledged stays in the kernel: with the unread response it costs about 6 KiB of the
//! agent's memory for ten seconds (`TCP_USER_TIMEOUT`), and nothing counts it. A client that sends a request and then drops all packets, which
//! needs no privilege (SO_ATTACH_FILTER), had the agent killed within 9 s, at 25 MiB and at 64 MiB. And if the agent closes a socket whose bytes
//! are acknowledged before the client has closed, the kernel charges the agent 256 bytes for a minute. So the thread keeps such sockets itself, and
//! resets those beyond the bound, which frees them at once.
//!
//! At the bound, the clients with the most such connections lose their oldest ones. Clients on the same node acknowledge at once, or after the
//! kernel's delay of 40 ms. A client whose machine has taken all bytes can still read them after a reset (Linux).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use seawall_core::Moment;

use crate::connection_client::ClientId;
use crate::memory_levels::MemoryLevel;

/// The time after which the thread resets a connection whose client has not closed, as long as a client may take to read a response
/// (`WRITE_TIMEOUT`) and to acknowledge it (`TCP_USER_TIMEOUT`).
const LONGEST: Duration = Duration::from_secs(10);

/// The most such connections of one thread: 1.7 MiB with one unread response each, at most 6 MiB with full buffers in both directions.
pub(super) const MOST: usize = 256;

/// The same while memory is low: 0.2 MiB, at most 0.8 MiB.
const MOST_WHILE_MEMORY_IS_LOW: usize = 32;

/// The number of connections that each new one causes to be looked at. So the list is short while clients close in time, and no look takes long.
const LOOKS: usize = 4;

/// A connection that the thread no longer serves, but whose socket is open.
pub(super) trait ClosingConnection {
    /// True if the kernel forgets the connection when it is dropped, at no cost for this process.
    fn is_finished(&self) -> bool;

    /// Makes the kernel discard the unacknowledged bytes when the connection is dropped.
    fn reset_on_drop(&self);
}

#[derive(Debug)]
struct Closing<C> {
    connection: C,
    client: ClientId,
    since: Moment,
}

/// The connections of one thread that wait for the end of their clients, the oldest first.
#[derive(Debug)]
pub(super) struct ClosingConnections<C> {
    waiting: VecDeque<Closing<C>>,
    /// The most connections while memory is plentiful.
    most: usize,
    /// The place at which the next look begins.
    looked: usize,
}

impl<C: ClosingConnection> ClosingConnections<C> {
    /// Creates an empty list for at most `most` connections.
    pub(super) fn new(most: usize) -> Self {
        Self { waiting: VecDeque::new(), most: most.clamp(1, MOST), looked: 0 }
    }

    /// Takes over a connection. Returns the number of connections that were reset.
    pub(super) fn insert(
        &mut self,
        connection: C,
        client: ClientId,
        now: Moment,
        memory: MemoryLevel,
    ) -> u64 {
        self.waiting.push_back(Closing { connection, client, since: now });
        self.look_at(LOOKS, now) + self.enforce_bound(memory)
    }

    /// Closes or resets connections for which it is time, among the next [`MOST`]/4. Returns the number of resets. Call it four times a second.
    pub(super) fn sweep(&mut self, now: Moment, memory: MemoryLevel) -> u64 {
        self.look_at(MOST / 4, now) + self.enforce_bound(memory)
    }

    /// Resets all connections, because their descriptors are needed. Returns their number.
    pub(super) fn reset_all(&mut self) -> u64 {
        self.waiting.drain(..).map(|closing| closing.connection.reset_on_drop()).count() as u64
    }

    fn look_at(&mut self, count: usize, now: Moment) -> u64 {
        let mut reset = 0;
        for _ in 0..count.min(self.waiting.len()) {
            if self.looked >= self.waiting.len() {
                self.looked = 0;
            }
            let Some(closing) = self.waiting.get(self.looked) else { break };
            let is_finished = closing.connection.is_finished();
            if is_finished || now.since(closing.since) > LONGEST {
                if !is_finished {
                    closing.connection.reset_on_drop();
                    reset += 1;
                }
                self.waiting.remove(self.looked);
            } else {
                self.looked += 1;
            }
        }
        reset
    }

    /// Resets the oldest connections of the clients with the most, an eighth more than needed, so that this search is rare.
    fn enforce_bound(&mut self, memory: MemoryLevel) -> u64 {
        let low = MOST_WHILE_MEMORY_IS_LOW.min(self.most);
        let most = if memory == MemoryLevel::Enough { self.most } else { low };
        if self.waiting.len() <= most {
            return 0;
        }
        let mut counts = HashMap::<ClientId, usize>::new();
        for closing in &self.waiting {
            *counts.entry(closing.client).or_default() += 1;
        }
        // How many each client loses: always one of the client that has the most left.
        let mut losses = HashMap::<ClientId, usize>::new();
        for _ in 0..self.waiting.len() - (most - most / 8) {
            let Some((client, left)) = counts.iter_mut().max_by_key(|(_, left)| **left) else { break };
            *left -= 1;
            *losses.entry(*client).or_default() += 1;
        }
        let before = self.waiting.len();
        self.waiting.retain(|closing| match losses.get_mut(&closing.client) {
            Some(more @ 1..) => {
                *more -= 1;
                closing.connection.reset_on_drop();
                false
            }
            _ => true,
        });
        (before - self.waiting.len()) as u64
    }

    #[cfg(test)]
    fn count_of(&self, client: ClientId) -> usize {
        self.waiting.iter().filter(|closing| closing.client == client).count()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[derive(Debug, Default)]
    struct Fake {
        is_finished: Cell<bool>,
        is_reset: Cell<bool>,
    }

    impl ClosingConnection for Rc<Fake> {
        fn is_finished(&self) -> bool {
            self.is_finished.get()
        }

        fn reset_on_drop(&self) {
            self.is_reset.set(true);
        }
    }

    fn at(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    fn insert(
        closing: &mut ClosingConnections<Rc<Fake>>,
        client: ClientId,
        now: u64,
        memory: MemoryLevel,
    ) -> (Rc<Fake>, u64) {
        let fake = Rc::<Fake>::default();
        let reset = closing.insert(fake.clone(), client, at(now), memory);
        (fake, reset)
    }

    #[test]
    fn a_connection_closes_when_its_client_has_and_is_reset_after_ten_seconds() {
        let mut closing = ClosingConnections::new(MOST);
        let client = ClientId::new_unique();
        let (first, _) = insert(&mut closing, client, 0, MemoryLevel::Enough);
        let (second, _) = insert(&mut closing, client, 1, MemoryLevel::Enough);
        first.is_finished.set(true);
        for (now, reset, left) in [(1, 0, 1), (10_001, 0, 1), (10_002, 1, 0)] {
            assert_eq!(closing.sweep(at(now), MemoryLevel::Enough), reset);
            assert_eq!(closing.count_of(client), left);
        }
        assert!(!first.is_reset.get() && second.is_reset.get());
    }

    #[test]
    fn many_sweeps_look_at_each_connection() {
        let mut closing = ClosingConnections::new(MOST);
        let client = ClientId::new_unique();
        let all: Vec<_> = (0..MOST).map(|_| insert(&mut closing, client, 0, MemoryLevel::Enough).0).collect();
        all.iter().skip(1).for_each(|one| one.is_finished.set(true));
        for _ in 0..5 {
            closing.sweep(at(1), MemoryLevel::Enough);
        }
        assert_eq!(closing.count_of(client), 1);
    }

    #[test]
    fn the_bound_holds_also_when_memory_gets_low_and_nothing_new_comes_and_descriptors_can_be_had_at_once() {
        let mut closing = ClosingConnections::new(MOST);
        let client = ClientId::new_unique();
        for _ in 0..MOST {
            insert(&mut closing, client, 0, MemoryLevel::Enough);
        }
        closing.sweep(at(1), MemoryLevel::FreeMemoryLow);
        assert!(closing.waiting.len() <= MOST_WHILE_MEMORY_IS_LOW);
        assert_eq!(closing.reset_all(), 28);
        assert!(closing.waiting.is_empty());
        let mut few = ClosingConnections::new(2);
        for _ in 0..9 {
            insert(&mut few, client, 0, MemoryLevel::Enough);
            assert!(few.waiting.len() <= 2);
        }
    }

    #[test]
    fn a_client_that_acknowledges_nothing_has_a_bounded_number_and_takes_no_place_of_another_one() {
        for (memory, most) in
            [(MemoryLevel::Enough, MOST), (MemoryLevel::FreeMemoryLow, MOST_WHILE_MEMORY_IS_LOW)]
        {
            let mut closing = ClosingConnections::new(MOST);
            let (hostile, other) = (ClientId::new_unique(), ClientId::new_unique());
            let others: Vec<_> = (0..10).map(|_| insert(&mut closing, other, 0, memory).0).collect();
            let mut reset = 0;
            for _ in 0..10 * most {
                reset += insert(&mut closing, hostile, 1, memory).1;
                assert!(closing.waiting.len() <= most);
            }
            assert!(reset >= 9 * most as u64);
            assert!(others.iter().all(|one| !one.is_reset.get()));
            assert_eq!(closing.count_of(other), 10);
            assert!(closing.count_of(hostile) >= most / 2);
        }
    }

    #[test]
    fn two_hostile_clients_of_one_size_both_lose_theirs() {
        let mut closing = ClosingConnections::new(MOST);
        let clients = [ClientId::new_unique(), ClientId::new_unique()];
        for number in 0..8 * MOST {
            insert(&mut closing, clients[number % 2], 1, MemoryLevel::Enough);
            assert!(closing.waiting.len() <= MOST);
        }
        let [one, other] = clients.map(|client| closing.count_of(client));
        assert!(one.abs_diff(other) <= 2 + MOST / 8, "{one} {other}");
    }

    #[test]
    fn connections_whose_clients_close_in_time_are_never_reset() {
        let mut closing = ClosingConnections::new(MOST);
        let client = ClientId::new_unique();
        for _ in 0..4 * MOST {
            let (one, reset) = insert(&mut closing, client, 1, MemoryLevel::Enough);
            assert_eq!(reset, 0);
            one.is_finished.set(true);
        }
    }
}
