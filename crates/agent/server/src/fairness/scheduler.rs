//! Schedules the turns of clients on a traffic thread. In a turn, the thread reads once from a connection and answers the
//! requests.
//!
//! A thread serves all clients in *rounds*. In each round, each client gets the same number of turns. This number is the client's
//! share. The share does not depend on the client's number of connections. When a client has used its share, its connections wait
//! in a separate queue for the next round. Therefore a storm of requests from one client delays only that client. All other
//! clients wait for at most one round. The length of a round depends on the number of clients, not on the number of connections
//! or requests. A round ends when the thread has checked all ready connections. Then the thread's round task begins the next
//! round.
//!
//! While only one client is active, this client gets a larger share, because each round has a fixed cost and no other client
//! waits.
//!
//! Only the thread uses this module. The module does not use sockets or a clock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::connection_table::ConnectionKey;

/// The number of turns in a round, summed over all clients, when more than one client is active. Each client gets an equal part,
/// but at least [`AMONG_MANY`] turns. One turn reads and answers one request and takes about 10 µs, mostly in the kernel. The
/// thread charges several turns for pipelined requests. A round therefore takes less than 1 ms. Each round has a fixed cost, so
/// with fewer turns the rounds themselves use most of a small CPU quota. For example, with four turns per client and a CPU quota
/// of 30m, a busy pod got only 94 requests per second while a quiet pod was also active.
const OF_ALL: u32 = 64;

/// The minimum number of turns per round for each client.
const AMONG_MANY: u32 = 4;

/// The number of turns per round while only one client is active. These turns take about 3 ms.
/// The first request of another client waits at most 3 ms. A smaller share costs CPU time, because the thread checks a connection twice if
/// the connection waits for the next round. With a share of 64 turns, the thread checked most of 200 open connections twice.
/// Under a CPU quota of 250m, the second check lowered the request rate by 6 %.
const ALONE: u32 = 256;

/// The rounds of a thread.
#[derive(Debug)]
pub(crate) struct FairScheduler {
    round: Cell<u32>,
    /// The number of turns per client in one round.
    share: Cell<u32>,
    /// The clients that wait for turns. The first client gets turns first.
    waiting: RefCell<VecDeque<Rc<ClientTurns>>>,
    /// Signals that a client waits for the next round.
    wanted: Notify,
    /// Signals that a round begins.
    begun: Notify,
    /// The number of clients that had a turn in this activity period.
    callers: Cell<u32>,
    /// The number of this activity period.
    lately: Cell<u32>,
}

/// The turns of one client on this thread.
#[derive(Debug, Default)]
pub(crate) struct ClientTurns {
    round: Cell<u32>,
    taken: Cell<u32>,
    lately: Cell<u32>,
    waiting: RefCell<VecDeque<ConnectionKey>>,
    waiting_guests: RefCell<VecDeque<ConnectionKey>>,
    is_listed: Cell<bool>,
}

impl Default for FairScheduler {
    fn default() -> Self {
        Self {
            round: Cell::new(1),
            share: Cell::new(ALONE),
            waiting: RefCell::default(),
            wanted: Notify::new(),
            begun: Notify::new(),
            callers: Cell::new(0),
            lately: Cell::new(1),
        }
    }
}

impl FairScheduler {
    /// True if this client has used all its turns in the current round.
    pub(crate) fn has_used_turns(&self, share: &ClientTurns) -> bool {
        let rounds = self.round.get().wrapping_sub(share.round.get());
        if rounds != 0 {
            share.round.set(self.round.get());
            // If the client used more turns than its share, the surplus counts in the new round.
            share.taken.set(share.taken.get().saturating_sub(self.share.get().saturating_mul(rounds)));
        }
        share.taken.get() >= self.share.get()
    }

    /// Charges the client for work that costs as much as `turns` turns.
    /// If the client exceeds its share, it gets fewer turns in later rounds.
    pub(crate) fn charge_turns(&self, share: &ClientTurns, turns: u32) {
        share.taken.set(share.taken.get().saturating_add(turns));
    }

    /// Records one turn of a client.
    pub(crate) fn record_turn(&self, share: &ClientTurns) {
        share.taken.set(share.taken.get() + 1);
        if share.lately.get() != self.lately.get() {
            share.lately.set(self.lately.get());
            self.callers.set(self.callers.get() + 1);
            self.divide(self.callers.get());
        }
    }

    /// Queues a connection for a later round. A connection may be in a queue only once.
    ///
    /// Guests (`is_guest`) come before the client's other connections, but get at most half of the client's turns while others wait. A guest has
    /// a place that the client's next guest needs. Behind thousands of other connections, a guest waited so long that a client got half of
    /// its guests.
    pub(crate) fn enqueue(&self, share: &Rc<ClientTurns>, key: ConnectionKey, is_guest: bool) {
        let queue = if is_guest { &share.waiting_guests } else { &share.waiting };
        queue.borrow_mut().push_back(key);
        if !share.is_listed.replace(true) {
            self.waiting.borrow_mut().push_back(share.clone());
        }
        self.request_round();
    }

    pub(crate) fn request_round(&self) {
        self.wanted.notify_one();
    }

    pub(crate) async fn wait_for_round_request(&self) {
        self.wanted.notified().await;
    }

    /// Waits until the next round has begun.
    pub(crate) async fn wait_for_round(&self) {
        self.begun.notified().await;
    }

    /// Begins a round. Wakes as many connections of each waiting client as the client's share allows.
    /// `wake` returns true if the connection still exists.
    pub(crate) fn begin_round(&self, wake: impl Fn(ConnectionKey, &Rc<ClientTurns>) -> bool) {
        self.round.set(self.round.get().wrapping_add(1));
        let callers = self.waiting.borrow().len();
        for _ in 0..callers {
            let Some(share) = self.waiting.borrow_mut().pop_front() else { break };
            if share.admit(self.share.get(), &wake) {
                self.waiting.borrow_mut().push_back(share);
            } else {
                share.is_listed.set(false);
            }
        }
        if !self.waiting.borrow().is_empty() {
            self.request_round();
        }
        self.begun.notify_waiters();
    }

    /// True if several clients had turns recently. Only then does a client need protection from other clients.
    pub(crate) fn is_contended(&self) -> bool {
        self.share.get() != ALONE
    }

    /// Begins a new activity period. The thread calls this function a few times per second.
    pub(crate) fn reset_activity(&self) {
        self.divide(self.callers.replace(0));
        self.lately.set(self.lately.get().wrapping_add(1));
        self.round.set(self.round.get().wrapping_add(1));
    }

    fn divide(&self, callers: u32) {
        if callers >= 2 {
            self.share.set((OF_ALL / callers).max(AMONG_MANY));
        } else if self.callers.get() == 0 {
            self.share.set(ALONE);
        }
    }
}

impl ClientTurns {
    /// Removes a closed connection from the queue.
    /// The thread may soon give the same key to another connection. Without the removal, the queue could then contain that
    /// connection twice.
    pub(crate) fn remove(&self, key: ConnectionKey) {
        for queue in [&self.waiting, &self.waiting_guests] {
            let mut waiting = queue.borrow_mut();
            if let Some(place) = waiting.iter().position(|one| *one == key) {
                waiting.remove(place);
            }
        }
    }

    /// Wakes at most `most` connections of this client. Returns true if more connections wait.
    fn admit(self: &Rc<Self>, most: u32, wake: &impl Fn(ConnectionKey, &Rc<Self>) -> bool) -> bool {
        let wake_from = |queue: &RefCell<VecDeque<ConnectionKey>>, most: u32| {
            let mut woken = 0;
            while woken < most {
                let Some(key) = queue.borrow_mut().pop_front() else { break };
                // A connection that ended while it waited does not count.
                woken += u32::from(wake(key, self));
            }
            woken
        };
        let mut woken = wake_from(&self.waiting_guests, most.div_ceil(2));
        woken += wake_from(&self.waiting, most - woken);
        wake_from(&self.waiting_guests, most - woken);
        !self.waiting.borrow().is_empty() || !self.waiting_guests.borrow().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins a round in which all waiting connections still exist. Returns the connections in the order in which they woke.
    fn begin(turns: &FairScheduler) -> Vec<ConnectionKey> {
        let woken = RefCell::new(Vec::new());
        turns.begin_round(|key, _| {
            woken.borrow_mut().push(key);
            true
        });
        woken.into_inner()
    }

    fn two_callers() -> (FairScheduler, Rc<ClientTurns>, Rc<ClientTurns>) {
        let (turns, one, two) =
            (FairScheduler::default(), Rc::<ClientTurns>::default(), Rc::<ClientTurns>::default());
        for share in [&one, &two] {
            assert!(!turns.has_used_turns(share));
            turns.record_turn(share);
        }
        (turns, one, two)
    }

    #[test]
    fn guests_come_before_their_clients_other_connections_and_get_at_most_half_of_its_turns() {
        let (turns, loud, quiet) = two_callers();
        let share = turns.share.get() as usize;
        (0..100).for_each(|key| turns.enqueue(&loud, key, false));
        turns.enqueue(&quiet, 500, false);
        (1000..1100).for_each(|key| turns.enqueue(&loud, key, true));
        let half = share / 2;
        let round = begin(&turns);
        let expected: Vec<_> = (1000..1000 + half).chain(0..half).chain([500]).collect();
        assert_eq!(round, expected);
        // Without others, they get all turns.
        while turns.waiting.borrow().iter().any(|client| !client.waiting.borrow().is_empty()) {
            begin(&turns);
        }
        (2000..2100).for_each(|key| turns.enqueue(&loud, key, true));
        assert_eq!(begin(&turns).len(), share);
    }

    #[test]
    fn turns_go_round_callers_and_not_connections() {
        let (turns, hostile, quiet) = two_callers();
        (0..1000).for_each(|key| turns.enqueue(&hostile, key, false));
        turns.enqueue(&quiet, 5000, false);
        let first = begin(&turns);
        assert_eq!(first.len(), OF_ALL as usize / 2 + 1);
        assert!(first.contains(&5000));
        turns.enqueue(&quiet, 5000, false);
        assert!(begin(&turns).contains(&5000), "and in the next round again");
    }

    #[test]
    fn a_share_is_spent_for_the_round_and_whole_in_the_next() {
        let (turns, hostile, quiet) = two_callers();
        while !turns.has_used_turns(&hostile) {
            turns.record_turn(&hostile);
        }
        assert!(!turns.has_used_turns(&quiet));
        begin(&turns);
        assert!(!turns.has_used_turns(&hostile));
        assert_eq!(hostile.taken.get(), 0);
    }

    #[test]
    fn what_is_charged_beyond_the_share_is_owed_to_later_rounds() {
        let (turns, share, _) = two_callers();
        turns.charge_turns(&share, OF_ALL / 2 * 3);
        let mut rounds = 0;
        while turns.has_used_turns(&share) {
            begin(&turns);
            rounds += 1;
        }
        assert_eq!(rounds, 3);
    }

    #[test]
    fn who_is_alone_has_more_turns_until_another_comes() {
        let (turns, share) = (FairScheduler::default(), Rc::<ClientTurns>::default());
        let mut had = 0;
        while !turns.has_used_turns(&share) {
            turns.record_turn(&share);
            had += 1;
        }
        assert_eq!(had, ALONE);
        assert!(!turns.is_contended());
        let other = ClientTurns::default();
        assert!(!turns.has_used_turns(&other));
        turns.record_turn(&other);
        assert!(turns.is_contended());
        turns.reset_activity();
        assert!(turns.is_contended(), "both were there a moment ago");
        turns.reset_activity();
        assert!(!turns.is_contended());
    }

    #[test]
    fn a_key_that_is_given_again_and_again_waits_once() {
        for is_guest in [false, true] {
            let (turns, share, _) = two_callers();
            for _ in 0..1000 {
                turns.enqueue(&share, 7, is_guest);
                share.remove(7);
            }
            turns.enqueue(&share, 7, is_guest);
            assert_eq!(begin(&turns), [7]);
            assert!(share.waiting.borrow().is_empty() && share.waiting_guests.borrow().is_empty());
        }
    }

    #[test]
    fn connections_that_ended_while_they_waited_take_no_turn() {
        let (turns, share, _) = two_callers();
        (0..100).for_each(|key| turns.enqueue(&share, key, false));
        let woken = RefCell::new(Vec::new());
        turns.begin_round(|key, _| {
            let is_there = key >= 90;
            woken.borrow_mut().extend(is_there.then_some(key));
            is_there
        });
        assert_eq!(woken.into_inner(), (90..100).collect::<Vec<_>>());
    }

    #[test]
    fn all_clients_together_have_64_turns_a_round_and_each_at_least_four() {
        let turns = FairScheduler::default();
        let clients: Vec<Rc<ClientTurns>> = (0..40).map(|_| Rc::default()).collect();
        let shares: Vec<u32> = clients
            .iter()
            .map(|client| {
                turns.record_turn(client);
                turns.share.get()
            })
            .collect();
        assert_eq!([shares[1], shares[7], shares[15], shares[39]], [32, 8, 4, 4]);
    }
}
