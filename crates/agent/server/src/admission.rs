//! Decides whether a traffic thread accepts a waiting connection, and whether that connection may stay open.
//!
//! A connection that waits in the kernel's backlog costs no CPU time and no memory of the agent. An accepted connection costs as much as an
//! answer, even if the thread only closes it. Therefore the thread decides *before* it accepts, and it never closes a connection to make
//! room for another one. An earlier version did close connections for new ones. Under a CPU quota of 500m, 2,000 clients got no answers at
//! all, because the thread accepted and closed connections faster than their clients could send.
//!
//! A client that has reached its share of connections still gets answers. Each further connection is a *guest*: the thread answers its
//! first request with the header `Connection: close`, and then closes it. Guests get a limited part of the CPU time ([`GuestCpuBudget`]),
//! because a guest costs three times as much as an answer on an open connection.
//!
//! The module knows no sockets. The thread passes in the time and the CPU time that the process has used.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use seawall_core::{Moment, fair_share};

use crate::connection_permits::PermitCounter;

/// The CPU time that a guest costs: accept, read, answer and close. Measured: 15.7 to 20 µs, mostly in the kernel.
const GUEST_COST: f64 = 16e-6;

/// The part of the used CPU time that guests get while the thread has no unused CPU time.
/// Answers on open connections lose this part. A guest's answer costs three times as much (5.2 and 16 µs), so the number of all answers falls
/// by 8 %. Without a limit on guests, it fell by half.
const GUEST_PART: f64 = 1.0 / 8.0;

/// The part of the granted CPU time that guests may use while no other work needs it. The remaining 15 % is for renewals and the admin
/// port.
const USABLE_PART: f64 = 0.85;

/// The interval at which the budget grows, and at which the thread checks the paused shards again.
/// So guests come in batches. Single guests between other requests made each answer cost more CPU time.
pub(crate) const ADMISSION_INTERVAL: Duration = Duration::from_millis(10);

/// The budget saves at most the CPU time that the thread may use in this time.
const SAVED: Duration = Duration::from_millis(20);

/// The CPU time that a thread may spend on guests.
#[derive(Debug)]
pub(crate) struct GuestCpuBudget {
    /// The number of cores that this thread may use.
    cores: f64,
    /// The number of threads that share the process's CPU time.
    threads: f64,
    /// The CPU seconds that guests may use now. Negative after unexpected guests, which the thread charges after their accept.
    credit: f64,
    last: Option<(Moment, Duration)>,
}

impl GuestCpuBudget {
    /// Returns the budget of one of `threads` threads. `cores` is the CPU quota of the process, if there is one.
    pub(crate) fn new(cores: Option<f64>, threads: usize) -> Self {
        let threads = threads.max(1) as f64;
        let cores = cores.map_or(1.0, |cores| (cores / threads).min(1.0));
        let credit = SAVED.as_secs_f64() * cores;
        Self { cores, threads, credit, last: None }
    }

    /// Grows the budget for the time since the last call. `used` is the CPU time that the process has used so far.
    ///
    /// Guests get an eighth of the used CPU time, or all CPU time that the thread could have used and did not use, whichever is more.
    pub(crate) fn grow(&mut self, now: Moment, used: Duration) {
        let Some((then, before)) = self.last.replace((now, used)) else { return };
        let used = used.saturating_sub(before).as_secs_f64() / self.threads;
        let unused = now.since(then).as_secs_f64() * self.cores * USABLE_PART - used;
        let most = (SAVED.as_secs_f64() * self.cores).max(GUEST_COST);
        self.credit = (self.credit + (used * GUEST_PART).max(unused)).min(most);
    }

    /// Returns the number of guests that the budget still pays for.
    pub(crate) fn affordable_guests(&self) -> usize {
        (self.credit / GUEST_COST).max(0.0) as usize
    }

    /// Pays for a guest. Returns false if the budget is used up.
    pub(crate) fn pay_for_guest(&mut self) -> bool {
        let is_enough = self.credit >= GUEST_COST;
        if is_enough {
            self.charge();
        }
        is_enough
    }

    /// Charges a guest that the thread accepted before it knew the client. The budget can become negative.
    pub(crate) fn charge(&mut self) {
        self.credit -= GUEST_COST;
    }

    /// Puts back the payment for a guest that did not come.
    pub(crate) fn refund(&mut self) {
        self.credit += GUEST_COST;
    }
}

/// A thread's record of one shard: the client that it accepted last, and the number of open guests.
///
/// A shard nearly always has the connections of one client, and the thread learns the client only by accepting. Therefore the thread
/// expects the next connection to have the same client as the last accepted one.
#[derive(Debug, Default)]
pub(crate) struct ShardAdmission {
    /// Counts the connections of the client that was accepted last.
    last: RefCell<Option<Arc<PermitCounter>>>,
    guests: Rc<Cell<u32>>,
}

/// The place of an open guest among the guests of its shard. Dropping this value frees the place.
#[derive(Debug)]
pub(crate) struct GuestPlace(Rc<Cell<u32>>);

impl Drop for GuestPlace {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl ShardAdmission {
    /// True if the next connection of this shard will probably be a guest, because the last accepted client is at its share now.
    /// `is_within_share` says whether the client with this counter may keep one more connection.
    pub(crate) fn expects_guest(&self, is_within_share: impl FnOnce(&PermitCounter) -> bool) -> bool {
        self.last.borrow().as_ref().is_some_and(|last| !last.is_closed() && !is_within_share(last))
    }

    /// Records the client that was accepted last, by the counter of its connections.
    pub(crate) fn record_client(&self, connections: &Arc<PermitCounter>) {
        let mut last = self.last.borrow_mut();
        if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, connections)) {
            *last = Some(connections.clone());
        }
    }

    /// True if this shard may have one more open guest. `all` counts the open guests of the process, and `most` limits them.
    /// A shard with many silent guests leaves places for other shards ([`fair_share`]).
    pub(crate) fn has_guest_place(&self, all: &PermitCounter, most: u32) -> bool {
        let free = u64::from(most.saturating_sub(all.open_count()));
        fair_share::may_take(u64::from(self.guests.get()), free)
    }

    /// Takes the place of a guest.
    pub(crate) fn take_guest_place(&self) -> GuestPlace {
        self.guests.set(self.guests.get() + 1);
        GuestPlace(self.guests.clone())
    }
}

/// Returns the number of connections that may wait in one shard, so that they wait for at most 0.4 s. The result is at most `most`.
/// `accepted` is the number of connections that the thread accepted in `period` from the `shards` shards in which connections wait.
///
/// AWS's Go SDK gives up after half a second. If the backlog is full, the kernel drops the attempt to connect, at no cost for the agent.
/// The client's kernel tries again after a second.
pub(crate) fn backlog_for_max_wait(accepted: u32, period: Duration, shards: usize, most: i32) -> i32 {
    const LONGEST_WAIT: f64 = 0.4;
    const LEAST: i32 = 8;
    let rate = f64::from(accepted) / period.as_secs_f64().max(0.001);
    ((LONGEST_WAIT * rate / shards.max(1) as f64) as i32).min(most).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    /// Returns the number of guests per second of a thread that uses the part `busy` of its quota for other work.
    fn guests_per_second(cores: f64, busy: f64) -> u32 {
        let mut budget = GuestCpuBudget::new(Some(cores), 1);
        while budget.pay_for_guest() {}
        let mut guests = 0;
        let mut used = Duration::ZERO;
        for tick in 0..=100 {
            budget.grow(at(tick * 10), used);
            while budget.pay_for_guest() {
                guests += 1;
            }
            used += Duration::from_millis(10).mul_f64(cores * busy);
        }
        guests
    }

    #[test]
    fn guests_get_an_eighth_of_a_busy_thread_and_what_an_idle_one_leaves() {
        assert!((3906..=3907).contains(&guests_per_second(0.5, 1.0)));
        assert!((233..=234).contains(&guests_per_second(0.03, 1.0)));
        assert!((26_000..27_000).contains(&guests_per_second(0.5, 0.0)), "the thread could serve 31,250");
    }

    #[test]
    fn a_guest_that_nobody_expected_is_paid_for_later() {
        let mut budget = GuestCpuBudget::new(Some(0.5), 1);
        budget.grow(at(0), Duration::ZERO);
        while budget.pay_for_guest() {}
        (0..100).for_each(|_| budget.charge());
        budget.grow(at(1), Duration::ZERO);
        assert!(!budget.pay_for_guest(), "1.6 ms are owed, and 0.4 ms are earned");
        budget.grow(at(6), Duration::ZERO);
        assert!(budget.pay_for_guest());
    }

    #[test]
    fn a_thread_that_slept_for_long_has_saved_little() {
        let mut budget = GuestCpuBudget::new(None, 2);
        budget.grow(at(0), Duration::ZERO);
        budget.grow(at(3_600_000), Duration::ZERO);
        assert_eq!(budget.affordable_guests(), 1250);
    }

    #[test]
    fn a_shard_is_crowded_only_while_its_last_client_is_at_its_share() {
        let shard = ShardAdmission::default();
        assert!(!shard.expects_guest(|_| false), "nobody was accepted yet");
        let client = Arc::new(PermitCounter::default());
        shard.record_client(&client);
        assert!(shard.expects_guest(|_| false) && !shard.expects_guest(|_| true));
        client.close();
        assert!(!shard.expects_guest(|_| false), "the address may belong to another pod now");
    }

    #[test]
    fn silent_guests_of_one_shard_leave_places_for_other_shards() {
        let all = Arc::new(PermitCounter::default());
        let (hostile, quiet) = (ShardAdmission::default(), ShardAdmission::default());
        let mut held = Vec::new();
        while hostile.has_guest_place(&all, 64) {
            held.push((hostile.take_guest_place(), all.take(64).unwrap()));
        }
        assert_eq!(held.len(), 32);
        assert!(quiet.has_guest_place(&all, 64));
        held.clear();
        assert!(hostile.has_guest_place(&all, 64), "the places of guests that left are free");
    }

    #[test]
    fn no_connection_waits_longer_than_four_tenths_of_a_second() {
        let second = Duration::from_secs(1);
        assert_eq!(backlog_for_max_wait(1875, second, 8, 256), 93);
        assert_eq!(backlog_for_max_wait(1875, second, 256, 256), 8, "the least");
        assert_eq!(backlog_for_max_wait(30_000, second, 8, 256), 256, "the most");
        assert_eq!(backlog_for_max_wait(0, Duration::ZERO, 0, 256), 8);
    }
}
