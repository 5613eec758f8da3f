//! The routes of one thread by their origin, and the lookups of their addresses.
//!
//! Servers and targets that are read during the run choose origins. So once there are many routes, the unused ones that were not
//! used for longest are dropped with their addresses; the routes of listed requests stay.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::sync::mpsc::{Receiver, Sender};

use slab::Slab;

use super::connector_config::ConnectorConfig;
use super::route::{OriginRoute, RouteAddresses};
use super::source_addresses::SourceAddresses;
use crate::clock::Nanos;
use crate::in_flight::RequestRef;
use crate::origin_resolution::{LookupRequest, LookupResult, ResolvedOrigin};
use crate::poller::SenderWaker;
use crate::request::{Origin, PreparedRequest};
use crate::request_failure_reason::NameFault;
use crate::request_source::SenderRequests;
use crate::stats::LoadStats;

/// The number of unused routes to keep, which take half a megabyte. There may be twice as many before they are counted.
const KEPT: usize = 1024;

/// The maximum number of lookups without a response. It bounds the memory for the names that a slow server has not resolved.
const MOST_ASKED: usize = 4096;

/// The routes of one thread.
pub(crate) struct RouteTable {
    list: Slab<OriginRoute>,
    by_origin: HashMap<Origin, usize>,
    /// The routes of the listed requests, by their index.
    listed: Vec<usize>,
    /// The number of routes at which unused ones are counted.
    count_at: usize,
    making: ConnectorConfig,
    sources: SourceAddresses,
    resolver: RouteResolver,
}

/// The lookup of addresses by this thread.
pub(crate) struct RouteResolver {
    pub(crate) lookup_request_sender: Sender<LookupRequest>,
    pub(crate) reply_sender: Sender<ResolvedOrigin>,
    pub(crate) reply_receiver: Receiver<ResolvedOrigin>,
    pub(crate) waker: SenderWaker,
    /// The number of lookups without a response.
    pub(crate) pending_lookups: usize,
}

impl Index<usize> for RouteTable {
    type Output = OriginRoute;

    #[inline]
    fn index(&self, route: usize) -> &OriginRoute {
        &self.list[route]
    }
}

impl IndexMut<usize> for RouteTable {
    #[inline]
    fn index_mut(&mut self, route: usize) -> &mut OriginRoute {
        &mut self.list[route]
    }
}

impl RouteTable {
    /// Makes a table with these known addresses; others are looked up.
    pub(crate) fn new(
        known: &HashMap<Origin, LookupResult>,
        making: ConnectorConfig,
        sources: SourceAddresses,
        resolver: RouteResolver,
    ) -> Self {
        let (list, by_origin, listed) = (Slab::new(), HashMap::new(), Vec::new());
        let mut routes = Self { list, by_origin, listed, count_at: 2 * KEPT, making, sources, resolver };
        for (origin, found) in known {
            let addresses = routes.literal(origin).unwrap_or_else(|| {
                let found = found.clone().map(|list| routes.sources.filter_reachable_destinations(list));
                RouteAddresses::from_lookup(found, routes.making.dial.address_lifetime)
            });
            routes.add(origin, addresses);
        }
        routes
    }

    /// Returns the number of routes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Remembers the routes of the listed requests, so that choosing one costs an index.
    pub(crate) fn register_requests(&mut self, requests: &[PreparedRequest]) {
        self.listed = requests.iter().map(|request| self.to(request.origin(), Nanos::MAX)).collect();
    }

    /// Returns the route of a request, and looks its addresses up again if they are old.
    #[inline]
    pub(crate) fn route_for_request(
        &mut self,
        which: &RequestRef,
        supply: &SenderRequests,
        now: Nanos,
    ) -> usize {
        let route = match which {
            RequestRef::Listed(index) => self.listed[*index],
            RequestRef::Owned(_) => self.to(supply.request(which).origin(), now),
        };
        if self.list[route].addresses.are_old(now, self.making.dial.address_lifetime) {
            self.request_lookup(route, now);
        }
        route
    }

    fn to(&mut self, origin: &Origin, now: Nanos) -> usize {
        let known = self.by_origin.get(origin).copied();
        let route = known.unwrap_or_else(|| {
            self.forget_many();
            let unknown = || RouteAddresses::unknown(self.making.dial.address_lifetime);
            let addresses = self.literal(origin).unwrap_or_else(unknown);
            self.add(origin, addresses)
        });
        let used = &mut self.list[route].last_used;
        *used = now.max(*used);
        if known.is_none() && !self.list[route].addresses.is_literal {
            self.request_lookup(route, now);
        }
        route
    }

    /// Drops the unused routes that were not used for longest, if there are many.
    fn forget_many(&mut self) {
        if self.list.len() < self.count_at {
            return;
        }
        let mut bare: Vec<_> =
            self.list.iter().filter_map(|(index, route)| Some((route.unused_since()?, index))).collect();
        bare.sort_unstable();
        bare.truncate(bare.len().saturating_sub(KEPT));
        for (_, index) in bare {
            let route = self.list.remove(index);
            self.by_origin.remove(&route.origin);
        }
        self.count_at = self.list.len() + KEPT;
    }

    /// Returns the addresses of an origin that needs no lookup.
    fn literal(&self, origin: &Origin) -> Option<RouteAddresses> {
        self.making
            .dial
            .known_addresses(origin)
            .map(|list| RouteAddresses::literal(self.sources.filter_reachable_destinations(list)))
    }

    fn add(&mut self, origin: &Origin, addresses: RouteAddresses) -> usize {
        let (path, speaks) = (self.making.route_config(origin), self.making.expected_protocol(origin));
        let route = self.list.insert(OriginRoute::new(origin.clone(), path, speaks, addresses));
        self.by_origin.insert(origin.clone(), route);
        route
    }

    /// Returns the routes of the listed requests, each once.
    pub(crate) fn listed_routes(&self) -> impl Iterator<Item = (usize, &OriginRoute)> {
        self.list.iter().filter(|(_, route)| route.is_permanent())
    }

    /// Returns the number of the connection that is begun next, in the run.
    pub(crate) fn take_connection_number(&self) -> u64 {
        self.making.take_connection_number()
    }

    /// Looks up the addresses of a route. Returns false if no lookup is possible now.
    pub(crate) fn request_lookup(&mut self, route: usize, now: Nanos) -> bool {
        let OriginRoute { addresses, origin, .. } = &mut self.list[route];
        let RouteResolver {
            reply_sender: reply,
            waker,
            lookup_request_sender: questions,
            pending_lookups: asked,
            ..
        } = &mut self.resolver;
        let question = LookupRequest {
            origin: origin.clone(),
            asked_at: now,
            reply: reply.clone(),
            waker: waker.clone(),
        };
        let can = *asked < MOST_ASKED && questions.send(question).is_ok();
        if can {
            addresses.pending_lookups += 1;
            *asked += 1;
        } else {
            addresses.lookup_fault = NameFault::Busy;
        }
        can
    }

    /// Takes the result of a lookup, and returns its route.
    #[inline]
    pub(crate) fn adopt_resolved(&mut self, now: Nanos, stats: &mut LoadStats) -> Option<usize> {
        if self.resolver.pending_lookups == 0 {
            return None;
        }
        let ResolvedOrigin { origin, asked_at: at, lookup_result: found } =
            self.resolver.reply_receiver.try_recv().ok()?;
        self.resolver.pending_lookups -= 1;
        stats.lookup.record(now.saturating_sub(at));
        // A route that waits for a response is not dropped.
        let index = *self.by_origin.get(&origin)?;
        let found = found.map(|list| self.sources.filter_reachable_destinations(list));
        let route = &mut self.list[index];
        let wanting = route.wanted_connections();
        route.addresses.adopt(found, now, wanting, self.making.dial.address_lifetime);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::clock::RunClock;
    use crate::poller::EventPoller;
    use crate::request::RequestFraming;
    use crate::request_failure_reason::RequestFault;
    use crate::request_source::RequestList;
    use crate::target::{Target, Weight};
    use crate::transport::connector_config::ConnectionLimits;
    use crate::transport::route::RouteNeed;

    fn request(url: &str) -> PreparedRequest {
        let target = Target { method: "GET".into(), url: url.into(), ..Target::default() };
        PreparedRequest::new(&target, &RequestFraming::default()).unwrap()
    }

    fn list() -> RequestList {
        RequestList::new(vec![(request("http://10.0.0.1/"), Weight::default())]).unwrap()
    }

    /// Returns a table, and the receiver of its lookups.
    fn routes() -> (RouteTable, Receiver<LookupRequest>) {
        let (sender, questions) = channel();
        let (reply, replies) = channel();
        let waker = EventPoller::new(RunClock::start()).unwrap().waker();
        let resolver = RouteResolver {
            lookup_request_sender: sender,
            reply_sender: reply,
            reply_receiver: replies,
            waker,
            pending_lookups: 0,
        };
        let making = ConnectorConfig {
            tls: None,
            may_negotiate_http2: false,
            h2c: false,
            max_streams: 1,
            keep_alive: true,
            dial: Arc::default(),
            connections_begun: Arc::default(),
        };
        let mut routes = RouteTable::new(&HashMap::new(), making, SourceAddresses::default(), resolver);
        routes.register_requests(list().requests());
        (routes, questions)
    }

    fn go(routes: &mut RouteTable, url: &str, now: Nanos) -> usize {
        routes.route_for_request(
            &RequestRef::Owned(Arc::new(request(url))),
            &SenderRequests::from_list(list(), &RequestFraming::default()),
            now,
        )
    }

    /// Returns the URL of the target with this number.
    fn url(number: u64) -> String {
        format!("http://127.{}.{}.{}/", number >> 16 & 255, number >> 8 & 255, number & 255)
    }

    #[test]
    fn routes_that_carry_nothing_are_forgotten_and_those_used_last_are_kept() {
        let (mut routes, _questions) = routes();
        let carries = go(&mut routes, "http://10.0.0.2/", 0);
        routes[carries].connection_count = 1;
        for number in 0..20_000 {
            go(&mut routes, &url(number), number + 1);
            assert!(routes.len() <= 2 * KEPT + 2, "{}", routes.len());
        }
        assert_eq!(routes.by_origin.len(), routes.len());
        let known = |url: &str| routes.by_origin.contains_key(request(url).origin());
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
        assert_eq!(routes.resolver.pending_lookups, MOST_ASKED);
        assert!(routes.len() <= MOST_ASKED + 2 * KEPT + 1, "{}", routes.len());
        let last = go(&mut routes, "http://last/", 10_000);
        routes[last].add_waiting(key(), false);
        let lack = routes[last].needs(&limits());
        assert!(matches!(lack, RouteNeed::Unreachable(RequestFault::Resolve(NameFault::Busy))));
        // The outstanding responses come, and then all routes can be dropped.
        for LookupRequest { origin, asked_at: at, reply, .. } in questions.try_iter() {
            reply
                .send(ResolvedOrigin { origin, asked_at: at, lookup_result: Err(NameFault::NoHost) })
                .unwrap();
        }
        let mut stats = LoadStats::default();
        while routes.adopt_resolved(10_000, &mut stats).is_some() {}
        assert_eq!((routes.resolver.pending_lookups, stats.lookup.count()), (0, MOST_ASKED as u64));
        routes.count_at = 0;
        go(&mut routes, "http://10.0.0.3/", 10_001);
        assert_eq!(
            routes.len(),
            KEPT + 3,
            "the listed one, the one with a waiting hit, and the new one beside"
        );
    }

    fn key() -> crate::in_flight::InFlightKey {
        use crate::schedule::Arrival;
        crate::in_flight::InFlightTable::new().insert(Arrival { seq: 0, due: 0 }, RequestRef::Listed(0), 0, 0)
    }

    fn limits() -> ConnectionLimits {
        ConnectionLimits {
            connections: 5,
            max_idle: 5,
            requests: 1,
            age: Nanos::MAX,
            http2_connections: 1,
            opening_step_timeout: Nanos::MAX,
            source_addresses: SourceAddresses::default(),
        }
    }

    /// All waiting requests used to share one response.
    #[test]
    fn each_connection_has_an_answer_of_its_own_where_that_is_asked_for() {
        let (mut routes, questions) = routes();
        routes.making.dial = Arc::new(crate::origin_resolution::DialOptions {
            address_lifetime: crate::origin_resolution::AddressLifetime::Connection,
            ..crate::origin_resolution::DialOptions::default()
        });
        let route = go(&mut routes, "http://name/", 0);
        (0..3).for_each(|_| routes[route].add_waiting(key(), false));
        while let RouteNeed::Addresses = routes[route].needs(&limits()) {
            assert!(routes.request_lookup(route, 0));
        }
        let asked: Vec<_> = questions.try_iter().collect();
        assert_eq!(asked.len(), 3);
        for (answers, LookupRequest { origin, asked_at: at, reply, .. }) in (1..).zip(asked) {
            let found =
                Ok(routes.making.dial.known_addresses(request("http://127.0.0.1/").origin()).unwrap());
            reply.send(ResolvedOrigin { origin, asked_at: at, lookup_result: found }).unwrap();
            assert_eq!(routes.adopt_resolved(0, &mut LoadStats::default()), Some(route));
            assert!(matches!(routes[route].needs(&limits()), RouteNeed::Connection), "{answers}");
            assert!(routes[route].addresses.next().is_some());
            routes[route].opening_count += 1;
            assert!(matches!(routes[route].needs(&limits()), RouteNeed::Nothing), "{answers}");
        }
    }
}
