//! The limiter's state: decides which call is next. It has no lock, task or clock of its own.

use std::time::Duration;

use seawall_core::Moment;

use super::in_flight::InFlightCalls;
use super::queue::{CallPriority, CallQueue, QueueEntry, RequesterId};
use super::rate::AdaptiveRate;
use super::throttle_tracker::ThrottleTracker;
use crate::settings::BrokerSettings;
use crate::throttle_key::ThrottleKey;

/// The lowest rate under throttling: a call every two seconds still finds out that the cloud is well again.
pub(super) const LEAST_PER_SECOND: f64 = 0.5;

/// The longest time for which throttled accounts make way for another's urgent renewal. A quota per second or more is free again
/// after it. An account that is asked for every 15 s costs the others an eighth of their time.
const HUSH: Duration = Duration::from_secs(2);

/// The pause between two calls for accounts that were not throttled, while the shared rate is slowed down.
const UNTROUBLED: Duration = Duration::from_millis(250);

/// The reason for a chain of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallReason {
    /// A request waits for the credential.
    Request {
        /// True if the request's pod holds no lease at all.
        holds_nothing: bool,
    },
    /// The call replaces, ahead of time, a credential that is still good.
    Renewal {
        /// The time from which the replaced credential is near its floor.
        urgent_at: Moment,
    },
}

/// The pod and the throttled party for which a chain of calls is made.
#[derive(Clone, Debug)]
pub(crate) struct CallOwner {
    pub(crate) requester: RequesterId,
    pub(crate) throttle_key: ThrottleKey,
}

/// The reason for which a request may not queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueRefusal {
    /// The pod has reached its limit of queued calls.
    Full,
    /// The account is throttled until this time.
    Throttled(Moment),
}

/// The dispatcher's next step.
pub(super) enum DispatchStep<W> {
    Start(QueueEntry<W>),
    /// No waiting call may start before this time.
    Until(Moment),
    Nothing,
}

/// The state of the limiter. `W` is the channel that tells a waiter of its turn.
#[derive(Debug)]
pub(super) struct LimiterState<W> {
    queued_per_holder: usize,
    max_wait: Duration,
    /// The rate that all accounts share.
    pub(super) rate: AdaptiveRate,
    accounts: ThrottleTracker,
    pub(super) queue: CallQueue<W>,
    pub(super) in_flight: InFlightCalls,
    /// The number of tickets so far, which is the next ticket's id.
    tickets: u64,
    /// The time from which the next call for an account that was not throttled may start, however slow the shared rate is.
    next_unthrottled_at: Moment,
}

impl<W> LimiterState<W> {
    pub(super) fn new(settings: &BrokerSettings) -> Self {
        let most = settings.calls_per_second.max(LEAST_PER_SECOND);
        Self {
            queued_per_holder: settings.queued_per_pod.max(1),
            max_wait: settings.max_wait,
            rate: AdaptiveRate::new(LEAST_PER_SECOND, most, 0.0),
            accounts: ThrottleTracker::new(most),
            queue: CallQueue::default(),
            in_flight: InFlightCalls::of(settings.calls_at_once),
            tickets: 0,
            next_unthrottled_at: Moment::from_nanos(0),
        }
    }

    /// Checks if a request of this pod may queue.
    pub(super) fn admits(&self, party: &CallOwner, now: Moment) -> Result<(), QueueRefusal> {
        match self.accounts.next(&party.throttle_key) {
            // It would wait for nothing, and a library that is told waits better than one that hangs.
            Some(next) if next > now + self.max_wait => Err(QueueRefusal::Throttled(next)),
            _ if self.queue.request_count(party.requester) >= self.queued_per_holder => {
                Err(QueueRefusal::Full)
            }
            _ => Ok(()),
        }
    }

    /// Queues a call and returns its id.
    pub(super) fn enqueue(
        &mut self,
        party: CallOwner,
        lane: CallReason,
        now: Moment,
        waiter: W,
    ) -> Result<u64, QueueRefusal> {
        let (is_waited_for, urgent_at) = match lane {
            CallReason::Request { .. } => (true, None),
            CallReason::Renewal { urgent_at } => (false, Some(urgent_at)),
        };
        if is_waited_for {
            self.admits(&party, now)?;
        }
        let id = self.tickets;
        self.tickets += 1;
        let rank = self.rank(&party, lane);
        let CallOwner { requester: holder, throttle_key: account } = party;
        self.queue.push(
            QueueEntry { id, requester: holder, throttle_key: account, is_waited_for, urgent_at, waiter },
            rank,
        );
        Ok(id)
    }

    /// Raises the priority of a queued call for which a request of this pod now waits, too.
    pub(super) fn raise_priority(&mut self, id: u64, party: &CallOwner, holds_nothing: bool) {
        let rank = self.rank(party, CallReason::Request { holds_nothing });
        self.queue.raise_priority(id, party.requester, rank);
    }

    pub(super) fn succeeded(&mut self, account: &ThrottleKey, now: Moment) {
        self.rate.succeeded();
        self.accounts.served(account, now);
    }

    pub(super) fn throttled(&mut self, account: &ThrottleKey, now: Moment, retry_after: Option<Duration>) {
        if self.accounts.throttled(account, now, retry_after) {
            // Not its `retry_after`: that is one account's until the rate of all has shown that it is everybody's.
            self.rate.throttled(now, None);
        }
    }

    pub(super) fn step(&mut self, now: Moment) -> DispatchStep<W> {
        self.queue.move_to_urgent(now);
        let (id, not_before) = self.choose(now, |_| true);
        let Some(mut id) = id else { return not_before.map_or(DispatchStep::Nothing, DispatchStep::Until) };
        let is_early = now < self.rate.next();
        if is_early {
            match self.choose_unthrottled(now) {
                Some(untroubled) if now >= self.next_unthrottled_at => id = untroubled,
                Some(_) => return DispatchStep::Until(self.rate.next().min(self.next_unthrottled_at)),
                None => return DispatchStep::Until(self.rate.next()),
            }
        }
        let Some(entry) = self.queue.take(id) else { return DispatchStep::Nothing };
        if is_early {
            self.next_unthrottled_at = now + UNTROUBLED;
        } else {
            self.rate.started(now);
        }
        self.accounts.started(&entry.throttle_key, now);
        self.in_flight.add(entry.requester, entry.is_waited_for);
        DispatchStep::Start(entry)
    }

    /// Returns the priority of a call. A pod without a lease is a newcomer with one call at a time: its first, whatever it asks
    /// for. A pod whose account is throttled again and again is not: it would be first in line for ever, before pods that the cloud
    /// serves.
    fn rank(&self, party: &CallOwner, lane: CallReason) -> CallPriority {
        let is_first = self.queue.len(party.requester) == 0 && self.in_flight.count_of(party.requester) == 0;
        match lane {
            CallReason::Request { holds_nothing: true }
                if is_first && !self.accounts.is_slow(&party.throttle_key) =>
            {
                CallPriority::Newcomer
            }
            CallReason::Request { .. } | CallReason::Renewal { .. } => CallPriority::Ordinary,
        }
    }

    /// Returns the call whose turn it is, if there is room. Otherwise returns the earliest time at which a call that only a
    /// throttled account keeps back may start.
    fn choose(
        &self,
        now: Moment,
        is_meant: impl Fn(&QueueEntry<W>) -> bool,
    ) -> (Option<u64>, Option<Moment>) {
        let hush = self.urgent_hold_until(now);
        let mut first: Option<Moment> = None;
        let may = |entry: &QueueEntry<W>, rank: CallPriority| {
            let account = self.accounts.next(&entry.throttle_key).filter(|next| *next > now);
            let hushed =
                hush.filter(|_| rank > CallPriority::Urgent && self.accounts.is_paced(&entry.throttle_key));
            let not_before = account.max(hushed);
            let has_room = is_meant(entry) && self.in_flight.has_room(entry.requester, entry.is_waited_for);
            if let (true, Some(at)) = (has_room, not_before) {
                first = Some(first.map_or(at, |first| first.min(at)));
            }
            has_room && not_before.is_none()
        };
        (self.queue.next(may), first)
    }

    /// Returns the next call for an account that was not throttled lately, if the shared rate was slowed. The slow rate was
    /// inferred from other accounts' calls, and the evidence is weakest when hardly any other account is asked for. A pod whose
    /// account the cloud would serve must not wait for a rate that other accounts have brought about. If all accounts share the
    /// quota after all, this call finds it out for its account.
    fn choose_unthrottled(&self, now: Moment) -> Option<u64> {
        let is_untroubled =
            |entry: &QueueEntry<W>| entry.is_waited_for && !self.accounts.is_paced(&entry.throttle_key);
        if !self.rate.is_at_most() { self.choose(now, is_untroubled).0 } else { None }
    }

    /// Returns the time until which throttled accounts make way for an urgent renewal of a throttled account. All of them may share
    /// the quota that throttles it: a storm that takes all that a project allows would be ahead of it each time. An account that is
    /// not throttled does not have to make way.
    fn urgent_hold_until(&self, now: Moment) -> Option<Moment> {
        let next = |entry: &QueueEntry<W>| self.accounts.next(&entry.throttle_key);
        let soon = self.queue.urgent().filter_map(next).filter(|next| *next > now && *next <= now + HUSH);
        soon.min()
    }
}
