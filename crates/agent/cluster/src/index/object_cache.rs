//! Caches the annotations of the ServiceAccounts or of the namespaces of this node's pods, and selects the objects to fetch.
//!
//! A watch reports only changes after its start, so the agent also fetches each object once. The result of a fetch can arrive
//! before or after a watch event about the same object. This table decides which of the two the agent uses. The table does not
//! depend on pods or on the content of annotations. [`super::PodIndex`] has one table for ServiceAccounts and one for
//! namespaces.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use seawall_core::annotations::RelatedAnnotations;

/// The ticket of a fetch. The ticket is valid while the cache holds the `Arc` to which the ticket points. The cache uses the
/// result of a fetch only if the ticket is valid. The cache drops the `Arc` in three cases:
/// - A watch event about the object arrives. The event is newer than the start of the watch, and the watch reports all later
///   changes, so the fetch is not needed.
/// - The watch restarts. The object may have changed after the fetch read it, and the restarted watch does not report that
///   change.
/// - The last pod that uses the object is gone.
pub(crate) type FetchTicket = Weak<()>;

#[derive(Debug)]
pub(super) struct ObjectCache<K> {
    all: HashMap<K, CachedObject>,
    /// True once the watch of these objects has a position. An earlier fetch could miss a change between the fetch and the
    /// watch's start.
    is_watched: bool,
}

/// Holds the known annotations of an object that a pod uses, and the progress of the object's fetch.
#[derive(Debug)]
struct CachedObject {
    told: RelatedAnnotations,
    state: FetchProgress,
}

#[derive(Debug)]
enum FetchProgress {
    Wanted,
    InFlight(Arc<()>),
    Done,
}

impl<K> Default for ObjectCache<K> {
    fn default() -> Self {
        Self { all: HashMap::new(), is_watched: false }
    }
}

impl<K: Clone + Eq + Hash> ObjectCache<K> {
    /// Returns the known annotations of an object. Requests a fetch if the object is new. Also returns the stored key, so that
    /// all pods that use the object share the key's strings.
    pub(super) fn get_or_request(&mut self, wanted: K) -> (K, RelatedAnnotations) {
        if let Some((key, reading)) = self.all.get_key_value(&wanted) {
            return (key.clone(), reading.told.clone());
        }
        self.all.insert(
            wanted.clone(),
            CachedObject { told: RelatedAnnotations::NotRead, state: FetchProgress::Wanted },
        );
        (wanted, RelatedAnnotations::NotRead)
    }

    /// Applies a watch event about any object of the cluster. Ignores objects that no pod of this node uses. Returns `true` if
    /// the annotations changed.
    pub(super) fn apply(&mut self, key: &K, told: &RelatedAnnotations) -> bool {
        self.all.get_mut(key).is_some_and(|reading| reading.learn(told))
    }

    /// Applies the result of a fetch if the fetch's ticket is still valid. Returns `true` if the annotations changed.
    pub(super) fn apply_fetched(&mut self, key: &K, ticket: &FetchTicket, told: &RelatedAnnotations) -> bool {
        self.all.get_mut(key).is_some_and(|reading| reading.awaits(ticket) && reading.learn(told))
    }

    /// Requests a fetch of every object, because the new watch does not report changes from before its start. The known
    /// annotations stay in use until the results arrive.
    pub(super) fn refetch_all(&mut self) {
        self.is_watched = true;
        self.all.values_mut().for_each(|reading| reading.state = FetchProgress::Wanted);
    }

    /// Returns the objects to fetch now, each only once.
    pub(super) fn take_fetches(&mut self) -> impl Iterator<Item = (K, FetchTicket)> {
        let is_watched = self.is_watched;
        let wanted =
            self.all.iter_mut().filter(|(_, reading)| matches!(reading.state, FetchProgress::Wanted));
        wanted.filter(move |_| is_watched).map(|(key, reading)| {
            let held = Arc::new(());
            let ticket = Arc::downgrade(&held);
            reading.state = FetchProgress::InFlight(held);
            (key.clone(), ticket)
        })
    }

    /// Forgets each object for which `is_used` returns `false`.
    pub(super) fn retain(&mut self, is_used: impl Fn(&K) -> bool) {
        self.all.retain(|key, _| is_used(key));
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl CachedObject {
    fn awaits(&self, ticket: &FetchTicket) -> bool {
        matches!(&self.state, FetchProgress::InFlight(held) if std::ptr::eq(Arc::as_ptr(held), ticket.as_ptr()))
    }

    fn learn(&mut self, told: &RelatedAnnotations) -> bool {
        self.state = FetchProgress::Done;
        let is_news = self.told != *told;
        if is_news {
            self.told = told.clone();
        }
        is_news
    }
}
