//! The limiter's state. It decides which call starts next. This file contains no lock, no task and no clock.

use std::time::Duration;

use seawall_core::Moment;

use super::in_flight::InFlightCalls;
use super::queue::{CallPriority, CallQueue, QueueEntry, RequesterId};
use super::rate::AdaptiveRate;
use super::throttle_tracker::ThrottleTracker;
use crate::settings::BrokerSettings;
use crate::throttle_key::ThrottledAccountOrWorkload;

/// The lowest shared rate, in call chains per second. One chain every two seconds is enough to notice that the cloud has
/// recovered.
pub(super) const MIN_CALLS_PER_SECOND: f64 = 0.5;

/// The longest time for which throttled accounts wait for another account's urgent renewal.
/// A quota that the cloud counts per second is free again after this time. An account at the lowest rate makes a call every 15 s.
/// So the urgent renewals of this account block the other throttled accounts for at most 2 of 15 s.
const HUSH: Duration = Duration::from_secs(2);

/// The pause between two calls that bypass the reduced shared rate, because their accounts are not throttled.
const UNTROUBLED: Duration = Duration::from_millis(250);

/// The reason for a chain of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallReason {
    /// A request waits for the credential.
    Request {
        /// True if the request's pod has no lease.
        holds_nothing: bool,
    },
    /// The call renews a valid credential before it expires.
    Renewal {
        /// The time from which the renewal is urgent, because the current credential is near its floor.
        urgent_at: Moment,
    },
}

/// The pod and the cloud account for which a chain of calls counts.
#[derive(Clone, Debug)]
pub(crate) struct CallOwner {
    pub(crate) requester_id: RequesterId,
    pub(crate) throttle_key: ThrottledAccountOrWorkload,
}

/// The reason why a request cannot queue a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueRefusal {
    /// The pod has reached its limit of queued calls.
    Full,
    /// The account is throttled until this time.
    Throttled(Moment),
}

pub(super) enum DispatchStep<W> {
    StartCall(QueueEntry<W>),
    /// No waiting call can start before this time.
    WaitUntil(Moment),
    WaitForEvent,
}

/// The state of the limiter. `W` is the channel that notifies the waiting fetch of its turn.
#[derive(Debug)]
pub(super) struct LimiterState<W> {
    queued_per_holder: usize,
    max_wait: Duration,
    /// The rate that all accounts share.
    pub(super) rate: AdaptiveRate,
    accounts: ThrottleTracker,
    pub(super) queue: CallQueue<W>,
    pub(super) in_flight: InFlightCalls,
    /// The number of tickets so far, which is the id of the next ticket.
    tickets: u64,
    /// The earliest time of the next call for an account that is not throttled, while the shared rate is reduced.
    next_unthrottled_at: Moment,
}

impl<W> LimiterState<W> {
    pub(super) fn new(settings: &BrokerSettings) -> Self {
        let most = settings.calls_per_second.max(MIN_CALLS_PER_SECOND);
        Self {
            queued_per_holder: settings.queued_calls_per_pod.max(1),
            max_wait: settings.max_request_wait,
            rate: AdaptiveRate::new(MIN_CALLS_PER_SECOND, most, 0.0),
            accounts: ThrottleTracker::new(most),
            queue: CallQueue::default(),
            in_flight: InFlightCalls::with_max_calls(settings.calls_at_once),
            tickets: 0,
            next_unthrottled_at: Moment::from_nanos(0),
        }
    }

    /// Checks whether a request of this pod can queue a call.
    pub(super) fn check_may_queue(&self, party: &CallOwner, now: Moment) -> Result<(), QueueRefusal> {
        match self.accounts.next_start_at(&party.throttle_key) {
            // The call could start only after the request's deadline. An SDK handles an immediate error better than a hanging
            // request.
            Some(next) if next > now + self.max_wait => Err(QueueRefusal::Throttled(next)),
            _ if self.queue.pod_waited_for_call_count(party.requester_id) >= self.queued_per_holder => {
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
            self.check_may_queue(&party, now)?;
        }
        let id = self.tickets;
        self.tickets += 1;
        let rank = self.rank(&party, lane);
        let CallOwner { requester_id: holder, throttle_key: account } = party;
        self.queue.push(
            QueueEntry { id, requester_id: holder, throttle_key: account, is_waited_for, urgent_at, waiter },
            rank,
        );
        Ok(id)
    }

    /// Raises the priority of a queued call, because a request of this pod now also waits for the call.
    pub(super) fn raise_priority(&mut self, id: u64, party: &CallOwner, holds_nothing: bool) {
        let rank = self.rank(party, CallReason::Request { holds_nothing });
        self.queue.raise_priority(id, party.requester_id, rank);
    }

    pub(super) fn record_success(&mut self, account: &ThrottledAccountOrWorkload, now: Moment) {
        self.rate.record_success();
        self.accounts.record_success(account, now);
    }

    pub(super) fn record_throttled(
        &mut self,
        account: &ThrottledAccountOrWorkload,
        now: Moment,
        retry_after: Option<Duration>,
    ) {
        if self.accounts.record_throttled(account, now, retry_after) {
            // The shared rate ignores `retry_after`, because the cloud stated it for one account.
            self.rate.record_throttled(now, None);
        }
    }

    pub(super) fn next_dispatch_step(&mut self, now: Moment) -> DispatchStep<W> {
        self.queue.raise_due_renewals_to_urgent(now);
        let (id, not_before) = self.choose(now, |_| true);
        let Some(mut id) = id else {
            return not_before.map_or(DispatchStep::WaitForEvent, DispatchStep::WaitUntil);
        };
        let is_early = now < self.rate.next_start_at();
        if is_early {
            match self.choose_unthrottled(now) {
                Some(untroubled) if now >= self.next_unthrottled_at => id = untroubled,
                Some(_) => {
                    return DispatchStep::WaitUntil(self.rate.next_start_at().min(self.next_unthrottled_at));
                }
                None => return DispatchStep::WaitUntil(self.rate.next_start_at()),
            }
        }
        let Some(entry) = self.queue.dequeue(id) else { return DispatchStep::WaitForEvent };
        if is_early {
            self.next_unthrottled_at = now + UNTROUBLED;
        } else {
            self.rate.record_start(now);
        }
        self.accounts.record_start(&entry.throttle_key, now);
        self.in_flight.add(entry.requester_id, entry.is_waited_for);
        DispatchStep::StartCall(entry)
    }

    /// Returns the priority of a call. A pod without a lease is a newcomer while it has no other call in the queue or in flight.
    /// If the cloud throttles a pod's account repeatedly, the pod is not a newcomer. Otherwise such a pod would always go before
    /// pods that the cloud serves.
    fn rank(&self, party: &CallOwner, lane: CallReason) -> CallPriority {
        let is_first = self.queue.pod_queued_call_count(party.requester_id) == 0
            && self.in_flight.count_for_requester(party.requester_id) == 0;
        match lane {
            CallReason::Request { holds_nothing: true }
                if is_first && !self.accounts.is_repeatedly_throttled(&party.throttle_key) =>
            {
                CallPriority::Newcomer
            }
            CallReason::Request { .. } | CallReason::Renewal { .. } => CallPriority::Ordinary,
        }
    }

    /// Returns the id of the next call that can start now, among the calls for which `is_meant` is true.
    /// If no such call can start now, the function returns an earliest start time. It considers only calls that wait because
    /// their accounts are throttled.
    fn choose(
        &self,
        now: Moment,
        is_meant: impl Fn(&QueueEntry<W>) -> bool,
    ) -> (Option<u64>, Option<Moment>) {
        let hush = self.urgent_hold_until(now);
        let mut first: Option<Moment> = None;
        let may = |entry: &QueueEntry<W>, rank: CallPriority| {
            let account = self.accounts.next_start_at(&entry.throttle_key).filter(|next| *next > now);
            let hushed = hush.filter(|_| {
                rank > CallPriority::Urgent && self.accounts.is_recently_throttled(&entry.throttle_key)
            });
            let not_before = account.max(hushed);
            let has_room =
                is_meant(entry) && self.in_flight.has_room(entry.requester_id, entry.is_waited_for);
            if let (true, Some(at)) = (has_room, not_before) {
                first = Some(first.map_or(at, |first| first.min(at)));
            }
            has_room && not_before.is_none()
        };
        (self.queue.first_allowed_id(may), first)
    }

    /// Returns the next call for an account that is not throttled, while the shared rate is reduced.
    /// The limiter inferred the reduced rate from calls of other accounts. If only a few other accounts are in use, this evidence
    /// is weak. So a call for an account that the cloud may serve does not wait for the shared rate. If all accounts share one
    /// quota after all, the cloud throttles this call, and the limiter then slows down the call's account, too.
    fn choose_unthrottled(&self, now: Moment) -> Option<u64> {
        let is_untroubled = |entry: &QueueEntry<W>| {
            entry.is_waited_for && !self.accounts.is_recently_throttled(&entry.throttle_key)
        };
        if !self.rate.is_at_max() { self.choose(now, is_untroubled).0 } else { None }
    }

    /// Returns the time until which throttled accounts wait for an urgent renewal of another throttled account.
    /// All throttled accounts may share one quota, such as the quota of a project. Without this wait, calls of the other accounts
    /// could use up that quota before the renewal. An account that is not throttled does not wait.
    fn urgent_hold_until(&self, now: Moment) -> Option<Moment> {
        let next = |entry: &QueueEntry<W>| self.accounts.next_start_at(&entry.throttle_key);
        let soon = self
            .queue
            .first_urgent_per_pod()
            .filter_map(next)
            .filter(|next| *next > now && *next <= now + HUSH);
        soon.min()
    }
}
