//! The routes of one thread: which origin leads where, and who is asked when nobody knows.
//!
//! Servers and lazy targets choose origins, so a route that carries nothing and was not used for longest is forgotten, its
//! addresses with it, once there are many; those of the listed requests stay.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::sync::mpsc::{Receiver, Sender};

use slab::Slab;

use super::making::Making;
use super::route::{Addresses, Route};
use super::sources::Sources;
use crate::clock::Nanos;
use crate::fault::NameFault;
use crate::flights::Which;
use crate::poller::Waker;
use crate::request::{Origin, Request};
use crate::resolve::{Found, Question, Resolved};
use crate::stats::Stats;
use crate::supply::Supply;

/// Routes kept that carry nothing: half a megabyte. Up to twice as many before they are counted.
const KEPT: usize = 1024;

/// Questions without an answer. Beyond it the names that a slow server owes would fill memory.
const MOST_ASKED: usize = 4096;

/// All of them.
pub(crate) struct Routes {
    list: Slab<Route>,
    by_origin: HashMap<Origin, usize>,
    /// Routes of the listed requests.
    listed: Vec<usize>,
    /// With so many routes those are counted that carry nothing.
    count_at: usize,
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
        let (list, by_origin, listed) = (Slab::new(), HashMap::new(), Vec::new());
        let mut routes = Self { list, by_origin, listed, count_at: 2 * KEPT, making, sources, resolver };
        for (origin, found) in known {
            let addresses = routes.literal(origin).unwrap_or_else(|| {
                let found = found.clone().map(|list| routes.sources.reachable(list));
                Addresses::found(found, routes.making.dial.lifetime)
            });
            routes.add(origin, addresses);
        }
        routes
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Remembers the routes of the listed requests, so that choosing one costs an index.
    pub(crate) fn list(&mut self, requests: &[Request]) {
        self.listed = requests.iter().map(|request| self.to(&request.origin, Nanos::MAX)).collect();
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
        let known = self.by_origin.get(origin).copied();
        let route = known.unwrap_or_else(|| {
            self.forget_many();
            let unknown = || Addresses::unknown(self.making.dial.lifetime);
            let addresses = self.literal(origin).unwrap_or_else(unknown);
            self.add(origin, addresses)
        });
        let used = &mut self.list[route].used;
        *used = now.max(*used);
        if known.is_none() && !self.list[route].addresses.literal {
            self.ask(route, now);
        }
        route
    }

    /// Forgets those that carry nothing and were not used for longest, if there are many.
    fn forget_many(&mut self) {
        if self.list.len() < self.count_at {
            return;
        }
        let mut bare: Vec<_> =
            self.list.iter().filter_map(|(index, route)| Some((route.bare_since()?, index))).collect();
        bare.sort_unstable();
        bare.truncate(bare.len().saturating_sub(KEPT));
        for (_, index) in bare {
            let route = self.list.remove(index);
            self.by_origin.remove(&route.origin);
        }
        self.count_at = self.list.len() + KEPT;
    }

    /// The addresses of an origin that nobody needs to be asked about.
    fn literal(&self, origin: &Origin) -> Option<Addresses> {
        self.making.dial.known(origin).map(|list| Addresses::literal(self.sources.reachable(list)))
    }

    fn add(&mut self, origin: &Origin, addresses: Addresses) -> usize {
        let (path, speaks) = (self.making.path(origin), self.making.speaks(origin));
        let route = self.list.insert(Route::new(origin.clone(), path, speaks, addresses));
        self.by_origin.insert(origin.clone(), route);
        route
    }

    /// Those of the listed requests, each once.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (usize, &Route)> {
        self.list.iter().filter(|(_, route)| route.stays())
    }

    /// The number in the run of a connection that is about to be begun.
    pub(crate) fn next_number(&self) -> u64 {
        self.making.next_number()
    }

    /// Asks for the addresses of a route. False if nobody can be asked now.
    pub(crate) fn ask(&mut self, route: usize, now: Nanos) -> bool {
        let Route { addresses, origin, .. } = &mut self.list[route];
        let Resolver { reply, waker, questions, asked, .. } = &mut self.resolver;
        let question =
            Question { origin: origin.clone(), at: now, reply: reply.clone(), waker: waker.clone() };
        let can = *asked < MOST_ASKED && questions.send(question).is_ok();
        if can {
            addresses.asked += 1;
            *asked += 1;
        } else {
            addresses.missing = NameFault::Busy;
        }
        can
    }

    /// Takes addresses that have been found, and says whose.
    #[inline]
    pub(crate) fn adopt(&mut self, now: Nanos, stats: &mut Stats) -> Option<usize> {
        if self.resolver.asked == 0 {
            return None;
        }
        let Resolved { origin, at, found } = self.resolver.replies.try_recv().ok()?;
        self.resolver.asked -= 1;
        stats.lookup.record(now.saturating_sub(at));
        // A route that awaits an answer is not forgotten.
        let index = *self.by_origin.get(&origin)?;
        let found = found.map(|list| self.sources.reachable(list));
        let route = &mut self.list[index];
        let wanting = route.wanting();
        route.addresses.adopt(found, now, wanting, self.making.dial.lifetime);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::clock::RunClock;
    use crate::fault::Fault;
    use crate::poller::Poller;
    use crate::request::Style;
    use crate::supply::List;
    use crate::target::{Target, Weight};
    use crate::transport::making::Limits;
    use crate::transport::route::Lack;

    fn request(url: &str) -> Request {
        let target = Target { method: "GET".into(), url: url.into(), ..Target::default() };
        Request::new(&target, &Style::default()).unwrap()
    }

    fn list() -> List {
        List::new(vec![(request("http://10.0.0.1/"), Weight::default())]).unwrap()
    }

    /// With the questions that they ask, and where the answers go.
    fn routes() -> (Routes, Receiver<Question>) {
        let (sender, questions) = channel();
        let (reply, replies) = channel();
        let waker = Poller::new(RunClock::start()).unwrap().waker();
        let resolver = Resolver { questions: sender, reply, replies, waker, asked: 0 };
        let making = Making {
            tls: None,
            http2: false,
            h2c: false,
            streams: 1,
            keep_alive: true,
            dial: Arc::default(),
            begun: Arc::default(),
        };
        let mut routes = Routes::new(&HashMap::new(), making, Sources::default(), resolver);
        routes.list(list().requests());
        (routes, questions)
    }

    fn go(routes: &mut Routes, url: &str, now: Nanos) -> usize {
        routes.of(&Which::Own(Arc::new(request(url))), &Supply::list(list(), &Style::default()), now)
    }

    /// An address for every number.
    fn url(number: u64) -> String {
        format!("http://127.{}.{}.{}/", number >> 16 & 255, number >> 8 & 255, number & 255)
    }

    #[test]
    fn routes_that_carry_nothing_are_forgotten_and_those_used_last_are_kept() {
        let (mut routes, _questions) = routes();
        let carries = go(&mut routes, "http://10.0.0.2/", 0);
        routes[carries].open = 1;
        for number in 0..20_000 {
            go(&mut routes, &url(number), number + 1);
            assert!(routes.len() <= 2 * KEPT + 2, "{}", routes.len());
        }
        assert_eq!(routes.by_origin.len(), routes.len());
        let known = |url: &str| routes.by_origin.contains_key(&request(url).origin);
        assert!(known("http://10.0.0.1/"), "listed");
        assert!(known("http://10.0.0.2/"), "with a connection");
        assert!((20_000 - KEPT as u64..20_000).all(|number| known(&url(number))), "the last");
        assert!(!known(&url(0)));
    }

    #[test]
    fn questions_without_an_answer_are_bounded_and_what_is_not_asked_has_no_hope() {
        let (mut routes, questions) = routes();
        for number in 0..10_000 {
            go(&mut routes, &format!("http://host{number}/"), number);
        }
        assert_eq!(routes.resolver.asked, MOST_ASKED);
        assert!(routes.len() <= MOST_ASKED + 2 * KEPT + 1, "{}", routes.len());
        let last = go(&mut routes, "http://last/", 10_000);
        routes[last].wait(key(), false);
        let lack = routes[last].lacks(&limits());
        assert!(matches!(lack, Lack::Hope(Fault::Resolve(NameFault::Busy))));
        // What was owed comes, and all of it can be forgotten.
        for Question { origin, at, reply, .. } in questions.try_iter() {
            reply.send(Resolved { origin, at, found: Err(NameFault::NoHost) }).unwrap();
        }
        let mut stats = Stats::default();
        while routes.adopt(10_000, &mut stats).is_some() {}
        assert_eq!((routes.resolver.asked, stats.lookup.count()), (0, MOST_ASKED as u64));
        routes.count_at = 0;
        go(&mut routes, "http://10.0.0.3/", 10_001);
        assert_eq!(
            routes.len(),
            KEPT + 3,
            "the listed one, the one with a waiting hit, and the new one beside"
        );
    }

    fn key() -> crate::flights::FlightKey {
        use crate::schedule::Hit;
        crate::flights::Flights::new().insert(Hit { seq: 0, due: 0 }, Which::Listed(0), 0, 0)
    }

    fn limits() -> Limits {
        Limits {
            connections: 5,
            idle: 5,
            requests: 1,
            age: Nanos::MAX,
            http2_connections: 1,
            step: Nanos::MAX,
            sources: Sources::default(),
        }
    }

    /// All that waited shared one.
    #[test]
    fn each_connection_has_an_answer_of_its_own_where_that_is_asked_for() {
        let (mut routes, questions) = routes();
        routes.making.dial = Arc::new(crate::resolve::Dial {
            lifetime: crate::resolve::Lifetime::Connection,
            ..crate::resolve::Dial::default()
        });
        let route = go(&mut routes, "http://name/", 0);
        (0..3).for_each(|_| routes[route].wait(key(), false));
        while let Lack::Addresses = routes[route].lacks(&limits()) {
            assert!(routes.ask(route, 0));
        }
        let asked: Vec<_> = questions.try_iter().collect();
        assert_eq!(asked.len(), 3);
        for (answers, Question { origin, at, reply, .. }) in (1..).zip(asked) {
            let found = Ok(routes.making.dial.known(&request("http://127.0.0.1/").origin).unwrap());
            reply.send(Resolved { origin, at, found }).unwrap();
            assert_eq!(routes.adopt(0, &mut Stats::default()), Some(route));
            assert!(matches!(routes[route].lacks(&limits()), Lack::Connection), "{answers}");
            assert!(routes[route].addresses.next().is_some());
            routes[route].opening += 1;
            assert!(matches!(routes[route].lacks(&limits()), Lack::Nothing), "{answers}");
        }
    }
}
