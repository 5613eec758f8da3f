//! The results of the fetches for one cache entry, and the tasks that wait for them.
//!
//! [`FetchResultChannel`] contains counters under a small lock, and a [`Notify`] that wakes the waiting tasks. No task holds the
//! lock across an await. The code does not use tokio's watch channel, which has eight lists of waiters. These lists would be
//! larger than all other fields of a cache entry together, and a node can have an entry for each pod.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::failure::ExchangeError;

#[derive(Debug, Default)]
pub(crate) struct FetchResultChannel {
    last: Mutex<LastFetch>,
    changed: Notify,
}

/// The result of the last fetch. `number` counts the fetches.
#[derive(Debug, Default)]
struct LastFetch {
    number: u64,
    /// The number of fetches that returned a lease.
    leases: u64,
    error: Option<ExchangeError>,
    /// True if the cache entry was dropped. No more results follow.
    is_closed: bool,
}

/// The error for a waiter whose cache entry was dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EntryDropped;

impl FetchResultChannel {
    /// Returns the number of fetches so far that returned a lease.
    pub(crate) fn lease_count(&self) -> u64 {
        self.last().leases
    }

    /// Waits until more than `seen` fetches have returned a lease. Returns the number of fetches that returned a lease.
    ///
    /// # Errors
    /// The cache entry was dropped.
    pub(crate) async fn wait_for_lease(&self, seen: u64) -> Result<u64, EntryDropped> {
        self.wait_for(|landed| (landed.leases > seen).then_some(landed.leases)).await
    }

    /// Publishes the result of a fetch and wakes all waiters.
    pub(crate) fn publish(&self, is_lease: bool, error: Option<ExchangeError>) {
        let mut last = self.last();
        last.number += 1;
        last.leases += u64::from(is_lease);
        last.error = error;
        drop(last);
        self.changed.notify_waiters();
    }

    /// Marks the cache entry as dropped and wakes all waiters.
    pub(crate) fn close(&self) {
        self.last().is_closed = true;
        self.changed.notify_waiters();
    }

    async fn wait_for<T>(&self, found: impl Fn(&LastFetch) -> Option<T>) -> Result<T, EntryDropped> {
        loop {
            // `notified` registers this task before the check. So the task does not miss a result that arrives between the check
            // and the await.
            let change = self.changed.notified();
            {
                let last = self.last();
                if let Some(found) = found(&last) {
                    return Ok(found);
                }
                if last.is_closed {
                    return Err(EntryDropped);
                }
            }
            change.await;
        }
    }

    fn last(&self) -> MutexGuard<'_, LastFetch> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiter for the next result of a fetch.
#[derive(Debug)]
pub(crate) struct NextFetchResult {
    landings: Arc<FetchResultChannel>,
    after: u64,
}

impl NextFetchResult {
    /// Returns a waiter for the next fetch result.
    pub(crate) fn for_next_result(landings: &Arc<FetchResultChannel>) -> Self {
        let after = landings.last().number;
        Self { landings: landings.clone(), after }
    }

    /// Waits until the cache entry is dropped.
    pub(crate) async fn wait_for_drop(self) {
        // The predicate never matches, so the wait ends only when the entry is dropped.
        let _ = self.landings.wait_for(|_| None::<()>).await;
    }

    /// Waits until the fetch ends, and returns the fetch's error if the fetch failed. If the cache entry is dropped, the function
    /// returns `Ok`.
    pub(crate) async fn wait(self) -> Result<(), ExchangeError> {
        let after = self.after;
        let landed = |landed: &LastFetch| (landed.number > after).then(|| landed.error.clone());
        // If the entry was dropped, the fetch has neither a result nor an error.
        self.landings.wait_for(landed).await.ok().flatten().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_told_of_what_lands_and_of_the_end() {
        let landings = Arc::<FetchResultChannel>::default();
        let (one, two) =
            (NextFetchResult::for_next_result(&landings), NextFetchResult::for_next_result(&landings));
        let mut waiting = pin!(one.wait());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        landings.publish(true, None);
        assert!(waiting.await.is_ok() && two.wait().await.is_ok());
        assert_eq!(landings.wait_for_lease(0).await, Ok(1));
        let third = NextFetchResult::for_next_result(&landings);
        landings.close();
        assert!(third.wait().await.is_ok(), "the wait ends when the entry is dropped");
        assert_eq!(landings.wait_for_lease(1).await, Err(EntryDropped));
        NextFetchResult::for_next_result(&landings).wait_for_drop().await;
    }
}
