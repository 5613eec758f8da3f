//! What is known of the objects of one kind that pods of this node belong to, and which of them are to be read.
//!
//! A watch tells changes and begins from now; what was before is fetched one by one. This table says whose word counts when
//! the two race. It refuses to know pods and what the objects say; [`super::Index`] has one for each kind.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use seawall_core::facts::Beside;

/// The answer to a fetch is wanted as long as the other end of its ticket lives. A ticket is voided when a watch event
/// about the object arrives (the event is at least as new as what the watch began with, and more follow), when the watch
/// starts anew (the fetch may have seen less than the watch will not repeat), or when the last pod leaves.
pub(crate) type Ticket = Weak<()>;

#[derive(Debug)]
pub(super) struct Readings<K> {
    all: HashMap<K, Reading>,
    /// Set once the kind's watch has a position; a fetch before that could miss a change.
    is_watched: bool,
}

/// What is known of an object that some pod uses.
#[derive(Debug)]
struct Reading {
    told: Beside,
    state: Fetching,
}

#[derive(Debug)]
enum Fetching {
    Wanted,
    InTheAir(Arc<()>),
    Done,
}

impl<K> Default for Readings<K> {
    fn default() -> Self {
        Self { all: HashMap::new(), is_watched: false }
    }
}

impl<K: Clone + Eq + Hash> Readings<K> {
    /// What is known of an object; asks for it when nothing is. The key's strings are shared by its pods.
    pub(super) fn reading(&mut self, wanted: K) -> (K, Beside) {
        if let Some((key, reading)) = self.all.get_key_value(&wanted) {
            return (key.clone(), reading.told.clone());
        }
        self.all.insert(wanted.clone(), Reading { told: Beside::NotRead, state: Fetching::Wanted });
        (wanted, Beside::NotRead)
    }

    /// The watch tells of an object somewhere in the cluster; most are used by no pod here and are let pass. Returns whether
    /// it is news.
    pub(super) fn told(&mut self, key: &K, told: &Beside) -> bool {
        self.all.get_mut(key).is_some_and(|reading| reading.learn(told))
    }

    /// A fetch has brought an answer, which is ignored if its ticket was voided. Returns whether it is news.
    pub(super) fn fetched(&mut self, key: &K, ticket: &Ticket, told: &Beside) -> bool {
        self.all.get_mut(key).is_some_and(|reading| reading.awaits(ticket) && reading.learn(told))
    }

    /// The watch begins from now: what changed before it began was not told, so all is read again. What is known stays in
    /// use until then.
    pub(super) fn positioned(&mut self) {
        self.is_watched = true;
        self.all.values_mut().for_each(|reading| reading.state = Fetching::Wanted);
    }

    /// Those to read now. Each is handed out once.
    pub(super) fn fetches(&mut self) -> impl Iterator<Item = (K, Ticket)> {
        let is_watched = self.is_watched;
        let wanted = self.all.iter_mut().filter(|(_, reading)| matches!(reading.state, Fetching::Wanted));
        wanted.filter(move |_| is_watched).map(|(key, reading)| {
            let held = Arc::new(());
            let ticket = Arc::downgrade(&held);
            reading.state = Fetching::InTheAir(held);
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

impl Reading {
    fn awaits(&self, ticket: &Ticket) -> bool {
        matches!(&self.state, Fetching::InTheAir(held) if std::ptr::eq(Arc::as_ptr(held), ticket.as_ptr()))
    }

    fn learn(&mut self, told: &Beside) -> bool {
        self.state = Fetching::Done;
        let is_news = self.told != *told;
        if is_news {
            self.told = told.clone();
        }
        is_news
    }
}
