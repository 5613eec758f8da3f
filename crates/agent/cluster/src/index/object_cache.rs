//! What is known of the objects of one kind that pods of this node belong to, and which of them are to be read.
//!
//! A watch tells changes and begins from now; what was before is fetched one by one. This table says whose word counts when
//! the two race. It refuses to know pods and what the objects say; [`super::PodIndex`] has one for each kind.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use seawall_core::annotations::RelatedAnnotations;

/// The answer to a fetch is wanted as long as the other end of its ticket lives. A ticket is voided when a watch event
/// about the object arrives (the event is at least as new as what the watch began with, and more follow), when the watch
/// starts anew (the fetch may have seen less than the watch will not repeat), or when the last pod leaves.
pub(crate) type FetchTicket = Weak<()>;

#[derive(Debug)]
pub(super) struct ObjectCache<K> {
    all: HashMap<K, CachedObject>,
    /// Set once the kind's watch has a position; a fetch before that could miss a change.
    is_watched: bool,
}

/// What is known of an object that some pod uses.
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
    /// What is known of an object; asks for it when nothing is. The key's strings are shared by its pods.
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

    /// The watch tells of an object somewhere in the cluster; most are used by no pod here and are let pass. Returns whether
    /// it is news.
    pub(super) fn apply(&mut self, key: &K, told: &RelatedAnnotations) -> bool {
        self.all.get_mut(key).is_some_and(|reading| reading.learn(told))
    }

    /// A fetch has brought an answer, which is ignored if its ticket was voided. Returns whether it is news.
    pub(super) fn apply_fetched(&mut self, key: &K, ticket: &FetchTicket, told: &RelatedAnnotations) -> bool {
        self.all.get_mut(key).is_some_and(|reading| reading.awaits(ticket) && reading.learn(told))
    }

    /// The watch begins from now: what changed before it began was not told, so all is read again. What is known stays in
    /// use until then.
    pub(super) fn refetch_all(&mut self) {
        self.is_watched = true;
        self.all.values_mut().for_each(|reading| reading.state = FetchProgress::Wanted);
    }

    /// Those to read now. Each is handed out once.
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

    /// Forgets the others.
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
