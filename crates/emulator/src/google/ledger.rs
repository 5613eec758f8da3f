//! What happened, counted: by endpoint, by subject, by impersonation. Bounded; nothing of a token is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::endpoint::Endpoint;

/// Subjects, and pairs of subject and account, that are counted by name; the rest share [`OTHERS`].
const NAMES: usize = 4096;

/// The name under which everything above the bound is counted.
const OTHERS: &str = "(others)";

/// What happened at an endpoint so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that arrived.
    pub calls: u64,
    /// Requests answered with less than 400.
    pub answered: u64,
    /// Requests refused for what they asked.
    pub refused: u64,
    /// Requests that a fault took: failed, throttled, cut off. One that hangs is in [`Counts::in_flight`] until its
    /// client goes, and here from then on.
    pub faulted: u64,
    /// Requests being answered now.
    pub in_flight: u64,
    /// Most requests that were in the air at one time.
    pub peak: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Answered,
    Refused,
    Faulted,
}

#[derive(Debug, Default)]
pub(super) struct Ledger(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    counts: BTreeMap<Endpoint, Counts>,
    exchanges: BTreeMap<String, u64>,
    impersonations: BTreeMap<(String, String), u64>,
}

impl Ledger {
    /// Counts a request in; it counts itself out when the visit is dropped, however it ended.
    pub(super) fn arrive(&self, endpoint: Endpoint) -> Visit {
        let mut books = self.lock();
        let counts = books.counts.entry(endpoint).or_default();
        counts.calls += 1;
        counts.in_flight += 1;
        counts.peak = counts.peak.max(counts.in_flight);
        Visit { books: self.0.clone(), endpoint, end: End::Faulted }
    }

    pub(super) fn exchanged(&self, subject: &str) {
        count(&mut self.lock().exchanges, subject.to_owned(), OTHERS.to_owned());
    }

    pub(super) fn impersonated(&self, subject: &str, account: &str) {
        let pair = (subject.to_owned(), account.to_owned());
        count(&mut self.lock().impersonations, pair, (OTHERS.to_owned(), OTHERS.to_owned()));
    }

    pub(super) fn counts(&self, endpoint: Endpoint) -> Counts {
        self.lock().counts.get(&endpoint).copied().unwrap_or_default()
    }

    pub(super) fn exchanges(&self) -> BTreeMap<String, u64> {
        self.lock().exchanges.clone()
    }

    pub(super) fn impersonations(&self) -> BTreeMap<(String, String), u64> {
        self.lock().impersonations.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        lock(&self.0)
    }
}

/// A lock, because every request writes; never held across an await.
fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count<K: Ord>(counted: &mut BTreeMap<K, u64>, key: K, others: K) {
    let key = if counted.len() < NAMES || counted.contains_key(&key) { key } else { others };
    *counted.entry(key).or_default() += 1;
}

/// A request being answered.
#[derive(Debug)]
pub(super) struct Visit {
    books: Arc<Mutex<Books>>,
    endpoint: Endpoint,
    end: End,
}

impl Visit {
    pub(super) fn ends(&mut self, end: End) {
        self.end = end;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut books = lock(&self.books);
        let counts = books.counts.entry(self.endpoint).or_default();
        counts.in_flight = counts.in_flight.saturating_sub(1);
        match self.end {
            End::Answered => counts.answered += 1,
            End::Refused => counts.refused += 1,
            End::Faulted => counts.faulted += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_that_is_dropped_counts_as_faulted_and_the_peak_stays() {
        let ledger = Ledger::default();
        let hung = ledger.arrive(Endpoint::Exchange);
        let mut good = ledger.arrive(Endpoint::Exchange);
        good.ends(End::Answered);
        drop((hung, good));
        let counts = ledger.counts(Endpoint::Exchange);
        assert_eq!(counts, Counts { calls: 2, answered: 1, refused: 0, faulted: 1, in_flight: 0, peak: 2 });
    }

    #[test]
    fn names_are_bounded_and_nothing_goes_uncounted() {
        let ledger = Ledger::default();
        for n in 0..NAMES + 10 {
            ledger.exchanged(&format!("system:serviceaccount:ns:sa-{n}"));
        }
        let exchanges = ledger.exchanges();
        assert_eq!(exchanges.len(), NAMES + 1);
        assert_eq!(exchanges[OTHERS], 10);
    }
}
