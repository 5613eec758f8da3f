//! Which pod made a socket on the node's network, by the kernel's answer and the pods' groups: what `sock-diag` identity asks.
//!
//! The socket by which the kernel is asked is opened while the agent starts, so that nothing of that kind is opened later. Groups that were found to
//! be a pod's stay so for as long as the machine runs, because their numbers are never used again; those that are not known are looked for at a
//! bounded rate, because what a pod does brings that about.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::attestation::{Maker, Pair};
use anyhow::{Context, anyhow};
use arc_swap::ArcSwap;
use seawall_core::cloud::DialectName;
use seawall_core::endpoint::{CONTAINERS, Endpoint, METADATA, PORT};
use seawall_core::{Clock, Gcra, PodUid};
use seawall_redirect::{Error, Pods, Site};

use super::config::Redirect;

/// Looks for groups in a second: some 0.2 ms each with ten pods on the node's network.
const LOOKS_PER_SECOND: u32 = 20;

/// Lines in a second that tell of failures.
const COMPLAINTS_PER_SECOND: u32 = 1;

/// What attestation asks, shared by all who ask.
#[derive(Clone, Debug)]
pub struct Sockets(Arc<Table>);

#[derive(Debug)]
struct Table {
    /// A lock, because questions are numbered. Each is one call and its answer, 3 µs; at most four for a connection, of those from the node's own
    /// addresses alone.
    kernel: Mutex<seawall_redirect::Sockets>,
    site: Site,
    doors: Doors,
    /// The groups of pods on the node's network.
    groups: ArcSwap<HashMap<u64, PodUid>>,
    looks: Gcra,
    complaints: Gcra,
    clock: Clock,
}

impl Sockets {
    /// Opens what is asked, and tries it. `spoken` are the agent's listeners.
    ///
    /// # Errors
    /// The kernel does not tell, or the pods' groups are not there.
    pub fn open<'a>(
        places: &Redirect,
        spoken: impl IntoIterator<Item = (SocketAddr, &'a [DialectName])>,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let site = Site::find(&places.cgroups, places.kubepods.as_deref());
        let opened = site.and_then(|site| Ok((site, seawall_redirect::Sockets::open()?)));
        let (site, kernel) = opened
            .map_err(|error| anyhow!("{error}"))
            .context("identity.strategy sock-diag cannot work here")?;
        Ok(Self(Arc::new(Table {
            kernel: Mutex::new(kernel),
            site,
            doors: Doors::of(spoken),
            groups: ArcSwap::default(),
            looks: Gcra::new(LOOKS_PER_SECOND, LOOKS_PER_SECOND),
            complaints: Gcra::new(COMPLAINTS_PER_SECOND, 1),
            clock: clock.clone(),
        })))
    }
}

impl Table {
    fn maker(&self, pair: Pair, among: &dyn Fn() -> Vec<PodUid>) -> Maker {
        match self.told(self.group(pair)) {
            Some(Some(group)) => self.owner(group, among),
            Some(None) => Maker::Nobody,
            None => Maker::Unknown,
        }
    }

    /// The group of the socket that has the other end, by where its connection was sent.
    fn group(&self, pair: Pair) -> Result<Option<u64>, Error> {
        let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        for sent_to in self.doors.sent_to(pair) {
            let found = kernel.group(pair.peer, sent_to)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn owner(&self, group: u64, among: &dyn Fn() -> Vec<PodUid>) -> Maker {
        if let Some(pod) = self.groups.load().get(&group) {
            return Maker::Pod(pod.clone());
        }
        if self.looks.take(self.clock.now()).is_err() {
            return Maker::Unknown;
        }
        let Some(groups) = self.told(self.listed(&among())) else { return Maker::Unknown };
        let found = groups.get(&group).cloned();
        self.groups.store(Arc::new(groups));
        found.map_or(Maker::Nobody, Maker::Pod)
    }

    /// Those of pods that are gone are forgotten with each look.
    fn listed(&self, pods: &[PodUid]) -> Result<HashMap<u64, PodUid>, Error> {
        let mut groups = HashMap::new();
        for pod in pods {
            groups.extend(Pods::groups_of(&self.site, pod)?.into_iter().map(|group| (group, pod.clone())));
        }
        Ok(groups)
    }

    /// What could not be asked is nobody's word.
    fn told<T>(&self, result: Result<T, Error>) -> Option<T> {
        result
            .inspect_err(|error| {
                if self.complaints.take(self.clock.now()).is_ok() {
                    tracing::error!(%error, "the kernel cannot be asked who made a socket");
                }
            })
            .ok()
    }
}

/// Which metadata addresses netfilter's rules lead to each of the agent's ports.
#[derive(Debug)]
struct Doors(HashMap<u16, Vec<IpAddr>>);

impl Doors {
    fn of<'a>(spoken: impl IntoIterator<Item = (SocketAddr, &'a [DialectName])>) -> Self {
        let mut doors = HashMap::<u16, Vec<IpAddr>>::new();
        for (at, dialects) in spoken {
            let speaks = |endpoint| dialects.iter().any(|dialect| dialect.endpoint() == endpoint);
            let addresses = doors.entry(at.port()).or_default();
            addresses.extend(METADATA.iter().filter(|_| speaks(Endpoint::Metadata)));
            addresses.extend(CONTAINERS.iter().filter(|_| speaks(Endpoint::Containers)));
        }
        Self(doors)
    }

    /// Where the other end may have sent a connection that arrived at this one: there, or to a metadata address that netfilter's rules
    /// made this port (`redirect print translation`) and the client's socket keeps. No other socket at the same address and port is found
    /// in the place of the right one: two that are translated to the same ends get different ports, which is what a translation's tracking is for,
    /// and the one that was not translated is asked for first. An address that leads to another port is not asked for: two sockets may have
    /// the same address and port and be translated to different ones, and a pod would be taken for whoever made the other.
    fn sent_to(&self, pair: Pair) -> impl Iterator<Item = SocketAddr> {
        let leading_here = self.0.get(&pair.local.port()).map_or(&[][..], Vec::as_slice);
        let of_family = move |to: &&IpAddr| to.is_ipv4() == pair.peer.is_ipv4();
        let translated = leading_here.iter().filter(of_family).map(|ip| SocketAddr::new(*ip, PORT));
        std::iter::once(pair.local).chain(translated)
    }
}

impl crate::attestation::Sockets for Sockets {
    fn maker(&self, pair: Pair, among: &dyn Fn() -> Vec<PodUid>) -> Maker {
        self.0.maker(pair, among)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_true_end_is_asked_for_before_those_that_are_translated_to_its_port_and_no_other_family() {
        let spoken: [(SocketAddr, &[DialectName]); 3] = [
            ("0.0.0.0:8988".parse().unwrap(), &[DialectName::Google, DialectName::AwsImds]),
            ("0.0.0.0:8987".parse().unwrap(), &[DialectName::AwsContainers]),
            ("0.0.0.0:8986".parse().unwrap(), &[DialectName::AwsContainers, DialectName::Google]),
        ];
        let doors = Doors::of(spoken);
        let sent = |peer: &str, local: &str| {
            let pair = Pair { peer: peer.parse().unwrap(), local: local.parse().unwrap() };
            doors.sent_to(pair).map(|to| to.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(sent("10.0.0.1:5", "10.0.0.1:8987"), ["10.0.0.1:8987", "169.254.170.23:80"]);
        assert_eq!(sent("10.0.0.1:5", "10.0.0.1:8986").len(), 3);
        assert_eq!(sent("10.0.0.1:5", "10.0.0.1:80"), ["10.0.0.1:80"]);
        let (v4, v6) = (sent("10.0.0.1:5", "10.0.0.1:8988"), sent("[fd00::1]:5", "[fd00::1]:8988"));
        assert_eq!(v4, ["10.0.0.1:8988", "169.254.169.254:80"]);
        assert_eq!(v6, ["[fd00::1]:8988", "[fd20:ce::254]:80", "[fd00:ec2::254]:80"]);
    }

    #[test]
    fn a_node_without_what_it_takes_is_told_so_at_the_start() {
        let nowhere = tempfile::tempdir().unwrap();
        let places = Redirect { bpffs: "/".into(), cgroups: nowhere.path().into(), kubepods: None };
        let refused = format!("{:#}", Sockets::open(&places, [], &Clock::system()).unwrap_err());
        assert!(refused.contains("sock-diag") && refused.contains("cgroup2"), "{refused}");
    }
}
