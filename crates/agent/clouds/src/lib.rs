//! Contains the clouds. Each cloud decides which credentials a pod may get from it (the pod's entitlement).
//! Each cloud also has dialects (metadata APIs), which answer the requests of pods.
//!
//! A cloud has a folder ([`google`], [`aws`]) with these parts:
//! - its section of the configuration,
//! - the entitlement of a pod,
//! - its dialects, which answer requests on the traffic threads,
//! - its metrics and debug output,
//! - the request with which the readiness check probes each of its dialects.
//!
//! Code outside these folders calls a cloud only through [`Clouds`] and [`CloudsConfig`]. Outside a cloud's folder, only four
//! files name the cloud: `core::cloud`, [`config`], [`cloud`] and [`entitlements`]. When a cloud is added, the compiler reports
//! each `match` that omits the cloud. The crate `identity` attests pods, and the crate `server` transports requests.

pub mod aws;
pub mod broker_stats;
mod cloud;
pub mod cloud_inputs;
mod config;
pub mod entitlements;
pub mod google;
pub mod kubernetes_events;
pub mod pod;
mod prefetch;
mod real_server;
mod refusals;
mod reloadable_keys;
pub mod sdk_refresh_times;
pub mod self_test_request;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::registry::Registry;
use seawall_core::cloud::{CloudName, DialectName};
use seawall_core::{Clock, LifetimeFloor};
use seawall_server::handler::MetadataDialect;
use seawall_server::route::MetadataRoute;
use tokio::runtime::Handle;

use aws::RunningAws;
use cloud::RunningCloud;
use entitlements::{EntitlementState, Entitlements};
use google::RunningGoogle;
use pod::{PodDialects, PodEntry};
use real_server::{RealServer, RealServerDialect, RealServerPassthrough};
use sdk_refresh_times::SdkProfiles;
use self_test_request::ReadinessRequest;

pub use cloud::CloudBroker;
pub use cloud_inputs::{DialectResources, EntitlementRequest};
pub use config::CloudsConfig;
pub use reloadable_keys::ReloadableKeys;

/// The running clouds under one configuration, for the whole process.
#[derive(Debug)]
pub struct Clouds {
    google: Option<Arc<RunningGoogle>>,
    aws: Option<Arc<RunningAws>>,
    real_server: RealServer,
}

/// The running clouds under the current configuration. Code that outlives a configuration calls [`Self::current`] for each use.
#[derive(Debug)]
pub struct CurrentClouds(ArcSwap<Clouds>);

impl CurrentClouds {
    /// Creates a cell with these clouds. [`Self::replace`] changes them.
    pub fn new(clouds: Arc<Clouds>) -> Self {
        Self(ArcSwap::new(clouds))
    }

    /// Returns the clouds under the current configuration.
    pub fn current(&self) -> Arc<Clouds> {
        self.0.load_full()
    }

    /// Replaces the current clouds by these clouds.
    pub fn replace(&self, clouds: Arc<Clouds>) {
        self.0.store(clouds);
    }

    /// Registers the metrics that only one cloud has. The crate `observe` registers the metrics that all brokers have.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.current().running().for_each(|cloud| cloud.register_metrics(registry));
    }
}

/// States whether one cloud's credentials stay above their floor, the least remaining lifetime of credentials in a response.
#[derive(Debug)]
pub struct LifetimeFloorState {
    /// The cloud.
    pub cloud: CloudName,
    /// True if each credential since the agent's start had a long enough lifetime at its issue to stay above the floor.
    pub was_always_kept: bool,
    /// The floor, if the agent exchanges a pod's Kubernetes token for credentials that can expire as early as the token. `None`
    /// if no credential of the cloud depends on the token's expiry.
    pub token_bound_floor: Option<LifetimeFloor>,
}

impl Clouds {
    /// Starts all enabled clouds without a network call. Their background tasks run on `runtime`.
    ///
    /// # Errors
    /// The agent cannot read or use a file that a section names.
    pub fn start(sections: &CloudsConfig, clock: &Clock, runtime: &Handle) -> anyhow::Result<Self> {
        Self { google: None, aws: None, real_server: RealServer::default() }.with_config(
            sections,
            &[],
            clock,
            runtime,
        )
    }

    /// Starts the clouds for new sections of the configuration, without a network call. The new clouds reuse all unchanged state.
    ///
    /// A cloud that is not in `changed` stays the same object.
    ///
    /// # Errors
    /// The agent cannot read or use a file that a section names.
    pub fn with_config(
        &self,
        sections: &CloudsConfig,
        changed: &[CloudName],
        clock: &Clock,
        runtime: &Handle,
    ) -> anyhow::Result<Self> {
        let Self { google, aws, .. } = self;
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
        Ok(Self { google, aws, real_server: sections.real_server() })
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

    /// Returns the brokers of the clouds that issue credentials.
    pub fn brokers(&self) -> impl Iterator<Item = CloudBroker<'_>> {
        self.running().filter_map(RunningCloud::broker)
    }

    /// Decides a pod's entitlement to each cloud. If everything that decides an entitlement is unchanged, the pod keeps that
    /// entitlement from `before`, with its leases.
    pub fn decide_entitlements(
        &self,
        applicant: &EntitlementRequest<'_>,
        before: &Entitlements,
    ) -> Entitlements {
        let Self { google, aws, real_server } = self;
        if real_server.serves(&applicant.pod.service_account) {
            return Entitlements {
                google: real_server_state(google.as_ref()),
                aws: real_server_state(aws.as_ref()),
            };
        }
        Entitlements {
            google: decide(google.as_ref(), |cloud| cloud.decide_entitlement(applicant, before.google())),
            aws: decide(aws.as_ref(), |cloud| cloud.decide_entitlement(applicant, before.aws())),
        }
    }

    /// Builds the dialects that each listener speaks on one thread. Returns `None` if a listener has no dialect of an enabled
    /// cloud.
    ///
    /// Each dialect is built once, even if several listeners speak it, so that all listeners of the thread share its connections
    /// to the real metadata server.
    pub fn build_dialects(
        &self,
        listeners: &[Vec<DialectName>],
        tools: &DialectResources,
    ) -> Option<Vec<PodDialects>> {
        let real_server =
            (!self.real_server.is_unused()).then(|| Rc::new(self.real_server_passthrough(tools)));
        let make = |name: &DialectName| {
            let dialect = self.find(name.cloud())?.build_dialect(*name, tools);
            // The real server has no endpoint of the containers' credentials, so that dialect refuses these pods itself.
            let dialect = match &real_server {
                Some(passthrough) if *name != DialectName::AwsContainers => {
                    Rc::new(RealServerDialect::new(dialect, passthrough.clone()))
                        as Rc<dyn MetadataDialect<_>>
                }
                _ => dialect,
            };
            Some((*name, dialect))
        };
        let all: Vec<_> = DialectName::ALL.iter().filter_map(make).collect();
        let made = |name: &DialectName| -> Option<Rc<dyn MetadataDialect<PodEntry>>> {
            Some(all.iter().find(|(known, _)| known == name)?.1.clone())
        };
        listeners.iter().map(|names| PodDialects::new(names.iter().filter_map(made))).collect()
    }

    fn real_server_passthrough(&self, tools: &DialectResources) -> RealServerPassthrough {
        let RealServer { google_url, imds_url, .. } = &self.real_server;
        RealServerPassthrough::new(
            google::real_server_filter(tools.forwarder(google_url)),
            tools.forwarder(imds_url),
        )
    }

    /// Returns the SDKs that fetch this cloud's credentials.
    pub fn sdk_profiles(&self, name: CloudName) -> SdkProfiles {
        self.find(name).map(RunningCloud::sdk_profiles).unwrap_or_default()
    }

    /// Returns the requests by which the readiness check probes these dialects. Dialects of disabled clouds are omitted.
    pub fn readiness_requests(&self, names: &[DialectName]) -> Vec<ReadinessRequest> {
        names.iter().filter_map(|name| Some(self.find(name.cloud())?.readiness_request(*name))).collect()
    }

    /// Returns the routes of all enabled clouds.
    pub fn routes(&self) -> Vec<&'static MetadataRoute> {
        self.running().flat_map(|cloud| cloud.routes().iter().copied()).collect()
    }

    /// Returns warnings for the operator. The agent serves requests despite the problems that the warnings describe.
    pub fn warnings(&self) -> Vec<String> {
        let of_brokers = self.brokers().flat_map(CloudBroker::warnings);
        of_brokers.chain(self.running().filter_map(RunningCloud::warning).map(str::to_owned)).collect()
    }

    /// Returns for each cloud whether its credentials stay above their floor. The result omits clouds without a broker.
    pub fn floor_states(&self) -> Vec<LifetimeFloorState> {
        let state = |cloud: RunningCloud<'_>| {
            let broker = cloud.broker()?;
            let (is_kept, of_exchanged) =
                (broker.never_issued_below_twice_floor(), cloud.token_bound_floor());
            Some(LifetimeFloorState {
                cloud: cloud.name(),
                was_always_kept: is_kept,
                token_bound_floor: of_exchanged,
            })
        };
        self.running().filter_map(state).collect()
    }
}

/// Returns the running cloud for a section: `before` if the section is unchanged, otherwise a new cloud that reuses the state of
/// `before`.
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

/// Returns the state of a pod's entitlement to one cloud, or [`EntitlementState::CloudDisabled`] if the cloud is disabled.
fn decide<C, E>(cloud: Option<&Arc<C>>, entitle: impl FnOnce(&C) -> Option<E>) -> EntitlementState<Arc<E>> {
    cloud.map_or(EntitlementState::CloudDisabled, |cloud| {
        entitle(cloud).map_or(EntitlementState::Pending, |own| EntitlementState::Decided(own.into()))
    })
}

/// Returns the state of a pod in `realServer` at one cloud, or [`EntitlementState::CloudDisabled`] if the cloud is disabled.
fn real_server_state<C, E>(cloud: Option<&Arc<C>>) -> EntitlementState<Arc<E>> {
    cloud.map_or(EntitlementState::CloudDisabled, |_| EntitlementState::RealServer)
}
