//! Schedules the turns of clients on a traffic thread. Only the thread uses it. It knows no sockets and no time.
//!
//! A thread serves all clients in *rounds*. In each round a client has a share of turns, whatever the number of its connections. If a
//! client has used up its share, its connections wait for the next round, in the client's own queue. So a client's storm delays only
//! that client. All other clients wait for one round at most, and the length of a round depends on the number of clients, not of
//! connections or requests. A round ends when the thread has looked at all connections that were ready. Then the thread's round task
//! begins the next one.
//!
//! A client that is alone has a larger share: no other client waits for it, and each round costs a little.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::connection_table::ConnectionKey;

/// Turns per round for each client while others are active.
/// A turn is a request that is read and answered, some 10 µs, most of them the kernel's; the thread charges a pipeline as more. A
/// round of ten clients is then below 1 ms.
const AMONG_OTHERS: u32 = 4;

/// Turns per round for a client that is alone: some 3 ms.
/// The first request of another client waits that long. A connection that waits for the next round costs a second look: with a share
/// of 64 turns, that applied to most of what 200 kept connections send at once, and cost 6 % of the rate under a quota of 250m.
const ALONE: u32 = 256;

/// The rounds of a thread.
#[derive(Debug)]
pub(crate) struct FairScheduler {
    round: Cell<u32>,
    /// The turns of each client in a round.
    share: Cell<u32>,
    /// The clients that wait, in turn.
    waiting: RefCell<VecDeque<Rc<ClientTurns>>>,
    /// Notified when a client waits for the next round.
    wanted: Notify,
    /// Notified when a round begins.
    begun: Notify,
    /// The number of clients that had a turn recently, and the number of the counting period.
    callers: Cell<u32>,
    lately: Cell<u32>,
}

/// The share of one client.
#[derive(Debug, Default)]
pub(crate) struct ClientTurns {
    round: Cell<u32>,
    taken: Cell<u32>,
    lately: Cell<u32>,
    waiting: RefCell<VecDeque<ConnectionKey>>,
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
    /// True if this client has used all its turns of the round.
    pub(crate) fn is_spent(&self, share: &ClientTurns) -> bool {
        let rounds = self.round.get().wrapping_sub(share.round.get());
        if rounds != 0 {
            share.round.set(self.round.get());
            // What was charged beyond the share is owed.
            share.taken.set(share.taken.get().saturating_sub(self.share.get().saturating_mul(rounds)));
        }
        share.taken.get() >= self.share.get()
    }

    /// Charges work that cost as much as `turns` turns.
    /// The client owes the turns beyond its share to later rounds.
    pub(crate) fn charge(&self, share: &ClientTurns, turns: u32) {
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

    /// Queues a connection to be woken in a later round. Queue a connection only once at a time.
    pub(crate) fn wait(&self, share: &Rc<ClientTurns>, key: ConnectionKey) {
        share.waiting.borrow_mut().push_back(key);
        if !share.is_listed.replace(true) {
            self.waiting.borrow_mut().push_back(share.clone());
        }
        self.request_round();
    }

    /// Requests another round.
    pub(crate) fn request_round(&self) {
        self.wanted.notify_one();
    }

    /// Returns when a round is requested.
    pub(crate) async fn wait_for_round_request(&self) {
        self.wanted.notified().await;
    }

    /// Returns when the next round has begun.
    pub(crate) async fn wait_for_round(&self) {
        self.begun.notified().await;
    }

    /// Begins a round: wakes a share of the connections of each client that waits.
    /// `wake` reports whether the connection was still there.
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

    /// True if more than one client had turns recently. Only then does a client need protection.
    pub(crate) fn is_contended(&self) -> bool {
        self.share.get() == AMONG_OTHERS
    }

    /// Forgets which clients had turns before. Call it a few times a second.
    pub(crate) fn reset_activity(&self) {
        self.divide(self.callers.replace(0));
        self.lately.set(self.lately.get().wrapping_add(1));
        self.round.set(self.round.get().wrapping_add(1));
    }

    fn divide(&self, callers: u32) {
        if callers >= 2 {
            self.share.set(AMONG_OTHERS);
        } else if self.callers.get() == 0 {
            self.share.set(ALONE);
        }
    }
}

impl ClientTurns {
    /// Removes a connection that is gone from the queue.
    /// Its key may soon name another connection, which would then wait twice.
    pub(crate) fn remove(&self, key: ConnectionKey) {
        let mut waiting = self.waiting.borrow_mut();
        if let Some(place) = waiting.iter().position(|one| *one == key) {
            waiting.remove(place);
        }
    }

    /// Wakes at most `most` connections of this client. True if more connections wait.
    fn admit(self: &Rc<Self>, most: u32, wake: &impl Fn(ConnectionKey, &Rc<Self>) -> bool) -> bool {
        let mut woken = 0;
        while woken < most {
            let Some(key) = self.waiting.borrow_mut().pop_front() else { return false };
            // Connections that ended while they waited cost nothing.
            woken += u32::from(wake(key, self));
        }
        !self.waiting.borrow().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All connections of all clients are there. The test records the order of turns.
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
            assert!(!turns.is_spent(share));
            turns.record_turn(share);
        }
        (turns, one, two)
    }

    #[test]
    fn turns_go_round_callers_and_not_connections() {
        let (turns, hostile, quiet) = two_callers();
        (0..1000).for_each(|key| turns.wait(&hostile, key));
        turns.wait(&quiet, 5000);
        let first = begin(&turns);
        assert_eq!(first.len(), AMONG_OTHERS as usize + 1);
        assert!(first.contains(&5000));
        turns.wait(&quiet, 5000);
        assert!(begin(&turns).contains(&5000), "and in the next round again");
    }

    #[test]
    fn a_share_is_spent_for_the_round_and_whole_in_the_next() {
        let (turns, hostile, quiet) = two_callers();
        while !turns.is_spent(&hostile) {
            turns.record_turn(&hostile);
        }
        assert!(!turns.is_spent(&quiet));
        begin(&turns);
        assert!(!turns.is_spent(&hostile));
        assert_eq!(hostile.taken.get(), 0);
    }

    #[test]
    fn what_is_charged_beyond_the_share_is_owed_to_later_rounds() {
        let (turns, share, _) = two_callers();
        turns.charge(&share, AMONG_OTHERS * 3);
        let mut rounds = 0;
        while turns.is_spent(&share) {
            begin(&turns);
            rounds += 1;
        }
        assert_eq!(rounds, 3);
    }

    #[test]
    fn who_is_alone_has_more_turns_until_another_comes() {
        let (turns, share) = (FairScheduler::default(), Rc::<ClientTurns>::default());
        let mut had = 0;
        while !turns.is_spent(&share) {
            turns.record_turn(&share);
            had += 1;
        }
        assert_eq!(had, ALONE);
        assert!(!turns.is_contended());
        let other = ClientTurns::default();
        assert!(!turns.is_spent(&other));
        turns.record_turn(&other);
        assert!(turns.is_contended());
        turns.reset_activity();
        assert!(turns.is_contended(), "both were there a moment ago");
        turns.reset_activity();
        assert!(!turns.is_contended());
    }

    #[test]
    fn a_key_that_is_given_again_and_again_waits_once() {
        let (turns, share, _) = two_callers();
        for _ in 0..1000 {
            turns.wait(&share, 7);
            share.remove(7);
        }
        turns.wait(&share, 7);
        assert_eq!(begin(&turns), [7]);
        assert!(share.waiting.borrow().is_empty());
    }

    #[test]
    fn connections_that_ended_while_they_waited_take_no_turn() {
        let (turns, share, _) = two_callers();
        (0..100).for_each(|key| turns.wait(&share, key));
        let woken = RefCell::new(Vec::new());
        turns.begin_round(|key, _| {
            let is_there = key >= 90;
            woken.borrow_mut().extend(is_there.then_some(key));
            is_there
        });
        assert_eq!(woken.into_inner(), (90..94).collect::<Vec<_>>());
    }
}
