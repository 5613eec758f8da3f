//! The list of clouds: what a pod may have of each, and what answers its requests.
//!
//! A cloud has a folder ([`google`], [`aws`]): its section of the configuration, what a pod is entitled to, its dialects on a traffic
//! thread, what it counts and shows, and how its readiness is asked. Everything else goes through the functions here. Which clouds there
//! are is a closed set that four files name beside their folders: `core::cloud`, [`config`], [`cloud`] and [`entitlements`]; where one is
//! missing in a `match`, the compiler says so. Knows neither how a pod is attested nor what carries its requests.

pub mod aws;
pub mod broker_stats;
mod cloud;
mod config;
pub mod context;
pub mod entitlements;
pub mod google;
pub mod pod;
pub mod pod_events;
mod prefetch;
pub mod readiness_request;
mod refusals;
mod reloadable_keys;
pub mod sdk_profile;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::registry::Registry;
use seawall_core::cloud::{CloudName, DialectName};
use seawall_core::{Clock, Floor};
use seawall_server::handler::MetadataDialect;
use seawall_server::route::MetadataRoute;
use tokio::runtime::Handle;

use aws::Aws;
use cloud::RunningCloud;
use entitlements::{EntitlementState, Entitlements};
use google::Google;
use pod::{PodDialects, PodEntry};
use readiness_request::ReadinessRequest;
use sdk_profile::SdkProfiles;

pub use cloud::CloudBroker;
pub use config::CloudsConfig;
pub use context::{DialectResources, EntitlementRequest};
pub use reloadable_keys::ReloadableKeys;

/// The clouds at work: those that are on, for the process, by one configuration.
#[derive(Debug)]
pub struct Clouds {
    google: Option<Arc<Google>>,
    aws: Option<Arc<Aws>>,
}

/// Those of the configuration in force. Who outlives a configuration asks here each time, and keeps none.
#[derive(Debug)]
pub struct CurrentClouds(ArcSwap<Clouds>);

impl CurrentClouds {
    /// These, until others take their place.
    pub fn new(clouds: Arc<Clouds>) -> Self {
        Self(ArcSwap::new(clouds))
    }

    /// As they are now.
    pub fn load(&self) -> Arc<Clouds> {
        self.0.load_full()
    }

    /// Those take their place.
    pub fn replace(&self, clouds: Arc<Clouds>) {
        self.0.store(clouds);
    }

    /// Registers what they count beside what every broker does.
    pub fn register(&self, registry: &mut Registry) {
        self.load().running().for_each(|cloud| cloud.register(registry));
    }
}

/// How one cloud's credentials stand to their floor.
#[derive(Debug)]
pub struct FloorState {
    /// The cloud.
    pub cloud: CloudName,
    /// Whether all that was issued so far could be kept above it.
    pub is_kept: bool,
    /// The floor, where credentials may end with the Kubernetes token that they were exchanged for.
    pub exchanged_min_lifetime: Option<Floor>,
}

impl Clouds {
    /// All that are on; what they do in the background runs on `runtime`. Asks nobody.
    ///
    /// # Errors
    /// A file that a section names cannot be read or used.
    pub fn start(sections: &CloudsConfig, clock: &Clock, runtime: &Handle) -> anyhow::Result<Self> {
        Self { google: None, aws: None }.with_config(sections, &[], clock, runtime)
    }

    /// Those of other sections, which take over what stays as it is: a cloud of which nothing changed is the same one. Asks nobody.
    ///
    /// # Errors
    /// A file that a section names cannot be read or used.
    pub fn with_config(
        &self,
        sections: &CloudsConfig,
        changed: &[CloudName],
        clock: &Clock,
        runtime: &Handle,
    ) -> anyhow::Result<Self> {
        let Self { google, aws } = self;
        let is_changed = |name: CloudName| changed.contains(&name);
        let google = next(
            sections.google.as_ref(),
            google.as_ref(),
            is_changed(CloudName::Google),
            |section, before| section.start(clock, runtime, before),
        )?;
        let aws =
            next(sections.aws.as_ref(), aws.as_ref(), is_changed(CloudName::Aws), |section, before| {
                section.start(clock, runtime, before)
            })?;
        Ok(Self { google, aws })
    }

    fn find(&self, name: CloudName) -> Option<RunningCloud<'_>> {
        match name {
            CloudName::Google => self.google.as_deref().map(RunningCloud::Google),
            CloudName::Aws => self.aws.as_deref().map(RunningCloud::Aws),
        }
    }

    fn running(&self) -> impl Iterator<Item = RunningCloud<'_>> {
        CloudName::ALL.iter().filter_map(|name| self.find(*name))
    }

    /// Those that give credentials.
    pub fn brokers(&self) -> impl Iterator<Item = CloudBroker<'_>> {
        self.running().filter_map(RunningCloud::broker)
    }

    /// What a pod may have of each. What it had before stays where what decides it is the same: its leases with it.
    pub fn entitle(&self, applicant: &EntitlementRequest<'_>, before: &Entitlements) -> Entitlements {
        let Self { google, aws } = self;
        Entitlements {
            google: decide(google.as_ref(), |cloud| cloud.entitle(applicant, before.google())),
            aws: decide(aws.as_ref(), |cloud| cloud.entitle(applicant, before.aws())),
        }
    }

    /// The dialects of each listener, on one thread; nothing if one has none that is on. A dialect is made once, however many
    /// listeners speak it: what it keeps open to a real metadata server is the thread's.
    pub fn build_dialects(
        &self,
        listeners: &[Vec<DialectName>],
        tools: &DialectResources,
    ) -> Option<Vec<PodDialects>> {
        let make = |name: &DialectName| Some((*name, self.find(name.cloud())?.dialect(*name, tools)));
        let all: Vec<_> = DialectName::ALL.iter().filter_map(make).collect();
        let made = |name: &DialectName| -> Option<Rc<dyn MetadataDialect<PodEntry>>> {
            Some(all.iter().find(|(known, _)| known == name)?.1.clone())
        };
        listeners.iter().map(|names| PodDialects::new(names.iter().filter_map(made))).collect()
    }

    /// Clients that fetch one's credentials.
    pub fn sdk_profiles(&self, name: CloudName) -> SdkProfiles {
        self.find(name).map(RunningCloud::sdk_profiles).unwrap_or_default()
    }

    /// How readiness asks for each of these dialects.
    pub fn probes(&self, names: &[DialectName]) -> Vec<ReadinessRequest> {
        names.iter().filter_map(|name| Some(self.find(name.cloud())?.probe(*name))).collect()
    }

    /// What is asked of them, by kind.
    pub fn routes(&self) -> Vec<&'static MetadataRoute> {
        self.running().flat_map(|cloud| cloud.routes().iter().copied()).collect()
    }

    /// What an operator should see though the agent serves.
    pub fn warnings(&self) -> Vec<String> {
        let of_brokers = self.brokers().flat_map(CloudBroker::warnings);
        of_brokers.chain(self.running().filter_map(RunningCloud::warning).map(str::to_owned)).collect()
    }

    /// How the credentials of each stand to their floor; nothing of those that give none.
    pub fn floors(&self) -> Vec<FloorState> {
        let state = |cloud: RunningCloud<'_>| {
            let broker = cloud.broker()?;
            let (is_kept, of_exchanged) = (broker.is_above_floor(), cloud.exchanged_min_lifetime());
            Some(FloorState { cloud: cloud.name(), is_kept, exchanged_min_lifetime: of_exchanged })
        };
        self.running().filter_map(state).collect()
    }
}

/// The next cloud of one kind, by its section: the one before where nothing changed, else one that takes over from it.
fn next<S, C>(
    section: Option<&S>,
    before: Option<&Arc<C>>,
    is_changed: bool,
    start: impl FnOnce(&S, Option<&C>) -> anyhow::Result<C>,
) -> anyhow::Result<Option<Arc<C>>> {
    match (section, before) {
        (None, _) => Ok(None),
        (Some(_), Some(same)) if !is_changed => Ok(Some(same.clone())),
        (Some(section), before) => {
            start(section, before.map(|cloud| &**cloud)).map(|cloud| Some(cloud.into()))
        }
    }
}

/// What a pod may have of one cloud: nothing is decided of one that is off.
fn decide<C, E>(cloud: Option<&Arc<C>>, entitle: impl FnOnce(&C) -> Option<E>) -> EntitlementState<Arc<E>> {
    cloud.map_or(EntitlementState::Off, |cloud| {
        entitle(cloud).map_or(EntitlementState::Pending, |own| EntitlementState::Decided(own.into()))
    })
}
