//! The routes of one thread: which origin leads where, and who is asked when nobody knows.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::sync::mpsc::{Receiver, Sender};

use super::making::Making;
use super::route::{Addresses, Route};
use super::sources::Sources;
use crate::clock::Nanos;
use crate::flights::Which;
use crate::poller::Waker;
use crate::request::{Origin, Request};
use crate::resolve::{Found, Question, Resolved};
use crate::stats::Stats;
use crate::supply::Supply;

/// All of them.
pub(crate) struct Routes {
    list: Vec<Route>,
    by_origin: HashMap<Origin, usize>,
    /// Routes of the listed requests.
    listed: Vec<usize>,
    making: Making,
    sources: Sources,
    resolver: Resolver,
}

/// How this thread asks for addresses.
pub(crate) struct Resolver {
    pub(crate) questions: Sender<Question>,
    pub(crate) reply: Sender<Resolved>,
    pub(crate) replies: Receiver<Resolved>,
    pub(crate) waker: Waker,
    /// Questions without an answer.
    pub(crate) asked: usize,
}

impl Index<usize> for Routes {
    type Output = Route;

    #[inline]
    fn index(&self, route: usize) -> &Route {
        &self.list[route]
    }
}

impl IndexMut<usize> for Routes {
    #[inline]
    fn index_mut(&mut self, route: usize) -> &mut Route {
        &mut self.list[route]
    }
}

impl Routes {
    /// Knows these addresses and asks for others.
    pub(crate) fn new(
        known: &HashMap<Origin, Found>,
        making: Making,
        sources: Sources,
        resolver: Resolver,
    ) -> Self {
        let (list, by_origin, listed) = (Vec::new(), HashMap::new(), Vec::new());
        let mut routes = Self { list, by_origin, listed, making, sources, resolver };
        for (origin, found) in known {
            let addresses = routes.literal(origin).unwrap_or_else(|| {
                let found = found.clone().map(|list| routes.sources.reachable(list));
                Addresses::found(found, routes.making.dial.lifetime)
            });
            routes.add(origin, addresses);
        }
        routes
    }

    /// Remembers the routes of the listed requests, so that choosing one costs an index.
    pub(crate) fn list(&mut self, requests: &[Request]) {
        self.listed = requests.iter().map(|request| self.to(&request.origin, 0)).collect();
    }

    /// The route of a request, whose addresses are asked for again if they are old.
    #[inline]
    pub(crate) fn of(&mut self, which: &Which, supply: &Supply, now: Nanos) -> usize {
        let route = match which {
            Which::Listed(index) => self.listed[*index],
            Which::Own(_) => self.to(&supply.request(which).origin, now),
        };
        if self.list[route].addresses.are_old(now, self.making.dial.lifetime) {
            self.ask(route, now);
        }
        route
    }

    fn to(&mut self, origin: &Origin, now: Nanos) -> usize {
        if let Some(&route) = self.by_origin.get(origin) {
            return route;
        }
        let literal = self.literal(origin);
        let unknown = literal.is_none();
        let route = self.add(origin, literal.unwrap_or_else(Addresses::unknown));
        if unknown {
            self.ask(route, now);
        }
        route
    }

    /// The addresses of an origin that nobody needs to be asked about.
    fn literal(&self, origin: &Origin) -> Option<Addresses> {
        self.making.dial.known(origin).map(|list| Addresses::literal(self.sources.reachable(list)))
    }

    fn add(&mut self, origin: &Origin, addresses: Addresses) -> usize {
        let route = self.list.len();
        self.by_origin.insert(origin.clone(), route);
        let (path, speaks) = (self.making.path(origin), self.making.speaks(origin));
        self.list.push(Route::new(origin.clone(), path, speaks, addresses));
        route
    }

    /// All of them, by number.
    pub(crate) fn all(&self) -> std::ops::Range<usize> {
        0..self.list.len()
    }

    /// Asks for the addresses of a route, unless an answer is awaited.
    pub(crate) fn ask(&mut self, route: usize, now: Nanos) {
        let Route { addresses, origin, .. } = &mut self.list[route];
        if addresses.asked.is_some() {
            return;
        }
        let Resolver { reply, waker, .. } = &self.resolver;
        let question = Question { origin: origin.clone(), reply: reply.clone(), waker: waker.clone() };
        if self.resolver.questions.send(question).is_ok() {
            addresses.asked = Some(now);
            self.resolver.asked += 1;
        }
    }

    /// Takes addresses that have been found, and says whose.
    #[inline]
    pub(crate) fn adopt(&mut self, now: Nanos, stats: &mut Stats) -> Option<usize> {
        if self.resolver.asked == 0 {
            return None;
        }
        let (origin, found) = self.resolver.replies.try_recv().ok()?;
        self.resolver.asked -= 1;
        let index = self.to(&origin, now);
        let found = found.map(|list| self.sources.reachable(list));
        let route = &mut self.list[index];
        let wanting = route.wanting();
        let asked = route.addresses.adopt(found, now, wanting, self.making.dial.lifetime);
        stats.lookup.record(now.saturating_sub(asked));
        Some(index)
    }
}
