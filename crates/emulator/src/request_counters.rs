//! Counts requests per endpoint, and per name that a cloud chooses. The counters are bounded and keep no part of a token.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most names of a [`NameCounter`]; further names share one count.
const NAMES: usize = 4096;

/// The request counts of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    /// The requests that arrived.
    pub calls: u64,
    /// The requests with a status below 400.
    pub answered: u64,
    /// The requests that were refused because of their content.
    pub refused: u64,
    /// The requests that a fault failed, throttled or cut off. A hanging request is in [`EndpointCounts::in_flight`] until its client goes,
    /// and counts here from then on.
    pub faulted: u64,
    /// The requests in progress.
    pub in_flight: u64,
    /// The most requests in progress at one time.
    pub peak: u64,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedOutcome {
    Answered,
    Refused,
    Faulted,
}

/// The request counts of all endpoints.
#[derive(Debug)]
pub(crate) struct RequestCounters<E>(SharedCounts<E>);

type SharedCounts<E> = Arc<Mutex<BTreeMap<E, EndpointCounts>>>;

impl<E> Default for RequestCounters<E> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<E: Copy + Ord> RequestCounters<E> {
    /// Counts the start of a request. Its end is counted when the returned value is dropped, in any case.
    pub(crate) fn start_request(&self, endpoint: E) -> CountedRequest<E> {
        let mut books = lock(&self.0);
        let counts = books.entry(endpoint).or_default();
        counts.calls += 1;
        counts.in_flight += 1;
        counts.peak = counts.peak.max(counts.in_flight);
        drop(books);
        CountedRequest { books: self.0.clone(), endpoint, end: CountedOutcome::Faulted }
    }

    pub(crate) fn counts(&self, endpoint: E) -> EndpointCounts {
        lock(&self.0).get(&endpoint).copied().unwrap_or_default()
    }
}

/// Locks a mutex, because every request writes; it is never held across an await.
fn lock<T>(books: &Mutex<T>) -> MutexGuard<'_, T> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct CountedRequest<E: Copy + Ord> {
    books: SharedCounts<E>,
    endpoint: E,
    end: CountedOutcome,
}

impl<E: Copy + Ord> CountedRequest<E> {
    pub(crate) fn set_result(&mut self, end: CountedOutcome) {
        self.end = end;
    }
}

impl<E: Copy + Ord> Drop for CountedRequest<E> {
    fn drop(&mut self) {
        let mut books = lock(&self.books);
        let counts = books.entry(self.endpoint).or_default();
        counts.in_flight = counts.in_flight.saturating_sub(1);
        match self.end {
            CountedOutcome::Answered => counts.answered += 1,
            CountedOutcome::Refused => counts.refused += 1,
            CountedOutcome::Faulted => counts.faulted += 1,
        }
    }
}

/// Counts occurrences per name. Names above the limit share `others`.
#[derive(Debug)]
pub(crate) struct NameCounter<K> {
    counted: Mutex<BTreeMap<K, u64>>,
    others: K,
}

impl<K: Ord + Clone> NameCounter<K> {
    pub(crate) fn new(others: K) -> Self {
        Self { counted: Mutex::default(), others }
    }

    pub(crate) fn increment(&self, key: K) {
        let mut counted = lock(&self.counted);
        let key = if counted.len() < NAMES || counted.contains_key(&key) { key } else { self.others.clone() };
        *counted.entry(key).or_default() += 1;
    }

    pub(crate) fn all(&self) -> BTreeMap<K, u64> {
        lock(&self.counted).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_that_is_dropped_counts_as_faulted_and_the_peak_stays() {
        let ledger = RequestCounters::default();
        let hung = ledger.start_request(1);
        let mut good = ledger.start_request(1);
        good.set_result(CountedOutcome::Answered);
        drop((hung, good));
        let counts = ledger.counts(1);
        assert_eq!(
            counts,
            EndpointCounts { calls: 2, answered: 1, refused: 0, faulted: 1, in_flight: 0, peak: 2 }
        );
    }

    #[test]
    fn names_are_bounded_and_nothing_goes_uncounted() {
        let tally = NameCounter::new("(others)".to_owned());
        for n in 0..NAMES + 10 {
            tally.increment(format!("system:serviceaccount:ns:sa-{n}"));
        }
        let all = tally.all();
        assert_eq!(all.len(), NAMES + 1);
        assert_eq!(all["(others)"], 10);
    }
}
