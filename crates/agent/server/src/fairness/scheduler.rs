//! Whose turn it is on a traffic thread. Used by the thread only; knows no sockets and no time.
//!
//! A thread serves everybody in *rounds*. In each round a caller has a share of turns, whatever the number of its connections; a
//! connection whose caller has used up its share waits for the next round, in its caller's own queue. So what a caller's storm
//! delays is that caller: everybody else waits for one round at most, and a round is as long as there are callers, not
//! connections or requests. A round ends when all that were ready have been looked at: the thread's keeper begins the next one.
//!
//! A caller that is alone has a larger share: nobody waits for it, and rounds cost a little.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::connection_table::ConnectionKey;

/// Turns in a round while others are there. A turn is a request that is read and answered, some 10 µs, most of them the
/// kernel's; the thread charges a pipeline as more. Ten callers' round is then below 1 ms.
const AMONG_OTHERS: u32 = 4;

/// Turns in a round of a caller that is alone: some 3 ms, which is what the first request of another one waits. A connection
/// that waits for the next round is looked at twice, and with 64 of them that was most of what 200 kept connections send
/// at once: 6 % of the rate under a quota of 250m.
const ALONE: u32 = 256;

/// A thread's rounds.
#[derive(Debug)]
pub(crate) struct FairScheduler {
    round: Cell<u32>,
    /// Turns of each caller in a round.
    share: Cell<u32>,
    /// Callers that wait, in turn.
    waiting: RefCell<VecDeque<Rc<ClientTurns>>>,
    /// Somebody waits for the next round.
    wanted: Notify,
    /// A round has begun.
    begun: Notify,
    /// Callers that had a turn lately, and since when that is.
    callers: Cell<u32>,
    lately: Cell<u32>,
}

/// One caller's share.
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
    /// Whether this caller has had all its turns of the round.
    pub(crate) fn is_spent(&self, share: &ClientTurns) -> bool {
        let rounds = self.round.get().wrapping_sub(share.round.get());
        if rounds != 0 {
            share.round.set(self.round.get());
            // What was charged beyond the share is owed.
            share.taken.set(share.taken.get().saturating_sub(self.share.get().saturating_mul(rounds)));
        }
        share.taken.get() >= self.share.get()
    }

    /// Counts what cost as much as so many turns. The caller owes what is beyond its share to the rounds that come.
    pub(crate) fn charge(&self, share: &ClientTurns, turns: u32) {
        share.taken.set(share.taken.get().saturating_add(turns));
    }

    /// Counts a caller's turn.
    pub(crate) fn record_turn(&self, share: &ClientTurns) {
        share.taken.set(share.taken.get() + 1);
        if share.lately.get() != self.lately.get() {
            share.lately.set(self.lately.get());
            self.callers.set(self.callers.get() + 1);
            self.divide(self.callers.get());
        }
    }

    /// The connection is to be woken in a later round. Once at a time.
    pub(crate) fn wait(&self, share: &Rc<ClientTurns>, key: ConnectionKey) {
        share.waiting.borrow_mut().push_back(key);
        if !share.is_listed.replace(true) {
            self.waiting.borrow_mut().push_back(share.clone());
        }
        self.request_round();
    }

    /// Asks for another round.
    pub(crate) fn request_round(&self) {
        self.wanted.notify_one();
    }

    /// Returns when another round is wanted.
    pub(crate) async fn wait_for_round_request(&self) {
        self.wanted.notified().await;
    }

    /// Returns when the next round has begun.
    pub(crate) async fn wait_for_round(&self) {
        self.begun.notified().await;
    }

    /// Begins a round: each caller that waits has a share of its connections woken. `wake` says whether the connection was there.
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

    /// Whether more than one caller had turns lately: only then is there somebody to be protected.
    pub(crate) fn is_contended(&self) -> bool {
        self.share.get() == AMONG_OTHERS
    }

    /// Forgets who had turns before; to be called a few times a second.
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
    /// This connection is gone and waits no longer: its key may be another's soon, which would wait twice.
    pub(crate) fn remove(&self, key: ConnectionKey) {
        let mut waiting = self.waiting.borrow_mut();
        if let Some(place) = waiting.iter().position(|one| *one == key) {
            waiting.remove(place);
        }
    }

    /// Wakes so many of its connections; whether more wait.
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

    /// Everybody's connections are there, and whose turn it was is written down.
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
