//! Starts the configured identity strategy. A running strategy has a [`PodResolver`], which finds the pod of a connection, and
//! tasks that keep the agent's data about pods current.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::attestation::{EgressAddresses, EgressFinder, StaticPod, StaticPodsByAddress};
use anyhow::Context;
use ipnet::IpNet;
use seawall_clouds::entitlements::Entitlements;
use seawall_clouds::pod::PodEntry;
use seawall_clouds::{Clouds, CloudsConfig, CurrentClouds, EntitlementRequest, LifetimeFloorState};
use seawall_cluster::{ClusterClient, PodSnapshot, WatchThread};
use seawall_core::kubernetes_events::PodEventRecorder;
use seawall_core::shutdown::{self, StopSignal, Stopper};
use seawall_core::{Clock, LifetimeFloor, PodUid, ServiceAccount};
use tokio::runtime::Runtime;

use super::cluster_attester::{AttesterPodView, ClusterAttester};
use super::config::{ClusterIdentityConfig, IdentityConfig};
use super::entitlement_swap;
use super::entitlement_swap::{EntitlementStore, SwapCommandReceiver};
use super::pod_registry::PodRegistry;
use super::pod_resolver::{PodResolver, SelfProbeSourceAddress};
use super::reconcile::PodReconciler;
use super::redirected_connections::{KernelRecords, LoggedRoutes};

/// An identity strategy that has read its files but has not started yet.
#[derive(Debug)]
pub struct IdentityStrategy(Kind);

#[derive(Debug)]
enum Kind {
    File(StaticPodsByAddress),
    Cluster(Box<seawall_cluster::ClusterConfig>, ClusterStrategy),
    Anyone,
}

/// A strategy that identifies the pods reported by the API server.
#[derive(Clone, Debug)]
enum ClusterStrategy {
    SourceIp,
    Kernel(KernelStrategy),
}

/// The settings of the `kernel` strategy.
#[derive(Clone, Debug)]
struct KernelStrategy {
    /// The kernel's records of connections; `None` until [`IdentityStrategy::with_kernel_records`] adds them.
    records: Option<KernelRecords>,
    /// The ServiceAccounts of trusted proxies.
    trusted_proxies: Arc<[ServiceAccount]>,
    /// The source addresses of pods that the API server does not report.
    egress_ranges: Vec<IpNet>,
}

impl KernelStrategy {
    fn over(self, pods: seawall_cluster::NodePods, clock: &Clock) -> anyhow::Result<ClusterAttester> {
        let Self { records, trusted_proxies, egress_ranges } = self;
        let records = records.context("the kernel's connection records are not open")?;
        let pods = AttesterPodView::new(pods, trusted_proxies);
        let egress = if egress_ranges.is_empty() {
            None
        } else {
            let routes = LoggedRoutes::open(clock.clone())?;
            let finder = EgressFinder::new(routes, pods.clone(), clock.clone());
            Some(
                EgressAddresses::start(egress_ranges, finder)
                    .context("cannot start the thread for routes")?,
            )
        };
        Ok(ClusterAttester::by_kernel_records(pods, records, egress))
    }
}

impl ClusterStrategy {
    /// Creates this strategy's attester for the pods that the API server reports.
    fn over(self, pods: seawall_cluster::NodePods, clock: &Clock) -> anyhow::Result<ClusterAttester> {
        match self {
            Self::SourceIp => Ok(ClusterAttester::by_source_ip(pods)),
            Self::Kernel(kernel) => kernel.over(pods, clock),
        }
    }
}

impl IdentityStrategy {
    /// Reads the configured strategy, and the identity file if the strategy is `static`. [`Self::start`] starts the strategy
    /// later.
    ///
    /// # Errors
    /// The identity file cannot be read or has mistakes; the error lists every mistake.
    pub fn load(identity: &IdentityConfig, clouds: &CloudsConfig) -> anyhow::Result<Self> {
        Ok(Self(match identity {
            IdentityConfig::Static { file } => {
                Kind::File(StaticPodsByAddress::load(file, &CloudsConfig::identity_file_keys())?)
            }
            IdentityConfig::SourceIp(section) => {
                Kind::Cluster(cluster(section, clouds), ClusterStrategy::SourceIp)
            }
            IdentityConfig::Kernel(section) => Kind::Cluster(
                cluster(&section.cluster, clouds),
                ClusterStrategy::Kernel(KernelStrategy {
                    records: None,
                    trusted_proxies: section.trusted_proxies.as_slice().into(),
                    egress_ranges: section.egress_ranges.clone(),
                }),
            ),
            IdentityConfig::Anyone => Kind::Anyone,
        }))
    }

    /// Checks, for the command `check`, that the credentials for the API server can be read. Sends no request.
    ///
    /// # Errors
    /// The credentials cannot be read.
    pub fn check_cluster_credentials(&self, control: &Runtime) -> anyhow::Result<()> {
        if let Kind::Cluster(cluster, _) = &self.0 {
            control
                .block_on(ClusterClient::create_with_watch_thread((**cluster).clone(), Clock::system()))?;
        }
        Ok(())
    }

    /// Returns the strategy's name in the configuration.
    pub fn name(&self) -> &'static str {
        match &self.0 {
            Kind::File(_) => "static",
            Kind::Cluster(_, ClusterStrategy::SourceIp) => "source-ip",
            Kind::Cluster(_, ClusterStrategy::Kernel(..)) => "kernel",
            Kind::Anyone => "anyone",
        }
    }

    /// Adds the kernel's records of connections to the `kernel` strategy. Leaves other strategies unchanged.
    pub fn with_kernel_records(self, records: Option<KernelRecords>) -> Self {
        match self.0 {
            Kind::Cluster(cluster, ClusterStrategy::Kernel(kernel)) => {
                let kernel = KernelStrategy { records, ..kernel };
                Self(Kind::Cluster(cluster, ClusterStrategy::Kernel(kernel)))
            }
            other => Self(other),
        }
    }

    /// Starts the strategy. If the strategy reads pods from the API server, the returned [`ClusterThread`] watches them. All
    /// other tasks run on `control`.
    ///
    /// # Errors
    /// The credentials for the API server cannot be read. An unreachable API server is not an error.
    pub fn start(
        self,
        clouds: &Arc<CurrentClouds>,
        probe: SelfProbeSourceAddress,
        clock: &Clock,
        control: &Runtime,
        stopper: &Stopper,
        orders: SwapCommandReceiver,
    ) -> anyhow::Result<(RunningIdentityStrategy, Option<ClusterThread>)> {
        match self.0 {
            Kind::Anyone => {
                control.spawn(entitlement_swap::run_commands(StaticPods::default(), orders));
                Ok((RunningIdentityStrategy::fixed(PodResolver::for_anyone(probe), clouds.clone()), None))
            }
            Kind::File(identity) => {
                let pods = StaticPods::of(&identity, &clouds.current());
                let callers = PodResolver::with_attestation(
                    Arc::new(identity.attestation()),
                    pods.roster.clone(),
                    probe,
                );
                control.spawn(entitlement_swap::run_commands(pods, orders));
                Ok((RunningIdentityStrategy::fixed(callers, clouds.clone()), None))
            }
            Kind::Cluster(cluster, way) => {
                let (who, hearing, follower) =
                    RunningIdentityStrategy::of_cluster(*cluster, way, clouds, probe, clock, control)?;
                Ok((who, Some(ClusterThread::start(hearing, follower, orders, stopper)?)))
            }
        }
    }
}

/// Holds the fixed pods of an identity file. Only the pods' entitlements change. The `anyone` strategy has no pods here.
#[derive(Debug, Default)]
struct StaticPods {
    roster: Arc<PodRegistry>,
    /// The file's entry for each pod, by the pod's UID.
    attested: BTreeMap<PodUid, Arc<StaticPod>>,
}

impl StaticPods {
    fn of(identity: &StaticPodsByAddress, clouds: &Clouds) -> Self {
        let caller = |(basis, attested): (_, &Arc<StaticPod>)| {
            let entitlements = entitle(clouds, attested, &Entitlements::default());
            PodEntry::new(attested.pod.clone(), basis, entitlements)
        };
        let roster = PodRegistry::with_fixed_pods(identity.pods().map(caller));
        let attested = identity.pods().map(|(_, attested)| (attested.pod.uid.clone(), attested.clone()));
        Self { roster, attested: attested.collect() }
    }
}

impl EntitlementStore for StaticPods {
    fn pods(&self) -> Vec<Arc<PodEntry>> {
        self.roster.pods()
    }

    fn entitle(&self, place: usize, clouds: &Clouds, before: &Entitlements) -> Entitlements {
        let pods = self.roster.pods();
        let attested = pods.get(place).and_then(|caller| self.attested.get(&caller.pod.uid));
        attested.map(|attested| entitle(clouds, attested, before)).unwrap_or_default()
    }

    fn wake(&self) {
        self.roster.publish(self.roster.pods().into());
    }
}

/// Returns a warning if the API server reports a pod's address that is in one of these ranges: the agent then needs a route to it, which no
/// node with a bridge has.
fn reported_address_in(ranges: &[IpNet], pods: &PodSnapshot) -> Option<String> {
    let own = pods.pods().filter(|record| !record.uses_host_network);
    let addresses = own.flat_map(|record| record.addresses.iter().map(move |address| (address, record)));
    let is_in = |address: &IpAddr| ranges.iter().any(|range| range.contains(address));
    let mut found = addresses.filter(|(address, _)| is_in(address));
    let (address, record) = found.next()?;
    let count = 1 + found.count();
    let (namespace, name) = (&record.pod.service_account.namespace, &record.pod.name);
    Some(format!(
        "identity.egressRanges contains {count} address(es) that Kubernetes reports, such as {address} of {namespace}/{name}: these pods are refused \
         (no_route_to_pod) unless the node has a route of its own to each. The ranges are for addresses that Kubernetes does not report"
    ))
}

fn entitle(clouds: &Clouds, attested: &StaticPod, before: &Entitlements) -> Entitlements {
    let applicant = EntitlementRequest {
        pod: &attested.pod,
        annotations: &attested.annotations,
        create_subject_token_source: &|| attested.subject_token_source.clone(),
        event_recorder: PodEventRecorder::default(),
        should_prefetch: false,
    };
    clouds.decide_entitlements(&applicant, before)
}

fn cluster(source: &ClusterIdentityConfig, clouds: &CloudsConfig) -> Box<seawall_cluster::ClusterConfig> {
    let defaults = seawall_cluster::ClusterConfig::for_node(source.node_name.clone());
    Box::new(seawall_cluster::ClusterConfig {
        kube_access: source.kube_access(),
        startup_taint: source.startup_taint.clone(),
        pod_token_lifetime: source.pod_token_lifetime,
        annotation_keys: clouds.annotation_keys(),
        ..defaults
    })
}

/// The thread that watches the API server and updates the registry of pods. The thread runs no other task, because other work
/// would delay the identification of new pods. If the thread fails, the agent ends.
#[derive(Debug)]
pub struct ClusterThread {
    end: Stopper,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl ClusterThread {
    fn start(
        hearing: WatchThread,
        follower: PodReconciler,
        orders: SwapCommandReceiver,
        stopper: &Stopper,
    ) -> anyhow::Result<Self> {
        Self::spawn(stopper, move |mut end| {
            hearing
                .run(follower.run(orders), end.wait())
                .context("the thread that watches the API server ended")
        })
    }

    fn spawn(
        stopper: &Stopper,
        body: impl FnOnce(StopSignal) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        // The drain (the last requests at shutdown) does not wait for this thread, because these requests still need the view
        // of pods.
        let (alive, _) = shutdown::thread_guards(1, stopper);
        let (end, ended) = shutdown::stop_channel();
        let body = move || {
            let _alive = alive;
            body(ended)
        };
        let thread = std::thread::Builder::new()
            .name("cluster".into())
            .spawn(body)
            .context("cannot start the cluster thread")?;
        Ok(Self { end, thread })
    }

    /// Stops the thread and waits for its end. Call this function after the agent has answered its last request.
    ///
    /// # Errors
    /// The thread ended by itself before this call.
    pub fn stop_and_join(self) -> anyhow::Result<()> {
        self.end.stop();
        self.thread.join().map_err(|_| anyhow::anyhow!("the cluster thread panicked"))?
    }
}

/// The running identity strategy: the pod resolver and the cluster client.
#[derive(Debug)]
pub struct RunningIdentityStrategy {
    /// Resolves connections to pods.
    pub resolver: Arc<PodResolver>,
    /// The client of the API server, if the strategy reads pods from the API server.
    pub cluster_client: Option<Arc<ClusterClient>>,
    pod_token_lifetime: Option<Duration>,
    /// The source addresses at which only the node's routes name a pod.
    egress_ranges: Vec<IpNet>,
    clouds: Arc<CurrentClouds>,
}

impl RunningIdentityStrategy {
    fn fixed(callers: PodResolver, clouds: Arc<CurrentClouds>) -> Self {
        Self {
            resolver: Arc::new(callers),
            cluster_client: None,
            pod_token_lifetime: None,
            egress_ranges: Vec::new(),
            clouds,
        }
    }

    fn of_cluster(
        config: seawall_cluster::ClusterConfig,
        way: ClusterStrategy,
        clouds: &Arc<CurrentClouds>,
        probe: SelfProbeSourceAddress,
        clock: &Clock,
        control: &Runtime,
    ) -> anyhow::Result<(Self, WatchThread, PodReconciler)> {
        let pod_token_lifetime = Some(config.pod_token_lifetime);
        let (cluster, hearing) =
            control.block_on(ClusterClient::create_with_watch_thread(config, clock.clone()))?;
        let cluster = Arc::new(cluster);
        let roster = Arc::<PodRegistry>::default();
        let egress_ranges = match &way {
            ClusterStrategy::Kernel(kernel) => kernel.egress_ranges.clone(),
            ClusterStrategy::SourceIp => Vec::new(),
        };
        let attester = way.over(cluster.pods(), clock)?;
        let callers = Arc::new(PodResolver::with_attestation(attester.attestation(), roster.clone(), probe));
        let follower = PodReconciler::new(cluster.clone(), roster, clouds.current(), attester);
        let who = Self {
            resolver: callers,
            cluster_client: Some(cluster),
            pod_token_lifetime,
            egress_ranges,
            clouds: clouds.clone(),
        };
        who.floor_remarks().iter().for_each(|remark| tracing::warn!("{remark}"));
        Ok((who, hearing, follower))
    }

    /// Returns the reason why the agent has no list of the node's pods yet. Returns `None` once the API server has sent the
    /// list, or if the strategy does not read pods from the API server.
    pub fn unready_reason(&self) -> Option<String> {
        let cluster = self.cluster_client.as_ref()?;
        (!cluster.pods().snapshot().has_complete_pod_list()).then(|| unready_text(&troubles(cluster)))
    }

    /// Returns warnings for the operator about a token lifetime that is too short and about interrupted watches. The agent
    /// still serves requests.
    pub fn warnings(&self) -> Vec<String> {
        let mut remarks = self.floor_remarks();
        if let Some(cluster) = &self.cluster_client {
            remarks.extend(troubles(cluster));
            remarks.extend(reported_address_in(&self.egress_ranges, &cluster.pods().snapshot()));
        }
        remarks
    }

    /// Returns the state of each cloud's floor, which is the least remaining lifetime of the cloud's credentials. The flag is
    /// true if `identity.podTokenLifetime` is long enough to keep the credentials above the floor.
    pub fn credential_lifetime_floor_states(&self) -> Vec<(LifetimeFloorState, bool)> {
        let can_be_kept =
            |state: &LifetimeFloorState| match (self.pod_token_lifetime, state.token_bound_floor) {
                (Some(lifetime), Some(floor)) => is_long_enough(lifetime, floor),
                _ => true,
            };
        let floors = self.clouds.current().floor_states().into_iter();
        floors
            .map(|state| {
                let can = can_be_kept(&state);
                (state, can)
            })
            .collect()
    }

    fn floor_remarks(&self) -> Vec<String> {
        let remark = |(state, can_be_kept): (LifetimeFloorState, bool)| {
            let (floor, lifetime) =
                state.token_bound_floor.filter(|_| !can_be_kept).zip(self.pod_token_lifetime)?;
            Some(format!(
                "identity.podTokenLifetime of {} s is too short: credentials of {} expire with the pod's Kubernetes token, \
                 so their remaining lifetime falls below the floor of {} s. Set a longer identity.podTokenLifetime",
                lifetime.as_secs(),
                state.cloud.as_str(),
                floor.min_remaining.as_secs()
            ))
        };
        self.credential_lifetime_floor_states().into_iter().filter_map(remark).collect()
    }
}

/// True if Kubernetes tokens live long enough to keep credentials above this floor (their least remaining lifetime).
///
/// A cloud can let a credential expire together with the Kubernetes token that the agent exchanged for it. The agent renews a
/// token when one fifth of its lifetime is left, as the kubelet does. So a new credential can have as little as one fifth of
/// `token` left, and this time must be long enough for the floor.
fn is_long_enough(token: Duration, floor: LifetimeFloor) -> bool {
    floor.is_reachable_with(token / 5)
}

/// Returns the reason why the agent is not ready. `troubles` describes the interrupted watches and can be empty.
fn unready_text(troubles: &[String]) -> String {
    let fact = "the agent has not received this node's pods from the API server yet";
    if troubles.is_empty() { fact.to_owned() } else { format!("{fact}: {}", troubles.join("; ")) }
}

/// Returns a description of each watch that is interrupted now.
fn troubles(cluster: &ClusterClient) -> Vec<String> {
    let trouble = |watch: seawall_cluster::WatchHealth| {
        let trouble = watch.current_failure?;
        let age = watch.time_since_activity.map_or("nothing received yet".to_owned(), |age| {
            format!("last received {} s ago", age.as_secs())
        });
        Some(format!("the watch of {} is interrupted ({age}): {trouble}", watch.kind))
    };
    cluster.health_per_watch().into_iter().filter_map(trouble).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_agent_ends_with_its_cluster_thread_however_that_ends() {
        let panics = |_| std::panic::resume_unwind(Box::new("died"));
        let fails = |_| Err(anyhow::anyhow!("a watch has ended"));
        let (stopper, mut stop) = shutdown::stop_channel();
        let thread = ClusterThread::spawn(&stopper, panics).unwrap();
        stop.wait().await;
        assert!(thread.stop_and_join().unwrap_err().to_string().contains("panic"));
        let (stopper, mut stop) = shutdown::stop_channel();
        let thread = ClusterThread::spawn(&stopper, fails).unwrap();
        stop.wait().await;
        assert_eq!(thread.stop_and_join().unwrap_err().to_string(), "a watch has ended");
    }

    #[tokio::test]
    async fn the_cluster_thread_outlives_the_stop_and_ends_when_told() {
        let (stopper, stop) = shutdown::stop_channel();
        let until_ended = |mut end: StopSignal| {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(end.wait());
            Ok(())
        };
        let thread = ClusterThread::spawn(&stopper, until_ended).unwrap();
        stopper.stop();
        assert!(
            stop.has_begun() && !thread.thread.is_finished(),
            "the agent still needs the thread during the drain"
        );
        thread.stop_and_join().unwrap();
    }

    #[test]
    fn an_unready_reason_names_the_interrupted_watches_if_there_are_any() {
        let fact = "the agent has not received this node's pods from the API server yet";
        assert_eq!(unready_text(&[]), fact);
        let troubles = ["pods: timeout".to_owned(), "nodes: timeout".to_owned()];
        assert_eq!(unready_text(&troubles), format!("{fact}: pods: timeout; nodes: timeout"));
    }

    #[test]
    fn an_hour_of_a_kubernetes_token_meets_the_floor_and_less_does_not() {
        let keeps =
            |seconds| is_long_enough(Duration::from_secs(seconds), seawall_broker::google::LIFETIME_FLOOR);
        assert!(keeps(3600));
        assert!(!keeps(3000));
        assert!(!keeps(600));
    }
}
