//! What happened, counted: by endpoint, and by names that a cloud chooses. Bounded; nothing of a token is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names that a [`NameCounter`] counts apart; the rest share one.
const NAMES: usize = 4096;

/// What happened at an endpoint so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Requests that arrived.
    pub calls: u64,
    /// Requests answered with less than 400.
    pub answered: u64,
    /// Requests refused for what they asked.
    pub refused: u64,
    /// Requests that a fault took: failed, throttled, cut off. One that hangs is in [`EndpointCounts::in_flight`] until its
    /// client goes, and here from then on.
    pub faulted: u64,
    /// Requests being answered now.
    pub in_flight: u64,
    /// Most requests that were in the air at one time.
    pub peak: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedOutcome {
    Answered,
    Refused,
    Faulted,
}

/// Counts by endpoint.
#[derive(Debug)]
pub(crate) struct RequestCounters<E>(SharedCounts<E>);

type SharedCounts<E> = Arc<Mutex<BTreeMap<E, EndpointCounts>>>;

impl<E> Default for RequestCounters<E> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<E: Copy + Ord> RequestCounters<E> {
    /// Counts a request in; it counts itself out when the visit is dropped, however it ended.
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

/// A lock, because every request writes; never held across an await.
fn lock<T>(books: &Mutex<T>) -> MutexGuard<'_, T> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request being answered.
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

/// How often each name came; those above the bound share `others`.
#[derive(Debug)]
pub(crate) struct NameCounter<K> {
    counted: Mutex<BTreeMap<K, u64>>,
    others: K,
}

impl<K: Ord + Clone> NameCounter<K> {
    pub(crate) fn new(others: K) -> Self {
        Self { counted: Mutex::default(), others }
    }

    pub(crate) fn count(&self, key: K) {
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
            tally.count(format!("system:serviceaccount:ns:sa-{n}"));
        }
        let all = tally.all();
        assert_eq!(all.len(), NAMES + 1);
        assert_eq!(all["(others)"], 10);
    }
}
