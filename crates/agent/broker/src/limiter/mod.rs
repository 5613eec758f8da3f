//! The limiter for all calls to a cloud, with fair shares per pod.
//!
//! A fetch makes a chain of upstream calls. One rate, which all pods share, limits how many chains start per second ([`rate`]).
//! An account that the cloud throttles has its own rate ([`throttle_tracker`]). A chain that cannot start yet waits in a
//! [`queue`] without a fixed start time. The limiter chooses the next chain at the moment when a chain can start. So when a low
//! rate recovers, the waiting chains start at the recovered rate.
//!
//! Each pod gets a fair share. Two pods of one ServiceAccount have two shares. Pods take
//! turns in the queue, and each pod has a limit of queued calls. Pods share the capacity for calls in flight by dynamic
//! thresholds ([`in_flight`], [`seawall_core::fair_share`]). So even if all calls of a pod hang, they use at most half of the
//! capacity. Dropping the [`QueueTicket`] of a waiting call cancels the call.
//!
//! This file contains the lock and the task; [`state`] decides which call is next. Each file uses only the files before it in
//! this list: `rate`, `throttle_tracker`, `queue`, `in_flight`, `state`.

mod in_flight;
mod queue;
mod rate;
mod state;
mod throttle_tracker;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use seawall_core::{Clock, Moment};
use tokio::sync::{Notify, oneshot};

use crate::settings::BrokerSettings;
use crate::throttle_key::ThrottledAccountOrWorkload;
use queue::QueueEntry;
pub(crate) use queue::RequesterId;
pub(crate) use state::{CallOwner, CallReason, QueueRefusal};
use state::{DispatchStep, LimiterState};

/// The channel that delivers a permit to the waiting fetch.
type Waiter = oneshot::Sender<CallPermit>;

#[derive(Debug)]
pub(crate) struct Limiter {
    state: Mutex<LimiterState<Waiter>>,
    /// Wakes the dispatcher when a call arrives or gets a higher priority, a call in flight ends, or the limiter is dropped.
    changed: Arc<Notify>,
}

/// The permit for one chain of calls. Dropping the permit makes room for the next chain.
#[derive(Debug)]
pub(crate) struct CallPermit {
    limiter: Arc<Limiter>,
    holder: RequesterId,
    is_waited_for: bool,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.limiter.state().in_flight.remove(self.holder, self.is_waited_for);
        self.limiter.changed.notify_one();
    }
}

/// The ticket of a call in the queue. Dropping the ticket removes the call from the queue.
#[derive(Debug)]
pub(crate) struct QueueTicket {
    pub(crate) id: u64,
    limiter: Arc<Limiter>,
    place: oneshot::Receiver<CallPermit>,
}

impl QueueTicket {
    /// Waits for the permit. Returns `None` if the broker has ended.
    pub(crate) async fn wait_for_permit(&mut self) -> Option<CallPermit> {
        (&mut self.place).await.ok()
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        // The removal of a queued call does not let another call start earlier. So the dispatcher need not check the queue again.
        drop(self.limiter.state().queue.remove(self.id));
    }
}

impl Limiter {
    pub(crate) fn new(settings: &BrokerSettings) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(LimiterState::new(settings)), changed: Arc::default() })
    }

    /// Grants permits to waiting calls until the limiter is dropped. One task runs this function.
    pub(crate) fn dispatch(self: &Arc<Self>, clock: Clock) -> impl Future<Output = ()> + Send + use<> {
        let (limiter, changed) = (Arc::downgrade(self), self.changed.clone());
        async move {
            while let Some(step) =
                limiter.upgrade().map(|limiter| limiter.state().next_dispatch_step(clock.now()))
            {
                match step {
                    DispatchStep::StartCall(entry) => start(&limiter, entry),
                    DispatchStep::WaitForEvent => changed.notified().await,
                    DispatchStep::WaitUntil(moment) => {
                        tokio::select! { () = clock.sleep_until(moment) => {}, () = changed.notified() => {} }
                    }
                }
            }
        }
    }

    /// Checks whether a request of this pod can queue a call.
    /// The caller runs this check before it allocates anything, so a refusal costs almost nothing.
    pub(crate) fn check_may_queue(&self, party: &CallOwner, now: Moment) -> Result<(), QueueRefusal> {
        self.state().check_may_queue(party, now)
    }

    /// Queues a call. The queue accepts every renewal, because each cached lease has at most one renewal in the queue.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        party: CallOwner,
        lane: CallReason,
        now: Moment,
    ) -> Result<QueueTicket, QueueRefusal> {
        let (waiter, place) = oneshot::channel();
        let id = self.state().enqueue(party, lane, now, waiter)?;
        self.changed.notify_one();
        Ok(QueueTicket { id, limiter: self.clone(), place })
    }

    /// Raises the priority of a queued call, because a request of this pod now also waits for the call.
    pub(crate) fn raise_priority(&self, id: u64, party: &CallOwner, holds_nothing: bool) {
        self.state().raise_priority(id, party, holds_nothing);
        // Calls without a waiting request use at most half of the capacity. This call now has a waiting request, so the call may
        // start at once.
        self.changed.notify_one();
    }

    /// True if calls of this pod are queued or in flight.
    pub(crate) fn has_calls_of(&self, holder: RequesterId) -> bool {
        let state = self.state();
        state.queue.pod_queued_call_count(holder) > 0 || state.in_flight.count_for_requester(holder) > 0
    }

    /// Returns the pod of `holders` with the fewest queued calls.
    /// The holders share a lease. The renewal of the lease counts as a call that the returned requester made.
    pub(crate) fn requester_with_fewest_queued(&self, holders: &[RequesterId]) -> Option<RequesterId> {
        let state = self.state();
        holders.iter().copied().min_by_key(|holder| state.queue.pod_queued_call_count(*holder))
    }

    pub(crate) fn record_success(&self, account: &ThrottledAccountOrWorkload, now: Moment) {
        self.state().record_success(account, now);
    }

    /// Records that the cloud throttled a call of this account.
    pub(crate) fn record_throttled(
        &self,
        account: &ThrottledAccountOrWorkload,
        now: Moment,
        retry_after: Option<Duration>,
    ) {
        self.state().record_throttled(account, now, retry_after);
    }

    /// Returns the current rate limit: the number of call chains that can start per second.
    pub(crate) fn calls_per_second_limit(&self) -> f64 {
        self.state().rate.calls_per_second()
    }

    /// Locks the state, which calls for all principals share. No caller holds the lock across an await.
    fn state(&self) -> MutexGuard<'_, LimiterState<Waiter>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

fn start(limiter: &Weak<Limiter>, entry: QueueEntry<Waiter>) {
    if let Some(limiter) = limiter.upgrade() {
        let QueueEntry { requester_id: holder, is_waited_for, waiter, .. } = entry;
        // If the waiting fetch has just ended, `send` returns the permit. Dropping the permit makes room for another call.
        drop(waiter.send(CallPermit { limiter, holder, is_waited_for }));
    }
}

#[cfg(test)]
mod tests {
    use seawall_core::{LifetimeFloor, ServiceAccount};

    use super::state::MIN_CALLS_PER_SECOND;
    use super::*;

    const WAITED: CallReason = CallReason::Request { holds_nothing: false };
    const NEWCOMER: CallReason = CallReason::Request { holds_nothing: true };
    const RENEWAL: CallReason = CallReason::Renewal { urgent_at: Moment::from_nanos(u64::MAX) };

    fn settings(calls_per_second: f64) -> BrokerSettings {
        let floor =
            LifetimeFloor { min_remaining: Duration::from_secs(6), renew_below: Duration::from_secs(10) };
        BrokerSettings::for_cloud(floor, calls_per_second)
    }

    fn limiter(calls_per_second: f64, calls_at_once: usize) -> Arc<Limiter> {
        Limiter::new(&BrokerSettings { calls_at_once, ..settings(calls_per_second) })
    }

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    /// Returns the owner of a call: a pod with its own account.
    fn party(holder: RequesterId) -> CallOwner {
        let name = format!("a{holder}").into();
        CallOwner {
            requester_id: holder,
            throttle_key: ThrottledAccountOrWorkload::Workload(ServiceAccount {
                namespace: "shop".into(),
                name,
            }),
        }
    }

    fn wait(limiter: &Arc<Limiter>, lane: CallReason, holder: RequesterId) -> QueueTicket {
        limiter.enqueue(party(holder), lane, at(0)).unwrap()
    }

    /// Starts all calls that can start at `now`. Returns their pods.
    fn starts(limiter: &Arc<Limiter>, now: Moment) -> Vec<RequesterId> {
        let mut holders = Vec::new();
        while let DispatchStep::StartCall(entry) = limiter.state().next_dispatch_step(now) {
            holders.push(entry.requester_id);
            start(&Arc::downgrade(limiter), entry);
        }
        holders
    }

    /// Starts all calls that can start within `seconds` seconds, in steps of 10 ms. Returns their pods.
    fn starts_within(limiter: &Arc<Limiter>, seconds: u64) -> Vec<RequesterId> {
        (0..seconds * 100).flat_map(|step| starts(limiter, at(step * 10))).collect()
    }

    #[test]
    fn starts_at_the_rate_and_never_more_at_once_than_there_are_places() {
        let limiter = limiter(10.0, 4);
        let mut tickets: Vec<_> = (0..10).map(|holder| wait(&limiter, WAITED, holder)).collect();
        let at_each = |ms| starts(&limiter, at(ms)).len();
        assert_eq!([0, 50, 100, 150, 200, 300, 400, 500].map(at_each), [1, 0, 1, 0, 1, 1, 0, 0]);
        tickets.remove(0);
        assert_eq!(at_each(500), 1);
    }

    #[test]
    fn a_pod_whose_calls_hang_has_half_of_the_places_and_eight_leave_some() {
        let limiter = limiter(100.0, 32);
        let mut tickets: Vec<_> = (0..30).map(|_| wait(&limiter, WAITED, 1)).collect();
        assert_eq!(starts_within(&limiter, 1).len(), 16);
        for holder in 2..9 {
            tickets.extend((0..30).map(|_| wait(&limiter, WAITED, holder)));
        }
        let taken = 16 + starts_within(&limiter, 2).len();
        assert!(taken < 32, "{taken}");
        let newcomer = wait(&limiter, NEWCOMER, 9);
        assert_eq!(starts(&limiter, at(3000)), [9]);
        drop((newcomer, tickets));
        assert_eq!(limiter.state().in_flight.total, 0);
        assert!(limiter.state().in_flight.per_requester.is_empty());
    }

    #[test]
    fn renewals_leave_half_of_the_places() {
        let limiter = limiter(100.0, 8);
        let _renewals: Vec<_> = (0..20).map(|holder| wait(&limiter, RENEWAL, holder)).collect();
        assert_eq!(starts_within(&limiter, 1).len(), 4);
        let _waited = wait(&limiter, WAITED, 21);
        assert_eq!(starts(&limiter, at(2000)), [21]);
    }

    #[test]
    fn a_pod_that_holds_nothing_is_a_newcomer_with_its_first_call_only() {
        let limiter = limiter(1.0, 100);
        let _storm: Vec<_> = (0..5).map(|_| wait(&limiter, NEWCOMER, 1)).collect();
        let _alice = wait(&limiter, NEWCOMER, 2);
        assert_eq!([0, 1000, 2000].map(|ms| starts(&limiter, at(ms))), [[1], [2], [1]]);
    }

    #[test]
    fn a_pod_may_queue_so_much_and_no_more_and_others_are_let_in() {
        let limiter = limiter(1.0, 4);
        let most = settings(1.0).queued_calls_per_pod;
        let mut tickets: Vec<_> = (0..most).map(|_| wait(&limiter, WAITED, 1)).collect();
        assert_eq!(limiter.enqueue(party(1), WAITED, at(0)).unwrap_err(), QueueRefusal::Full);
        tickets.push(wait(&limiter, RENEWAL, 1));
        tickets.push(wait(&limiter, WAITED, 2));
        tickets.remove(0);
        assert!(limiter.check_may_queue(&party(1), at(0)).is_ok());
    }

    /// Regression: a call reserved its start time at a low rate and kept that time after the rate had recovered.
    #[test]
    fn who_came_while_the_rate_was_low_is_served_when_it_has_grown() {
        let limiter = limiter(100.0, 1000);
        for second in 0..20 {
            (0..3).for_each(|n| {
                limiter.record_throttled(&party(900 + n).throttle_key, at(second * 1000), None);
            });
        }
        assert_eq!(limiter.calls_per_second_limit(), MIN_CALLS_PER_SECOND);
        let _waiting: Vec<_> = (0..50).map(|holder| wait(&limiter, WAITED, holder)).collect();
        assert_eq!(
            starts(&limiter, at(22_000)).len(),
            2,
            "one call at the shared rate, and one call of an account that was not throttled"
        );
        (0..10_000).for_each(|_| limiter.record_success(&party(900).throttle_key, at(22_000)));
        let started: usize = (0..100).map(|step| starts(&limiter, at(24_000 + step * 10)).len()).sum();
        assert_eq!(started, 48);
    }

    #[test]
    fn an_account_that_is_throttled_waits_and_others_go_past_it() {
        let limiter = limiter(100.0, 100);
        limiter.record_throttled(&party(1).throttle_key, at(0), Some(Duration::from_secs(2)));
        let _tickets = [wait(&limiter, WAITED, 1), wait(&limiter, WAITED, 2)];
        assert_eq!(starts(&limiter, at(0)), [2]);
        assert!(
            matches!(limiter.state().next_dispatch_step(at(100)), DispatchStep::WaitUntil(moment) if moment == at(2000))
        );
        assert_eq!(starts(&limiter, at(2000)), [1]);
        limiter.record_throttled(&party(1).throttle_key, at(3000), Some(Duration::from_secs(9)));
        assert_eq!(limiter.check_may_queue(&party(1), at(3000)), Err(QueueRefusal::Throttled(at(12_000))));
        assert_eq!(limiter.calls_per_second_limit(), 100.0);
    }

    #[test]
    fn a_ticket_that_is_dropped_is_never_flown() {
        let limiter = limiter(1.0, 1);
        drop(wait(&limiter, WAITED, 1));
        let _alice = wait(&limiter, WAITED, 2);
        assert_eq!(starts(&limiter, at(0)), [2]);
    }
}
