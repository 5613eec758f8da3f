//! One making for all who wait for it, and a share of the thread's time that it keeps to.
//!
//! A page or a probe costs what a node full of pods makes it cost, and whoever can reach the admin port decides how often it is
//! asked for. So each is made once at a time; everybody who asked before the making began gets its result, which is therefore
//! never older than the question; and after it there is a pause in proportion to what it took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seawall_core::{Clock, Moment};
use tokio::sync::Mutex;

/// The pause after a making, in times of what it took: a tenth of the thread at most.
const PAUSE: u32 = 9;

/// Longest pause, for what takes long without keeping the thread busy.
const LONGEST: Duration = Duration::from_millis(500);

/// Something that is made on demand.
#[derive(Debug)]
pub(super) struct SingleFlight<T> {
    clock: Clock,
    /// How many have asked so far; each takes its number from here.
    asked: AtomicU64,
    /// Held across awaits, so an async lock. It is fair: numbers get it in order.
    turn: Mutex<LastResult<T>>,
}

#[derive(Debug)]
struct LastResult<T> {
    next: Moment,
    /// What was made last while somebody waits for it, and the last number whom it serves.
    made: Option<(u64, T)>,
}

impl<T: Clone> SingleFlight<T> {
    pub(super) fn new(clock: Clock) -> Self {
        let next = clock.now();
        Self { clock, asked: AtomicU64::new(0), turn: Mutex::new(LastResult { next, made: None }) }
    }

    /// What a making gives that began after this call.
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
            "all but the first asked before the second began"
        );
        assert_eq!(made.get(), 2);
        let late = async {
            tokio::task::yield_now().await;
            shared.run(make()).await
        };
        assert_eq!(
            tokio::join!(shared.run(make()), late),
            (3, 4),
            "what began before the question is too old"
        );
        assert!(shared.turn.lock().await.made.is_none(), "nothing is kept for nobody");
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
