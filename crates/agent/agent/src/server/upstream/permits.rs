//! Places at the real metadata server, and whose they are: how many requests are there at once, all threads together.
//!
//! A place is held until the answer has been passed on, so whoever asks for what takes long, or reads it slowly, has its places
//! for long. They are shared by dynamic thresholds ([`seawall_core::share::may_take_and_keep`]): one caller whose requests all hang
//! keeps eight of 64, and in whatever order such callers come, fifteen find one each. Those who wait are served in turn, caller by caller.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seawall_core::share;
use tokio::sync::oneshot;

use crate::server::connection_table::Cap;

/// All places.
#[derive(Debug)]
pub(crate) struct Places(Mutex<State>);

#[derive(Debug)]
struct State {
    free: u64,
    /// By the address of each caller's count of connections, which is kept alive here.
    callers: HashMap<usize, Own>,
    /// Callers with somebody who waits, in turn.
    turns: VecDeque<usize>,
}

#[derive(Debug)]
struct Own {
    #[expect(dead_code, reason = "keeps the key of the table from becoming another caller's")]
    caller: Arc<Cap>,
    taken: u64,
    waiting: VecDeque<oneshot::Sender<Place>>,
}

/// One place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    caller: usize,
}

/// A place and who waits for it.
type Grant = (oneshot::Sender<Place>, Place);

impl Places {
    /// So many.
    pub(crate) fn new(most: u32) -> Arc<Self> {
        let state = State { free: most.max(1).into(), callers: HashMap::new(), turns: VecDeque::new() };
        Arc::new(Self(Mutex::new(state)))
    }

    /// A place for this caller, in its turn.
    pub(crate) async fn enter(self: &Arc<Self>, caller: &Arc<Cap>) -> Option<Place> {
        let (sender, place) = oneshot::channel();
        self.state().wait(caller, sender);
        self.grant();
        place.await.ok()
    }

    fn grant(self: &Arc<Self>) {
        let grants = self.state().grants(self);
        // Sent without the lock: a place whose waiter has just gone comes back by its drop, which takes it.
        grants.into_iter().for_each(|(waiter, place)| drop(waiter.send(place)));
    }

    /// A lock, because threads share the places; held for a few instructions.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait(&mut self, caller: &Arc<Cap>, waiter: oneshot::Sender<Place>) {
        let key = Arc::as_ptr(caller) as usize;
        let new = || Own { caller: caller.clone(), taken: 0, waiting: VecDeque::new() };
        let own = self.callers.entry(key).or_insert_with(new);
        if own.waiting.is_empty() {
            self.turns.push_back(key);
        }
        own.waiting.push_back(waiter);
    }

    /// Everything that may be given now.
    fn grants(&mut self, places: &Arc<Places>) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut refused_in_a_row = 0;
        while refused_in_a_row < self.turns.len() {
            let Some(key) = self.turns.pop_front() else { break };
            let granted = self.next_of(key);
            let is_granted = granted.is_some();
            grants.extend(granted.map(|waiter| (waiter, Place { places: places.clone(), caller: key })));
            match self.callers.get(&key) {
                Some(own) if !own.waiting.is_empty() => {
                    self.turns.push_back(key);
                    refused_in_a_row = if is_granted { 0 } else { refused_in_a_row + 1 };
                }
                _ => self.forget_if_unused(key),
            }
        }
        grants
    }

    /// The caller's next waiter, if it may have a place; the place is taken.
    fn next_of(&mut self, key: usize) -> Option<oneshot::Sender<Place>> {
        let own = self.callers.get_mut(&key)?;
        while own.waiting.front().is_some_and(oneshot::Sender::is_closed) {
            own.waiting.pop_front();
        }
        if !share::may_take_and_keep(own.taken, self.free) {
            return None;
        }
        let waiter = own.waiting.pop_front()?;
        own.taken += 1;
        self.free -= 1;
        Some(waiter)
    }

    fn leave(&mut self, key: usize) {
        self.free += 1;
        if let Some(own) = self.callers.get_mut(&key) {
            own.taken -= 1;
        }
        self.forget_if_unused(key);
    }

    fn forget_if_unused(&mut self, key: usize) {
        if self.callers.get(&key).is_some_and(|own| own.taken == 0 && own.waiting.is_empty()) {
            self.callers.remove(&key);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.state().leave(self.caller);
        self.places.grant();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Entering = Pin<Box<dyn Future<Output = Option<Place>>>>;

    fn entering(places: &Arc<Places>, caller: &Arc<Cap>) -> Entering {
        let (places, caller) = (places.clone(), caller.clone());
        let mut entering: Entering = Box::pin(async move { places.enter(&caller).await });
        // Queued by its first look.
        if let Some(place) = look(&mut entering) {
            return Box::pin(std::future::ready(Some(place)));
        }
        entering
    }

    fn look(entering: &mut Entering) -> Option<Place> {
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => place,
            Poll::Pending => None,
        }
    }

    fn entered(all: &mut [Entering]) -> Vec<Place> {
        all.iter_mut().filter_map(look).collect()
    }

    fn caller() -> Arc<Cap> {
        Arc::default()
    }

    #[test]
    fn whose_requests_hang_keeps_an_eighth_and_the_next_caller_finds_a_place_at_once() {
        let (places, hostile, quiet) = (Places::new(64), caller(), caller());
        let mut storm: Vec<_> = (0..1000).map(|_| entering(&places, &hostile)).collect();
        let held = entered(&mut storm[..100]);
        assert_eq!(held.len(), 8);
        let mut asked = entering(&places, &quiet);
        assert!(look(&mut asked).is_some());
    }

    /// The first five of eight took all 26 places of an agent in 25 MiB, and everybody else waited until theirs gave up.
    #[test]
    fn callers_that_come_one_after_another_and_hang_leave_a_place_for_the_next() {
        let places = Places::new(26);
        let mut hanging = Vec::new();
        for _ in 0..9 {
            let hostile = caller();
            let mut storm: Vec<_> = (0..128).map(|_| entering(&places, &hostile)).collect();
            hanging.push((entered(&mut storm), storm));
        }
        assert!(look(&mut entering(&places, &caller())).is_some());
    }

    #[test]
    fn those_who_wait_are_served_caller_by_caller() {
        let (places, hostile, quiet) = (Places::new(2), caller(), caller());
        let first = look(&mut entering(&places, &hostile)).unwrap();
        let mut storm: Vec<_> = (0..10).map(|_| entering(&places, &hostile)).collect();
        let second = look(&mut entering(&places, &quiet)).unwrap();
        let mut quiets = entering(&places, &quiet);
        assert!(look(&mut quiets).is_none() && entered(&mut storm).is_empty());
        drop(first);
        let held = entered(&mut storm);
        assert_eq!(held.len(), 1);
        drop(second);
        assert!(look(&mut quiets).is_some());
    }

    /// A place stayed free where the first in turn had given up waiting.
    #[test]
    fn callers_that_gave_up_waiting_keep_no_place_from_those_behind_them() {
        let (places, first) = (Places::new(1), caller());
        let held = look(&mut entering(&places, &first)).unwrap();
        let gone: Vec<_> = (0..3).map(|_| caller()).collect();
        drop(gone.iter().map(|caller| entering(&places, caller)).collect::<Vec<_>>());
        let waits = caller();
        let mut waiting = entering(&places, &waits);
        drop(held);
        assert!(look(&mut waiting).is_some());
    }

    #[test]
    fn who_went_while_it_waited_takes_no_place_and_nothing_is_left_of_anybody() {
        let (places, hostile) = (Places::new(1), caller());
        let held = look(&mut entering(&places, &hostile)).unwrap();
        drop((0..10).map(|_| entering(&places, &hostile)).collect::<Vec<_>>());
        let mut alive = entering(&places, &hostile);
        drop(held);
        let held = look(&mut alive).unwrap();
        drop(held);
        let state = places.state();
        assert!(state.callers.is_empty() && state.turns.is_empty() && state.free == 1);
        assert_eq!(Arc::strong_count(&hostile), 1);
    }
}
