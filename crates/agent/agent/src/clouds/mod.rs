//! The list of clouds: the one place beside a cloud's own room that knows which there are.
//!
//! A room has the cloud's section of the configuration ([`Section`]), what a pod is entitled to, its dialect on a traffic thread,
//! what it counts and shows, and how its readiness is asked ([`Cloud`]). Everything else in the agent goes through the functions
//! here. The list itself is four: `core::cloud`, [`Sections`], [`Sections::all`] and [`Sections::file_keys`] each name every cloud once.

pub(crate) mod aws;
mod broker_stats;
mod cloud;
pub(crate) mod entitlements;
pub(crate) mod google;
pub(crate) mod pod;
pub(crate) mod pod_events;
mod prefetch;
mod refusals;
pub(crate) mod sdk_profile;
#[cfg(test)]
pub(crate) mod tests;

use std::any::Any;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::registry::Registry;
use seawall_config::Table;
use seawall_core::attestation::FileKey;
use seawall_core::cloud::{CloudName, DialectName};
use seawall_core::facts::Selection;
use seawall_core::{Clock, Floor};
use seawall_server::handler::Dialect;
use seawall_server::route::Route;
use serde::Serialize;
use tokio::runtime::Handle;

use self::entitlements::{Decided, Entitlements};
use self::sdk_profile::Clients;
use crate::clouds::pod::{Dialects, PodCaller};
use crate::observe::readiness::Probe;
use broker_stats::{BrokerCollector, Brokered};
use cloud::{Cloud, Section};

pub(crate) use cloud::{Applicant, Tools};

/// The clouds' sections of the configuration; those that are not there are off.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sections {
    pub(crate) google: Option<google::Section>,
    pub(crate) aws: Option<aws::Section>,
}

impl Sections {
    /// Reads all of them. `listen` is where the agent listens itself.
    pub(crate) fn read(root: &Table<'_>, base: &Path, listen: &[SocketAddr]) -> Self {
        let google = root.key("google");
        let aws = root.key("aws");
        Self {
            google: google.is_present().then(|| google::Section::read(&google, base, listen)),
            aws: aws.is_present().then(|| aws::Section::read(&aws, base, listen)),
        }
    }

    /// Those that are on.
    fn all(&self) -> Vec<(CloudName, &dyn Section)> {
        let each: [(_, Option<&dyn Section>); _] = [
            (CloudName::Google, self.google.as_ref().map(|section| section as _)),
            (CloudName::Aws, self.aws.as_ref().map(|section| section as _)),
        ];
        each.into_iter().filter_map(|(name, section)| Some((name, section?))).collect()
    }

    /// What an entry in a file of pods may say, whichever are on: a file is checked as a whole.
    pub(crate) fn file_keys() -> Vec<FileKey> {
        [google::FILE_KEYS, aws::FILE_KEYS].concat()
    }

    /// The names of those that are on.
    pub(crate) fn names(&self) -> Vec<CloudName> {
        self.all().into_iter().map(|(name, _)| name).collect()
    }

    /// Their dialects.
    pub(crate) fn dialects(&self) -> Vec<DialectName> {
        let on = self.names();
        DialectName::ALL.iter().copied().filter(|dialect| on.contains(&dialect.cloud())).collect()
    }

    /// Those that are on in both and not said to be the same.
    pub(crate) fn changed(&self, other: &Self) -> Vec<CloudName> {
        let theirs = other.all();
        let is_changed = |(name, section): &(CloudName, &dyn Section)| {
            let same = theirs.iter().find(|(known, _)| known == name);
            same.is_some_and(|(_, theirs)| !section.is_same(*theirs as &dyn Any))
        };
        self.all().into_iter().filter(is_changed).map(|(name, _)| name).collect()
    }

    /// The annotations that they want to know.
    pub(crate) fn selections(&self) -> Vec<Selection> {
        self.all().into_iter().map(|(_, section)| section.selection()).collect()
    }

    /// Whether some cloud writes a file.
    pub(crate) fn write_files(&self) -> bool {
        self.all().into_iter().any(|(_, section)| section.writes_a_file())
    }

    /// Whether some cloud gives pods credentials of their own.
    pub(crate) fn must_know_pods(&self) -> bool {
        self.all().into_iter().any(|(_, section)| section.must_know_pods())
    }
}

/// The clouds at work: those that are on, for the process, by one configuration.
#[derive(Debug)]
pub(crate) struct Clouds(Vec<(CloudName, Arc<dyn Cloud>)>);

/// Those of the configuration in force. Who outlives a configuration asks here each time, and keeps none.
#[derive(Debug)]
pub(crate) struct CloudsInForce(ArcSwap<Clouds>);

impl CloudsInForce {
    /// These, until others take their place.
    pub(crate) fn new(clouds: Arc<Clouds>) -> Self {
        Self(ArcSwap::new(clouds))
    }

    /// As they are now.
    pub(crate) fn now(&self) -> Arc<Clouds> {
        self.0.load_full()
    }

    /// Those take their place.
    pub(crate) fn replace(&self, clouds: Arc<Clouds>) {
        self.0.store(clouds);
    }

    /// Registers what they count. Counts go on from one configuration to the next.
    pub(crate) fn register(self: &Arc<Self>, registry: &mut Registry, clock: &Clock) {
        let (clouds, clock) = (self.clone(), clock.clone());
        let figures = move || clouds.now().brokers().map(|(_, broker)| broker.figures(&clock)).collect();
        registry.register_collector(Box::new(BrokerCollector(Box::new(figures))));
        self.now().0.iter().for_each(|(_, cloud)| cloud.register(registry));
    }
}

/// How one cloud's credentials stand to their floor.
#[derive(Debug)]
pub(crate) struct FloorState {
    pub(crate) cloud: CloudName,
    /// Whether all that was issued so far could be kept above it.
    pub(crate) is_kept: bool,
    /// The floor, where credentials may end with the Kubernetes token that they were exchanged for.
    pub(crate) of_exchanged: Option<Floor>,
}

impl Clouds {
    /// All that are on; what they do in the background runs on `runtime`. Asks nobody.
    ///
    /// # Errors
    /// A file that a section names cannot be read or used.
    pub(crate) fn start(sections: &Sections, clock: &Clock, runtime: &Handle) -> anyhow::Result<Self> {
        let start = |(name, section): (_, &dyn Section)| Ok((name, section.start(clock, runtime, None)?));
        sections.all().into_iter().map(start).collect::<anyhow::Result<_>>().map(Self)
    }

    /// Those of other sections, which take over what stays as it is: a cloud of which nothing changed is the same one. Asks nobody.
    ///
    /// # Errors
    /// A file that a section names cannot be read or used.
    pub(crate) fn succeeded_by(
        &self,
        sections: &Sections,
        changed: &[CloudName],
        clock: &Clock,
        runtime: &Handle,
    ) -> anyhow::Result<Self> {
        let next = |(name, section): (CloudName, &dyn Section)| {
            let before = self.0.iter().find(|(known, _)| *known == name).map(|(_, cloud)| cloud);
            match before.filter(|_| !changed.contains(&name)) {
                Some(same) => Ok((name, same.clone())),
                None => Ok((name, section.start(clock, runtime, before.map(|cloud| &**cloud))?)),
            }
        };
        sections.all().into_iter().map(next).collect::<anyhow::Result<_>>().map(Self)
    }

    fn find(&self, name: CloudName) -> Option<&dyn Cloud> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, cloud)| &**cloud)
    }

    fn brokers(&self) -> impl Iterator<Item = (CloudName, &dyn Brokered)> {
        self.0.iter().filter_map(|(name, cloud)| Some((*name, cloud.broker()?)))
    }

    /// What a pod may have of each. What it had before stays where what decides it is the same: its leases with it.
    pub(crate) fn entitle(&self, applicant: &Applicant<'_>, before: &Entitlements) -> Entitlements {
        Entitlements::of_each(|name| {
            self.find(name).map_or(Decided::Off, |cloud| {
                cloud.entitle(applicant, before).map_or(Decided::NotYet, Decided::Is)
            })
        })
    }

    /// The dialects of each listener, on one thread; nothing if one has none that is on. A dialect is made once, however many
    /// listeners speak it: what it keeps open to a real metadata server is the thread's.
    pub(crate) fn speak(&self, listeners: &[Vec<DialectName>], tools: &Tools) -> Option<Vec<Dialects>> {
        let make = |name: &DialectName| Some((*name, self.find(name.cloud())?.dialect(*name, tools)));
        let all: Vec<_> = DialectName::ALL.iter().filter_map(make).collect();
        let made = |name: &DialectName| -> Option<Rc<dyn Dialect<PodCaller>>> {
            Some(all.iter().find(|(known, _)| known == name)?.1.clone())
        };
        listeners.iter().map(|names| Dialects::new(names.iter().filter_map(made))).collect()
    }

    /// Clients that fetch one's credentials.
    pub(crate) fn clients(&self, name: CloudName) -> Clients {
        self.find(name).map(Cloud::clients).unwrap_or_default()
    }

    /// How readiness asks for each of these dialects.
    pub(crate) fn probes(&self, names: &[DialectName]) -> Vec<Probe> {
        names.iter().filter_map(|name| Some(self.find(name.cloud())?.probe(*name))).collect()
    }

    /// What is asked of them, by kind.
    pub(crate) fn routes(&self) -> Vec<&'static Route> {
        self.0.iter().flat_map(|(_, cloud)| cloud.routes().iter().copied()).collect()
    }

    /// What an operator should see though the agent serves.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let of_brokers = self.brokers().flat_map(|(_, broker)| broker.remarks());
        of_brokers.chain(self.0.iter().flat_map(|(_, cloud)| cloud.remarks())).collect()
    }

    /// How the credentials of each stand to their floor; nothing of those that give none.
    pub(crate) fn floors(&self) -> Vec<FloorState> {
        let state = |(cloud, broker): (CloudName, &dyn Brokered)| FloorState {
            cloud,
            is_kept: broker.is_above_floor(),
            of_exchanged: self.find(cloud).and_then(Cloud::floor_of_exchanged),
        };
        self.brokers().map(state).collect()
    }
}
