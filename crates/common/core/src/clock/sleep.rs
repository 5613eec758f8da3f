//! Sleeps until a moment of a [`Clock`]. This is a separate module because sleeping needs the async runtime, and reading the time
//! does not.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Clock, ManualClock, Moment, Source, system_now};

/// The longest part of a sleep. The clock divides a sleep into parts because the runtime's timer stops while the machine is
/// suspended. [`Clock::now`] counts the time of the suspension, so after a suspension a sleep ends at most 20 s late.
const LONGEST_NAP: Duration = Duration::from_secs(20);

impl Clock {
    /// Returns when the clock has reached `deadline`.
    pub async fn sleep_until(&self, deadline: Moment) {
        match &self.0 {
            Source::System => loop {
                let left = deadline.since(system_now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LONGEST_NAP)).await;
            },
            Source::Manual(hand) => Sleeper { hand, at: deadline.0, number: None }.await,
        }
    }

    /// Returns after `span` has passed on this clock.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }
}

/// A future that waits on a manual clock. The future is registered with the clock from its first poll until the clock wakes it or
/// code drops it.
struct Sleeper<'c> {
    hand: &'c ManualClock,
    at: u64,
    number: Option<u64>,
}

impl Future for Sleeper<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut manual = self.hand.lock();
        if self.at <= manual.now {
            return Poll::Ready(());
        }
        let number = self.number.unwrap_or(manual.slept);
        manual.slept += u64::from(self.number.is_none());
        let before = manual.sleepers.insert((self.at, number), context.waker().clone());
        // Dropping a waker can drop a task, and dropping that task's sleepers takes the lock. The function therefore drops the
        // waker after it has released the lock.
        drop((manual, before));
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut manual = self.hand.lock();
            let waker = manual.sleepers.remove(&(self.at, number));
            drop((manual, waker));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asleep(hand: &ManualClock, sleepers: usize) {
        while hand.lock().sleepers.len() != sleepers {
            tokio::task::yield_now().await;
        }
    }

    fn sleeping(clock: &Clock, seconds: u64) -> tokio::task::JoinHandle<()> {
        let clock = clock.clone();
        tokio::spawn(async move { clock.sleep(Duration::from_secs(seconds)).await })
    }

    #[tokio::test]
    async fn a_manual_clock_wakes_exactly_those_whose_time_has_come() {
        let (clock, hand) = Clock::manual();
        let early = [sleeping(&clock, 1), sleeping(&clock, 1)];
        let late = sleeping(&clock, 86_400);
        asleep(&hand, 3).await;
        hand.advance(Duration::from_secs(1));
        for each in early {
            each.await.unwrap();
        }
        assert!(!late.is_finished());
        hand.advance(Duration::from_secs(86_399));
        late.await.unwrap();
    }

    #[tokio::test]
    async fn the_next_deadline_is_that_of_those_who_still_sleep() {
        let (clock, hand) = Clock::manual();
        let (early, _late) = (sleeping(&clock, 1), sleeping(&clock, 2));
        asleep(&hand, 2).await;
        assert_eq!(hand.next_deadline(), Some(Moment::from_nanos(1_000_000_000)));
        early.abort();
        asleep(&hand, 1).await;
        assert_eq!(hand.next_deadline(), Some(Moment::from_nanos(2_000_000_000)));
        hand.advance(Duration::from_secs(2));
        assert_eq!(hand.next_deadline(), None);
    }

    #[tokio::test]
    async fn a_deadline_that_has_passed_is_not_waited_for() {
        let (clock, hand) = Clock::manual();
        hand.advance(Duration::from_secs(5));
        clock.sleep_until(Moment::from_nanos(1)).await;
        assert_eq!(hand.next_deadline(), None);
    }
}
