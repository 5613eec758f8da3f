//! Finds the pod behind a source address that Kubernetes does not know (`identity.egressRanges`).
//!
//! A network plugin can give a pod a second address, for connections of the family that the cluster lacks. On EKS's IPv6 clusters each
//! pod has an IPv4 address of 169.254.172.0/22, which the plugin chooses and reports to nobody.
//!
//! The kernel's record of a connection does not name the owner of such an address: a pod writes records with any address under its own
//! cgroup, and a flood of them evicts another pod's record. So this module also uses what no pod can choose: the node's
//! routes. If the route to the source address and the route to a pod's own address, which the API server reports, lead into one network
//! namespace, the source address is that pod's. The connection must then still have a record under this pod's cgroup, like every
//! other connection. Without a route into a pod's namespace, as on a node with a bridge, the agent refuses the connection.
//!
//! Each decision needs routes that are read after the agent has accepted the connection, because the numbers of devices and of namespaces
//! are used again. Reading them can take long, so a thread of its own does it ([`EgressAddresses`]). One reading answers all
//! connections from an address that wait when it begins, and the addresses take turns. So a pod's connections wait for at most one
//! reading for each other address.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use seawall_core::{Clock, Gcra, PodUid};
use seawall_redirect::PodNamespace;
use tokio::sync::oneshot;

use super::{PodAddressClaims, RejectionReason, SocketPair};

/// The maximum number of times per second that all routes are read although the view of pods is the same, because a route changed. For 110
/// pods this takes about 1 ms, so a pod that causes it uses 0.1 % of one core.
const REPEATS_PER_SECOND: u32 = 1;

/// The time after which a connection that found no pod asks again although the view of pods is the same: the node's routes can have changed.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The most addresses whose last result is kept: those of 169.254.172.0/22.
const MOST_RESULTS: usize = 1024;

/// The node's routes.
pub(crate) trait NodeRoutes: Debug + Send {
    /// Returns the network namespace to which packets from `local` to `address` go now. Returns `None` if they do not go into a pod's
    /// namespace, or if the kernel does not tell. Can take long.
    fn namespace_of(&mut self, address: IpAddr, local: Option<IpAddr>) -> Option<PodNamespace>;
}

/// The pod of a source address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EgressOwner {
    pub(crate) uid: PodUid,
    /// The address of this pod, reported by the API server, whose route led to the same namespace.
    pub(crate) own_address: IpAddr,
}

type Found = Result<EgressOwner, RejectionReason>;

/// Finds the pods of source addresses in the configured ranges. Dropping it ends the thread that reads the routes.
#[derive(Debug)]
pub(crate) struct EgressAddresses {
    ranges: Vec<IpNet>,
    questions: Arc<Questions>,
    /// The last result for each address. It can be outdated, so it gives nobody credentials.
    last: Mutex<HashMap<IpAddr, Found>>,
    clock: Clock,
}

impl EgressAddresses {
    /// Starts the thread that reads the routes.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        ranges: Vec<IpNet>,
        mut finder: EgressFinder<impl NodeRoutes + 'static, impl PodAddressClaims + 'static>,
    ) -> io::Result<Self> {
        let clock = finder.clock.clone();
        let questions = Arc::<Questions>::default();
        let asked = questions.clone();
        std::thread::Builder::new().name("routes".into()).spawn(move || {
            let asked = EndOfQuestions(asked);
            while let Some((ends, answers)) = asked.0.next() {
                let found = finder.find(ends);
                for answer in answers {
                    // An error means that the connection has ended.
                    let _ = answer.send(found.clone());
                }
                if asked.0.is_idle() {
                    finder.refresh_if_outdated();
                }
            }
        })?;
        Ok(Self { ranges, questions, last: Mutex::default(), clock })
    }

    /// True if this source address is in one of the ranges, so that only the routes name its pod.
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    /// Returns the pod into whose network namespace the route to the client leads, by a reading that begins after this call.
    ///
    /// # Errors
    /// The route leads into no pod's namespace, or into one of a pod that the API server has not reported.
    pub(crate) async fn owner(&self, pair: SocketPair) -> Found {
        let answer = self.questions.ask(AddressEnds { peer: pair.peer.ip(), local: pair.local.ip() });
        // Without an answer, the thread has ended (see `EndOfQuestions`).
        let found = answer.await.unwrap_or(Err(RejectionReason::NoRouteToPod));
        let mut last = self.last();
        if last.len() >= MOST_RESULTS {
            last.clear();
        }
        last.insert(pair.peer.ip(), found.clone());
        found
    }

    /// Waits until another reading can have another result.
    pub(crate) async fn wait_before_retry(&self) {
        self.clock.sleep(RETRY_AFTER).await;
    }

    /// Returns the last result for this address.
    ///
    /// # Errors
    /// The last result was an error, or there is none.
    pub(crate) fn last_owner(&self, address: IpAddr) -> Found {
        self.last().get(&address).cloned().unwrap_or(Err(RejectionReason::UnknownPod))
    }

    fn last(&self) -> MutexGuard<'_, HashMap<IpAddr, Found>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EgressAddresses {
    fn drop(&mut self) {
        self.questions.end();
    }
}

/// Ends the questions when the thread ends, and logs it once if the thread panicked. A line for each request would let a pod fill the log.
struct EndOfQuestions(Arc<Questions>);

impl Drop for EndOfQuestions {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "the thread that reads the node's routes panicked; the agent refuses connections from identity.egressRanges until it restarts"
            );
        }
        self.0.end();
    }
}

/// The addresses at both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressEnds {
    pub(crate) peer: IpAddr,
    pub(crate) local: IpAddr,
}

/// The connections that wait for a reading, by their addresses, in the order of the first of each.
#[derive(Debug, Default)]
struct Questions {
    waiting: Mutex<WaitingConnections>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaitingConnections {
    by_ends: VecDeque<(AddressEnds, Vec<oneshot::Sender<Found>>)>,
    has_ended: bool,
}

impl Questions {
    fn ask(&self, ends: AddressEnds) -> oneshot::Receiver<Found> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting();
        if waiting.has_ended {
            return receiver;
        }
        match waiting.by_ends.iter_mut().find(|(asked, _)| *asked == ends) {
            Some((_, senders)) => {
                // A client that ends its connection and opens the next one must not add up while a reading takes long.
                senders.retain(|sender| !sender.is_closed());
                senders.push(sender);
            }
            None => waiting.by_ends.push_back((ends, vec![sender])),
        }
        drop(waiting);
        self.changed.notify_one();
        receiver
    }

    /// Waits for the next addresses. Returns `None` at the end.
    fn next(&self) -> Option<(AddressEnds, Vec<oneshot::Sender<Found>>)> {
        let is_idle = |waiting: &mut WaitingConnections| waiting.by_ends.is_empty() && !waiting.has_ended;
        let waiting = self.changed.wait_while(self.waiting(), is_idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        if waiting.has_ended { None } else { waiting.by_ends.pop_front() }
    }

    /// True if no connection waits.
    fn is_idle(&self) -> bool {
        self.waiting().by_ends.is_empty()
    }

    fn end(&self) {
        let mut waiting = self.waiting();
        waiting.has_ended = true;
        // Whoever waits learns that there is no answer.
        waiting.by_ends.clear();
        drop(waiting);
        self.changed.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingConnections> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the routes of one address after another.
#[derive(Debug)]
pub(crate) struct EgressFinder<R, P> {
    routes: R,
    pods: P,
    /// The pods' own addresses, and the namespaces that their routes led to when they were last read. Only hints: each use reads the
    /// route again.
    hints: BTreeMap<IpAddr, Option<PodNamespace>>,
    /// The version of the view of pods from which the addresses are; `None` before the first.
    version: Option<u64>,
    /// True if a client's namespace was no pod's, so a route may have changed.
    is_outdated: bool,
    repeats: Gcra,
    clock: Clock,
}

impl<R: NodeRoutes, P: PodAddressClaims> EgressFinder<R, P> {
    /// Creates a finder that knows no route yet.
    pub(crate) fn new(routes: R, pods: P, clock: Clock) -> Self {
        let repeats = Gcra::new(REPEATS_PER_SECOND, 1);
        Self { routes, pods, hints: BTreeMap::new(), version: None, is_outdated: false, repeats, clock }
    }

    fn find(&mut self, ends: AddressEnds) -> Found {
        let to_client = self.routes.namespace_of(ends.peer, Some(ends.local));
        let namespace = to_client.ok_or(RejectionReason::NoRouteToPod)?;
        // Before any hint counts, because a pod that the API server has just reported can be in the same namespace.
        self.follow_view();
        let owner = self.only_owner(namespace);
        // Most often a pod that the API server has not reported yet. Others must not wait until all routes are read for it.
        self.is_outdated |= owner == Err(RejectionReason::UnknownPod);
        // The kernel gives the number of a namespace that has ended to another one. If the client's route still leads to this number, the
        // client's namespace has it since the first reading, so the pod's own route led to the same namespace.
        let is_unchanged = self.routes.namespace_of(ends.peer, Some(ends.local)) == to_client;
        if is_unchanged { owner } else { Err(RejectionReason::UnknownPod) }
    }

    /// Reads all routes again if one may have changed. The client that noticed it asks again.
    fn refresh_if_outdated(&mut self) {
        if self.is_outdated && self.repeats.take(self.clock.now()).is_ok() {
            self.is_outdated = false;
            self.hints.clear();
            self.read_missing_hints();
        }
    }

    /// Takes over the addresses of the latest view of pods.
    fn follow_view(&mut self) {
        let version = self.pods.version();
        if self.version != Some(version) {
            self.version = Some(version);
            self.read_missing_hints();
        }
    }

    /// Reads the routes of the addresses that have no hint, and forgets addresses that no pod claims any more.
    fn read_missing_hints(&mut self) {
        let mut before = std::mem::take(&mut self.hints);
        for address in self.pods.claimed_addresses() {
            let known = before.remove(&address).flatten();
            let hint = known.or_else(|| self.routes.namespace_of(address, None));
            self.hints.insert(address, hint);
        }
    }

    /// Returns the only pod with an address whose route leads into this namespace now.
    fn only_owner(&mut self, namespace: PodNamespace) -> Found {
        let mut only: Option<EgressOwner> = None;
        for (address, hint) in &mut self.hints {
            if *hint != Some(namespace) {
                continue;
            }
            *hint = self.routes.namespace_of(*address, None);
            let Some(uid) = self.pods.claimant_at(*address).filter(|_| *hint == Some(namespace)) else {
                continue;
            };
            match &only {
                Some(other) if other.uid != uid => return Err(RejectionReason::Ambiguous),
                Some(_) => {}
                None => only = Some(EgressOwner { uid, own_address: *address }),
            }
        }
        only.ok_or(RejectionReason::UnknownPod)
    }
}

#[cfg(test)]
mod tests {
    use super::super::view_fixture::{Routes, View, uid};
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn ends(peer: &str) -> AddressEnds {
        AddressEnds { peer: ip(peer), local: ip("10.4.0.1") }
    }

    /// A node on which the routes to "cart" lead to namespace 1 and those to "old" to namespace 2.
    fn finder() -> (EgressFinder<Routes, View>, Routes) {
        let routes = Routes::default();
        for (address, number) in
            [("10.4.0.7", 1), ("169.254.172.7", 1), ("10.4.0.9", 2), ("169.254.172.9", 2)]
        {
            routes.lead(address, Some(number));
        }
        let claims = [(ip("10.4.0.7"), "cart"), (ip("10.4.0.9"), "old")].into();
        let view = View { claims, ..View::default() };
        (EgressFinder::new(routes.clone(), view, Clock::manual().0), routes)
    }

    fn owner(name: &str, own: &str) -> Found {
        Ok(EgressOwner { uid: uid(name), own_address: ip(own) })
    }

    #[test]
    fn the_pod_whose_own_address_leads_to_the_clients_namespace_is_the_client() {
        let (mut finder, _) = finder();
        assert_eq!(finder.find(ends("169.254.172.7")), owner("cart", "10.4.0.7"));
        assert_eq!(finder.find(ends("169.254.172.9")), owner("old", "10.4.0.9"));
        assert_eq!(finder.find(ends("169.254.172.8")), Err(RejectionReason::NoRouteToPod));
    }

    #[test]
    fn the_routes_of_now_count_and_not_those_of_an_earlier_connection() {
        let (mut finder, routes) = finder();
        let mut find = || finder.find(ends("169.254.172.7"));
        assert_eq!(find(), owner("cart", "10.4.0.7"));
        routes.lead("169.254.172.7", Some(2));
        assert_eq!(find(), owner("old", "10.4.0.9"), "the address is another pod's");
        routes.lead("10.4.0.9", Some(3));
        assert_eq!(find(), Err(RejectionReason::UnknownPod), "no pod's own address leads there");
        routes.lead("10.4.0.9", None);
        assert_eq!(find(), Err(RejectionReason::UnknownPod));
        routes.lead("169.254.172.7", None);
        assert_eq!(find(), Err(RejectionReason::NoRouteToPod));
    }

    /// The kernel gives the number of a namespace that has ended to another one.
    #[test]
    fn an_address_whose_route_changes_while_the_agent_reads_is_nobodys() {
        let (mut finder, routes) = finder();
        routes.lead_then("169.254.172.7", 2);
        assert_eq!(finder.find(ends("169.254.172.7")), Err(RejectionReason::UnknownPod));
    }

    #[test]
    fn two_pods_in_one_namespace_are_ambiguous_also_if_the_second_is_reported_later() {
        let (mut finder, routes) = finder();
        assert_eq!(finder.find(ends("169.254.172.7")), owner("cart", "10.4.0.7"));
        routes.lead("10.4.0.11", Some(1));
        finder.pods.claims.insert(ip("10.4.0.11"), "new");
        finder.pods.version += 1;
        assert_eq!(finder.find(ends("169.254.172.7")), Err(RejectionReason::Ambiguous));
        finder.pods.claims.remove(&ip("10.4.0.7"));
        finder.pods.version += 1;
        assert_eq!(
            finder.find(ends("169.254.172.7")),
            owner("new", "10.4.0.11"),
            "the last pod there is gone"
        );
        finder.pods.claims.insert(ip("10.4.0.12"), "new");
        routes.lead("10.4.0.12", Some(1));
        finder.pods.version += 1;
        assert!(
            finder.find(ends("169.254.172.7")).is_ok_and(|owner| owner.uid == uid("new")),
            "two of one pod"
        );
    }

    /// A pod chooses how often it connects, so what it causes must be small.
    #[test]
    fn a_client_in_no_pods_namespace_does_not_cause_all_routes_to_be_read_each_time() {
        let (mut finder, routes) = finder();
        routes.lead("169.254.172.8", Some(8));
        let mut readings = || {
            let before = routes.readings();
            assert_eq!(finder.find(ends("169.254.172.8")), Err(RejectionReason::UnknownPod));
            let first = routes.readings();
            finder.refresh_if_outdated();
            (first - before, routes.readings() - first)
        };
        let (client, pods) = (2, 2);
        assert_eq!(
            readings(),
            (client + pods, pods),
            "for the view, and after the answer because a route can have changed"
        );
        for _ in 0..100 {
            assert_eq!(readings(), (client, 0));
        }
    }

    #[tokio::test]
    async fn one_reading_answers_all_connections_of_an_address_and_the_addresses_take_turns() {
        let questions = Questions::default();
        let mut asked: Vec<_> = (0..3).map(|_| questions.ask(ends("169.254.172.7"))).collect();
        let other = questions.ask(ends("169.254.172.9"));
        asked.extend((0..3).map(|_| questions.ask(ends("169.254.172.7"))));
        let (first, answers) = questions.next().unwrap();
        assert_eq!((first, answers.len()), (ends("169.254.172.7"), 6));
        // What is asked from now on needs a later reading, after the others' turn.
        let later = questions.ask(ends("169.254.172.7"));
        for answer in answers {
            answer.send(owner("cart", "10.4.0.7")).unwrap();
        }
        for answer in asked {
            assert_eq!(answer.await.unwrap(), owner("cart", "10.4.0.7"));
        }
        let (second, answers) = questions.next().unwrap();
        assert_eq!((second, answers.len()), (ends("169.254.172.9"), 1));
        assert_eq!(questions.next().unwrap().0, ends("169.254.172.7"));
        drop((other, later));
        questions.end();
        assert!(questions.next().is_none());
    }

    /// A thread that has ended, as after a panic, keeps nobody waiting.
    #[tokio::test]
    async fn after_the_end_nobody_waits() {
        let questions = Arc::new(Questions::default());
        let before = questions.ask(ends("169.254.172.7"));
        drop(EndOfQuestions(questions.clone()));
        assert!(before.await.is_err() && questions.ask(ends("169.254.172.7")).await.is_err());
    }

    #[test]
    fn a_route_that_came_later_is_read_again() {
        let (mut finder, routes) = finder();
        routes.lead("10.4.0.7", None);
        assert_eq!(finder.find(ends("169.254.172.7")), Err(RejectionReason::UnknownPod));
        routes.lead("10.4.0.7", Some(1));
        assert_eq!(finder.find(ends("169.254.172.7")), Err(RejectionReason::UnknownPod));
        finder.refresh_if_outdated();
        assert_eq!(finder.find(ends("169.254.172.7")), owner("cart", "10.4.0.7"));
    }

    #[test]
    fn connections_that_ended_while_they_waited_do_not_add_up() {
        let questions = Questions::default();
        let _kept = questions.ask(ends("169.254.172.7"));
        for _ in 0..1000 {
            drop(questions.ask(ends("169.254.172.7")));
        }
        assert!(questions.next().unwrap().1.len() <= 2);
    }

    #[tokio::test]
    async fn the_thread_answers_and_the_last_result_of_each_address_is_kept_within_a_bound() {
        let (finder, _) = finder();
        let egress = EgressAddresses::start(vec!["169.254.0.0/16".parse().unwrap()], finder).unwrap();
        let pair =
            |peer: IpAddr| SocketPair { peer: (peer, 40000).into(), local: "10.4.0.1:8988".parse().unwrap() };
        let cart = ip("169.254.172.7");
        assert_eq!(egress.last_owner(cart), Err(RejectionReason::UnknownPod));
        assert_eq!(egress.owner(pair(cart)).await, owner("cart", "10.4.0.7"));
        assert_eq!(egress.last_owner(cart), owner("cart", "10.4.0.7"));
        for number in 0..2 * MOST_RESULTS {
            let [.., high, low] = u32::try_from(number).unwrap().to_be_bytes();
            let none = IpAddr::from([169, 254, high, low]);
            assert_eq!(egress.owner(pair(none)).await, Err(RejectionReason::NoRouteToPod));
            assert!(egress.last().len() <= MOST_RESULTS);
        }
    }
}
