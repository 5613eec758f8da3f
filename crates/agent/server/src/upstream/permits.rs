//! Limits the simultaneous requests to the real metadata server, over all threads, and shares the permits fairly.
//!
//! A request holds its permit until the agent has forwarded the whole answer. If the server answers slowly or the client reads slowly, the
//! client holds its permits for a long time. Therefore a client's limit depends on the number of free permits
//! ([`seawall_core::fair_share::may_take_and_keep`]). If all requests of one client hang, the client holds eight of 64 permits.
//! If fifteen such clients arrive in any order, each client gets at least one permit. The clients with waiting requests get
//! permits in turn.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seawall_core::fair_share;
use tokio::sync::oneshot;

use crate::connection_client::ClientId;

/// All permits for the real metadata server.
#[derive(Debug)]
pub struct UpstreamPermits(Mutex<State>);

#[derive(Debug)]
struct State {
    free: u64,
    clients: HashMap<ClientId, ClientPermits>,
    /// The clients with waiting requests, in the order in which they get permits.
    turns: VecDeque<ClientId>,
}

#[derive(Debug, Default)]
struct ClientPermits {
    taken: u64,
    waiting: VecDeque<oneshot::Sender<UpstreamPermit>>,
}

/// One upstream permit. Dropping this value returns the permit.
#[derive(Debug)]
pub struct UpstreamPermit {
    places: Arc<UpstreamPermits>,
    client: ClientId,
}

/// A granted permit, and the channel sender that delivers the permit to the waiting request.
type Grant = (oneshot::Sender<UpstreamPermit>, UpstreamPermit);

impl UpstreamPermits {
    /// Returns a set of `most` permits, or of one permit if `most` is zero.
    pub fn new(most: u32) -> Arc<Self> {
        let state = State { free: most.max(1).into(), clients: HashMap::new(), turns: VecDeque::new() };
        Arc::new(Self(Mutex::new(state)))
    }

    /// Waits until this client gets a permit. The waiting clients get permits in turn.
    pub async fn acquire(self: &Arc<Self>, client: ClientId) -> Option<UpstreamPermit> {
        let (sender, place) = oneshot::channel();
        self.state().wait(client, sender);
        self.grant();
        place.await.ok()
    }

    fn grant(self: &Arc<Self>) {
        let grants = self.state().grants(self);
        // The thread sends the permits after it has released the lock. If a waiting request has already ended, the send fails and
        // drops the permit. That drop takes the lock again.
        grants.into_iter().for_each(|(waiter, place)| drop(waiter.send(place)));
    }

    /// Returns the locked state. Several threads share the permits. A thread holds the lock only for a few instructions.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait(&mut self, client: ClientId, waiter: oneshot::Sender<UpstreamPermit>) {
        let own = self.clients.entry(client).or_default();
        if own.waiting.is_empty() {
            self.turns.push_back(client);
        }
        own.waiting.push_back(waiter);
    }

    /// Takes a permit for each waiting request that can get a permit now.
    fn grants(&mut self, places: &Arc<UpstreamPermits>) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut refused_in_a_row = 0;
        while refused_in_a_row < self.turns.len() {
            let Some(client) = self.turns.pop_front() else { break };
            let granted = self.next_of(client);
            let is_granted = granted.is_some();
            grants.extend(granted.map(|waiter| (waiter, UpstreamPermit { places: places.clone(), client })));
            match self.clients.get(&client) {
                Some(own) if !own.waiting.is_empty() => {
                    self.turns.push_back(client);
                    refused_in_a_row = if is_granted { 0 } else { refused_in_a_row + 1 };
                }
                _ => self.forget_if_unused(client),
            }
        }
        grants
    }

    /// Takes a permit for the client's next waiting request. Returns `None` if no request waits or the client's share is used up.
    fn next_of(&mut self, client: ClientId) -> Option<oneshot::Sender<UpstreamPermit>> {
        let own = self.clients.get_mut(&client)?;
        while own.waiting.front().is_some_and(oneshot::Sender::is_closed) {
            own.waiting.pop_front();
        }
        if !fair_share::may_take_and_keep(own.taken, self.free) {
            return None;
        }
        let waiter = own.waiting.pop_front()?;
        own.taken += 1;
        self.free -= 1;
        Some(waiter)
    }

    fn leave(&mut self, client: ClientId) {
        self.free += 1;
        if let Some(own) = self.clients.get_mut(&client) {
            own.taken -= 1;
        }
        self.forget_if_unused(client);
    }

    fn forget_if_unused(&mut self, client: ClientId) {
        if self.clients.get(&client).is_some_and(|own| own.taken == 0 && own.waiting.is_empty()) {
            self.clients.remove(&client);
        }
    }
}

impl Drop for UpstreamPermit {
    fn drop(&mut self) {
        self.places.state().leave(self.client);
        self.places.grant();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Entering = Pin<Box<dyn Future<Output = Option<UpstreamPermit>>>>;

    fn entering(places: &Arc<UpstreamPermits>, client: ClientId) -> Entering {
        let places = places.clone();
        let mut entering: Entering = Box::pin(async move { places.acquire(client).await });
        // The first poll puts the request into the queue.
        if let Some(place) = look(&mut entering) {
            return Box::pin(std::future::ready(Some(place)));
        }
        entering
    }

    fn look(entering: &mut Entering) -> Option<UpstreamPermit> {
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => place,
            Poll::Pending => None,
        }
    }

    fn entered(all: &mut [Entering]) -> Vec<UpstreamPermit> {
        all.iter_mut().filter_map(look).collect()
    }

    fn caller() -> ClientId {
        ClientId::new_unique()
    }

    #[test]
    fn whose_requests_hang_keeps_an_eighth_and_the_next_caller_finds_a_place_at_once() {
        let (places, hostile, quiet) = (UpstreamPermits::new(64), caller(), caller());
        let mut storm: Vec<_> = (0..1000).map(|_| entering(&places, hostile)).collect();
        let held = entered(&mut storm[..100]);
        assert_eq!(held.len(), 8);
        let mut asked = entering(&places, quiet);
        assert!(look(&mut asked).is_some());
    }

    /// Regression: the first five of eight clients took all 26 permits of an agent with 25 MiB.
    /// The other clients waited until the requests of those five timed out.
    #[test]
    fn callers_that_come_one_after_another_and_hang_leave_a_place_for_the_next() {
        let places = UpstreamPermits::new(26);
        let mut hanging = Vec::new();
        for _ in 0..9 {
            let hostile = caller();
            let mut storm: Vec<_> = (0..128).map(|_| entering(&places, hostile)).collect();
            hanging.push((entered(&mut storm), storm));
        }
        assert!(look(&mut entering(&places, caller())).is_some());
    }

    #[test]
    fn those_who_wait_are_served_caller_by_caller() {
        let (places, hostile, quiet) = (UpstreamPermits::new(2), caller(), caller());
        let first = look(&mut entering(&places, hostile)).unwrap();
        let mut storm: Vec<_> = (0..10).map(|_| entering(&places, hostile)).collect();
        let second = look(&mut entering(&places, quiet)).unwrap();
        let mut quiets = entering(&places, quiet);
        assert!(look(&mut quiets).is_none() && entered(&mut storm).is_empty());
        drop(first);
        let held = entered(&mut storm);
        assert_eq!(held.len(), 1);
        drop(second);
        assert!(look(&mut quiets).is_some());
    }

    /// Regression: a permit stayed unused when the first request in the queue had stopped waiting.
    #[test]
    fn callers_that_gave_up_waiting_keep_no_place_from_those_behind_them() {
        let (places, first) = (UpstreamPermits::new(1), caller());
        let held = look(&mut entering(&places, first)).unwrap();
        let gone: Vec<_> = (0..3).map(|_| caller()).collect();
        drop(gone.iter().map(|caller| entering(&places, *caller)).collect::<Vec<_>>());
        let waits = caller();
        let mut waiting = entering(&places, waits);
        drop(held);
        assert!(look(&mut waiting).is_some());
    }

    #[test]
    fn who_went_while_it_waited_takes_no_place_and_nothing_is_left_of_anybody() {
        let (places, hostile) = (UpstreamPermits::new(1), caller());
        let held = look(&mut entering(&places, hostile)).unwrap();
        drop((0..10).map(|_| entering(&places, hostile)).collect::<Vec<_>>());
        let mut alive = entering(&places, hostile);
        drop(held);
        let held = look(&mut alive).unwrap();
        drop(held);
        let state = places.state();
        assert!(state.clients.is_empty() && state.turns.is_empty() && state.free == 1);
    }
}
