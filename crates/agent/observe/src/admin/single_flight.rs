//! Creates a page once for all waiting clients, and limits the share of the thread's time that pages use.
//!
//! A page or a probe costs more on a node with many pods. Clients of the admin port decide how often they request a page or a
//! probe. So only one run (the creation of one page) is in progress at a time. All clients whose request arrived before the run
//! began get the run's result. A client therefore never gets a result that is older than the client's request. After each run,
//! the next run waits for a pause in proportion to the duration of the last run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seawall_core::{Clock, Moment};
use tokio::sync::Mutex;

/// The length of the pause as a multiple of the run's duration. With a factor of 9, runs use at most a tenth of the thread's
/// time.
const PAUSE: u32 = 9;

/// The maximum pause. The maximum is short, because a long run mostly waits and uses little of the thread's time.
const LONGEST: Duration = Duration::from_millis(500);

/// A result that is created on demand and shared by all clients that wait for it.
#[derive(Debug)]
pub(super) struct SingleFlight<T> {
    clock: Clock,
    /// The number of requests so far. A request's number is the count when the request arrives.
    asked: AtomicU64,
    /// The last result. Tasks hold this lock across awaits, so the lock is async. The lock is fair: requests get the lock in the
    /// order of their numbers.
    turn: Mutex<LastResult<T>>,
}

#[derive(Debug)]
struct LastResult<T> {
    next: Moment,
    /// The last result, and the highest number of a request that can use this result. `None` if no waiting request needs the
    /// result.
    made: Option<(u64, T)>,
}

impl<T: Clone> SingleFlight<T> {
    pub(super) fn new(clock: Clock) -> Self {
        let next = clock.now();
        Self { clock, asked: AtomicU64::new(0), turn: Mutex::new(LastResult { next, made: None }) }
    }

    /// Returns the result of a run that starts after this call.
    pub(super) async fn run(&self, make: impl Future<Output = T>) -> T {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let mut turn = self.turn.lock().await;
        if let Some((last, made)) = turn.made.take().filter(|(last, _)| number <= *last) {
            turn.made = (number < last).then(|| (last, made.clone()));
            return made;
        }
        self.clock.sleep_until(turn.next).await;
        let last = self.asked.load(Ordering::Relaxed);
        let begun = self.clock.now();
        let made = make.await;
        let ended = self.clock.now();
        turn.next = ended + (ended.since(begun) * PAUSE).min(LONGEST);
        turn.made = (number < last).then(|| (last, made.clone()));
        made
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn who_asks_meanwhile_shares_what_is_made_next() {
        let (clock, _hand) = Clock::manual();
        let (shared, made) = (SingleFlight::new(clock), Cell::new(0));
        let make = async || {
            tokio::task::yield_now().await;
            made.set(made.get() + 1);
            made.get()
        };
        let results = join_all((0..20).map(|_| shared.run(make()))).await;
        assert_eq!(
            (results[0], &results[1..]),
            (1, &[2; 19][..]),
            "the other 19 requests came before the second run began"
        );
        assert_eq!(made.get(), 2);
        let late = async {
            tokio::task::yield_now().await;
            shared.run(make()).await
        };
        assert_eq!(
            tokio::join!(shared.run(make()), late),
            (3, 4),
            "a run that began before the request is too old for it"
        );
        assert!(shared.turn.lock().await.made.is_none(), "a result that no request needs is dropped");
    }

    #[tokio::test]
    async fn a_making_is_followed_by_a_pause_in_proportion() {
        let (clock, hand) = Clock::manual();
        let shared = SingleFlight::new(clock.clone());
        shared.run(async { hand.advance(Duration::from_millis(10)) }).await;
        let begun = clock.now();
        let again = async {
            shared.run(async {}).await;
            clock.now()
        };
        let pass = async {
            while hand.next_deadline().is_none() {
                tokio::task::yield_now().await;
            }
            hand.advance(Duration::from_millis(89));
            tokio::task::yield_now().await;
            hand.advance(Duration::from_millis(1));
        };
        let (at, ()) = tokio::join!(again, pass);
        assert_eq!(at.since(begun), Duration::from_millis(90));
    }
}
