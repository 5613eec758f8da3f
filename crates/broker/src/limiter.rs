//! One limit for everything that goes to a cloud.
//!
//! Chains of upstream calls start at most at a rate, which halves when the cloud throttles and grows while it does not:
//! the rule that lets many senders share an unknown capacity (Chiu and Jain, 1989). Whoever may not start yet waits in
//! a queue and is chosen when there is room, so a rate that has recovered serves those who came while it was low.
//!
//! Two things keep one pod from harming another. Within a queue, ServiceAccounts take turns: sixty inventions of one are
//! sixty turns of that one. And between the queues, first fetches go before renewals, because nobody waits for a renewal,
//! but every fourth start is a renewal's if one waits: else whoever invents fast enough could let the credentials
//! of all others expire.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use seawall_core::{Clock, Moment, ServiceAccount};
use tokio::sync::{Notify, oneshot};

/// Throttled to this rate at the lowest: a call every two seconds still finds out that the cloud is well again.
const LEAST_PER_SECOND: f64 = 0.5;

/// A burst of calls that are all throttled together is one sign, not many.
const ONE_SIGN: Duration = Duration::from_secs(1);

/// First fetches that may start in a row while a renewal waits.
const FIRSTS_IN_A_ROW: u32 = 3;

/// Why a chain of calls is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// A pod waits for it.
    First,
    /// It replaces a credential that is still good.
    Renewal,
}

#[derive(Debug)]
pub(crate) struct Limiter {
    most_per_second: f64,
    at_once: usize,
    state: Mutex<State>,
    /// Told when there may be something to start: an arrival, a free place, the end.
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    per_second: f64,
    halved: Option<Moment>,
    /// When the next chain may start.
    next: Moment,
    first: TurnQueue,
    renewal: TurnQueue,
    in_air: usize,
    renewals_in_air: usize,
    firsts_in_a_row: u32,
}

/// The right to one chain of calls; dropping it makes room for the next.
#[derive(Debug)]
pub(crate) struct Place {
    limiter: Arc<Limiter>,
    lane: Lane,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limiter.state().left(self.lane);
        self.limiter.changed.notify_one();
    }
}

type Waiter = oneshot::Sender<Place>;

/// What there is to do.
enum Step {
    Start(Lane, Waiter),
    /// Somebody waits, but not before this.
    Until(Moment),
    Nothing,
}

impl Limiter {
    pub(crate) fn new(per_second: f64, at_once: usize) -> Arc<Self> {
        let most_per_second = per_second.max(LEAST_PER_SECOND);
        Arc::new(Self {
            most_per_second,
            at_once: at_once.max(1),
            state: Mutex::new(State {
                per_second: most_per_second,
                halved: None,
                next: Moment::from_nanos(0),
                first: TurnQueue::default(),
                renewal: TurnQueue::default(),
                in_air: 0,
                renewals_in_air: 0,
                firsts_in_a_row: 0,
            }),
            changed: Arc::default(),
        })
    }

    /// Gives those who wait their places, until the limiter is gone. One task runs this.
    pub(crate) fn dispatch(self: &Arc<Self>, clock: Clock) -> impl Future<Output = ()> + Send + use<> {
        let (limiter, changed) = (Arc::downgrade(self), self.changed.clone());
        async move {
            while let Some(step) = limiter.upgrade().map(|limiter| limiter.step(clock.now())) {
                match step {
                    Step::Start(lane, waiter) => start(&limiter, lane, waiter),
                    Step::Nothing => changed.notified().await,
                    Step::Until(moment) => {
                        tokio::select! { () = clock.sleep_until(moment) => {}, () = changed.notified() => {} }
                    }
                }
            }
        }
    }

    /// Waits for a place among everybody's, in turn with other ServiceAccounts. `None` when the broker is gone.
    pub(crate) async fn turn(&self, lane: Lane, workload: &ServiceAccount) -> Option<Place> {
        let (waiter, place) = oneshot::channel();
        self.state().queue(lane).push(workload, waiter);
        self.changed.notify_one();
        place.await.ok()
    }

    /// The upstream answered well.
    pub(crate) fn succeeded(&self) {
        let mut state = self.state();
        // One more per second each second. One more with each success would double the rate each second, and half of all
        // calls would be throttled.
        state.per_second = (state.per_second + 1.0 / state.per_second).min(self.most_per_second);
    }

    /// The upstream asked for less.
    pub(crate) fn throttled(&self, now: Moment) {
        let mut state = self.state();
        if state.halved.is_none_or(|last| now.since(last) >= ONE_SIGN) {
            state.per_second = (state.per_second / 2.0).max(LEAST_PER_SECOND);
            state.halved = Some(now);
        }
    }

    /// Chains that may start per second right now.
    pub(crate) fn per_second(&self) -> f64 {
        self.state().per_second
    }

    fn step(&self, now: Moment) -> Step {
        let mut state = self.state();
        let Some(lane) = state.choose(self.at_once) else { return Step::Nothing };
        if now < state.next {
            return Step::Until(state.next);
        }
        let Some(waiter) = state.queue(lane).pop() else { return Step::Nothing };
        if waiter.is_closed() {
            // Its flight is gone; the turn costs nothing.
            return Step::Until(now);
        }
        state.next = now + Duration::from_secs_f64(1.0 / state.per_second);
        state.entered(lane);
        Step::Start(lane, waiter)
    }

    /// A lock, because flights of all principals pace each other; held for a few instructions.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

fn start(limiter: &Weak<Limiter>, lane: Lane, waiter: Waiter) {
    if let Some(limiter) = limiter.upgrade() {
        // A waiter that just went gives the place back by dropping it.
        drop(waiter.send(Place { limiter, lane }));
    }
}

impl State {
    fn queue(&mut self, lane: Lane) -> &mut TurnQueue {
        match lane {
            Lane::First => &mut self.first,
            Lane::Renewal => &mut self.renewal,
        }
    }

    /// Whose turn it is, if there is room. Renewals take at most half of the places: many slow ones must leave room for a
    /// pod that has nothing yet.
    fn choose(&self, at_once: usize) -> Option<Lane> {
        if self.in_air >= at_once {
            return None;
        }
        let renewal = !self.renewal.is_empty() && self.renewals_in_air < (at_once / 2).max(1);
        let first = !self.first.is_empty();
        match (first, renewal) {
            (true, true) if self.firsts_in_a_row >= FIRSTS_IN_A_ROW => Some(Lane::Renewal),
            (true, _) => Some(Lane::First),
            (false, true) => Some(Lane::Renewal),
            (false, false) => None,
        }
    }

    fn entered(&mut self, lane: Lane) {
        self.in_air += 1;
        match lane {
            Lane::First => self.firsts_in_a_row += 1,
            Lane::Renewal => {
                self.firsts_in_a_row = 0;
                self.renewals_in_air += 1;
            }
        }
    }

    fn left(&mut self, lane: Lane) {
        self.in_air -= 1;
        if lane == Lane::Renewal {
            self.renewals_in_air -= 1;
        }
    }
}

/// A queue in which ServiceAccounts take turns. Its length is bounded by the principals in use: each has at most one
/// flight.
#[derive(Debug, Default)]
struct TurnQueue {
    turns: VecDeque<ServiceAccount>,
    waiting: HashMap<ServiceAccount, VecDeque<Waiter>>,
}

impl TurnQueue {
    fn push(&mut self, workload: &ServiceAccount, waiter: Waiter) {
        let own = self.waiting.entry(workload.clone()).or_default();
        if own.is_empty() {
            self.turns.push_back(workload.clone());
        }
        own.push_back(waiter);
    }

    fn pop(&mut self) -> Option<Waiter> {
        let workload = self.turns.pop_front()?;
        let own = self.waiting.get_mut(&workload)?;
        let waiter = own.pop_front();
        if own.is_empty() {
            self.waiting.remove(&workload);
        } else {
            self.turns.push_back(workload);
        }
        waiter
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str) -> ServiceAccount {
        ServiceAccount { namespace: "shop".into(), name: name.into() }
    }

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    /// Queues and forgets; the receiver is kept so that the waiter counts.
    fn wait(limiter: &Limiter, lane: Lane, name: &str) -> oneshot::Receiver<Place> {
        let (waiter, place) = oneshot::channel();
        limiter.state().queue(lane).push(&workload(name), waiter);
        place
    }

    /// Starts everything that may start at `now` and says in which lanes.
    fn starts(limiter: &Arc<Limiter>, now: Moment) -> Vec<Lane> {
        let mut lanes = Vec::new();
        while let Step::Start(lane, waiter) = limiter.step(now) {
            lanes.push(lane);
            start(&Arc::downgrade(limiter), lane, waiter);
        }
        lanes
    }

    #[test]
    fn halves_once_per_sign_and_grows_with_success() {
        let limiter = Limiter::new(100.0, 4);
        for _ in 0..10 {
            limiter.throttled(at(0));
        }
        assert_eq!(limiter.per_second(), 50.0);
        limiter.throttled(at(1000));
        assert_eq!(limiter.per_second(), 25.0);
        for _ in 0..25 {
            limiter.succeeded();
        }
        assert!((25.9..26.1).contains(&limiter.per_second()), "one more after a second's worth");
        (0..10_000).for_each(|_| limiter.succeeded());
        assert_eq!(limiter.per_second(), 100.0);
        for second in 2..40 {
            limiter.throttled(at(second * 1000));
        }
        assert_eq!(limiter.per_second(), LEAST_PER_SECOND);
    }

    #[test]
    fn starts_at_the_rate_and_never_more_at_once_than_there_are_places() {
        let limiter = Limiter::new(10.0, 4);
        let mut places: VecDeque<_> = (0..10).map(|_| wait(&limiter, Lane::First, "cart")).collect();
        let at_each = |ms| starts(&limiter, at(ms)).len();
        assert_eq!([0, 50, 100, 150, 200, 300, 400, 500].map(at_each), [1, 0, 1, 0, 1, 1, 0, 0]);
        drop(places.pop_front());
        assert_eq!(at_each(500), 1);
    }

    #[test]
    fn a_first_fetch_goes_before_renewals_and_renewals_are_never_starved() {
        use Lane::{First, Renewal};
        let limiter = Limiter::new(1.0, 100);
        let _renewals: Vec<_> = (0..10).map(|_| wait(&limiter, Renewal, "cart")).collect();
        let _firsts: Vec<_> = (0..10).map(|_| wait(&limiter, First, "mallory")).collect();
        let lanes: Vec<_> = (0..8).flat_map(|second| starts(&limiter, at(second * 1000))).collect();
        assert_eq!(lanes, [First, First, First, Renewal, First, First, First, Renewal]);
    }

    #[test]
    fn sixty_inventions_of_one_pod_do_not_delay_the_first_fetch_of_another() {
        let limiter = Limiter::new(1.0, 100);
        let _inventions: Vec<_> = (0..60).map(|_| wait(&limiter, Lane::First, "mallory")).collect();
        let mut alice = wait(&limiter, Lane::First, "alice");
        for second in 0..2 {
            starts(&limiter, at(second * 1000));
        }
        assert!(alice.try_recv().is_ok());
    }

    /// A reservation made while the rate was low used to be kept when it had grown again.
    #[test]
    fn who_came_while_the_rate_was_low_is_served_when_it_has_grown() {
        let limiter = Limiter::new(100.0, 1000);
        for second in 0..20 {
            limiter.throttled(at(second * 1000));
        }
        let _waiting: Vec<_> = (0..50).map(|_| wait(&limiter, Lane::First, "cart")).collect();
        assert_eq!(starts(&limiter, at(20_000)).len(), 1);
        (0..10_000).for_each(|_| limiter.succeeded());
        let started: usize = (0..100).map(|step| starts(&limiter, at(22_000 + step * 10)).len()).sum();
        assert_eq!(started, 49);
    }

    #[test]
    fn a_waiter_that_went_takes_no_turn() {
        let limiter = Limiter::new(1.0, 1);
        drop(wait(&limiter, Lane::First, "gone"));
        let mut alice = wait(&limiter, Lane::First, "alice");
        while !matches!(limiter.step(at(0)), Step::Start(..)) {}
        assert!(alice.try_recv().is_err(), "popped here, so never granted");
        assert!(limiter.state().first.is_empty());
    }
}
