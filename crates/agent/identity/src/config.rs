//! Reads the `identity` section: the strategy that identifies pods, and the settings of that strategy.

use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use seawall_clouds::CloudsConfig;
use seawall_cluster::{ClientConfigSource, NodeName};
use seawall_config::values::{
    parse_dns_name, parse_duration, parse_service_account, resolve_path, serialize_as_texts,
    serialize_duration,
};
use seawall_config::{DocumentNode, DocumentTable};
use seawall_core::cloud::DialectName;
use seawall_core::{PodUid, ServiceAccount};
use serde::{Serialize, Serializer};

use super::downward_api::DownwardApi;
use super::node_addresses::NodeAddresses;
use super::redirect_target;

/// The strategy that identifies clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "strategy", rename_all = "kebab-case")]
pub enum IdentityConfig {
    /// Identifies pods by their source addresses, which a file lists.
    Static {
        /// The path of the identity file.
        file: PathBuf,
    },
    /// Identifies pods by their source addresses, which the API server reports.
    SourceIp(Box<ClusterIdentityConfig>),
    /// Identifies pods by their source addresses and by the kernel's records of which pod opened each connection.
    Kernel(Box<KernelIdentityConfig>),
    /// Does not identify clients: all clients get the same responses.
    Anyone,
}

impl IdentityConfig {
    /// True if the agent reads pods and their annotations from the API server.
    pub fn uses_cluster(&self) -> bool {
        match self {
            Self::Static { .. } | Self::Anyone => false,
            Self::SourceIp(_) | Self::Kernel(_) => true,
        }
    }

    /// Returns the source of the API server's address and credentials, or `None` if the agent uses no API server.
    pub fn kube_access(&self) -> Option<ClientConfigSource> {
        match self {
            Self::Static { .. } | Self::Anyone => None,
            Self::SourceIp(cluster) => Some(cluster.kube_access()),
            Self::Kernel(kernel) => Some(kernel.cluster.kube_access()),
        }
    }
}

/// The settings of the strategies `source-ip` and `kernel`, which read pods from the API server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentityConfig {
    /// The name of the node whose pods this agent serves.
    #[serde(serialize_with = "node_name")]
    pub node_name: NodeName,
    /// The kubeconfig for the API server; with `None`, the agent uses the in-cluster credentials.
    pub kubeconfig: Option<PathBuf>,
    /// The lifetime that the agent requests for the pods' Kubernetes tokens.
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) pod_token_lifetime: Duration,
    /// The key of the taint that the agent removes from the node once the agent is ready.
    pub startup_taint: Option<String>,
}

impl ClusterIdentityConfig {
    /// Returns the source of the API server's address and credentials.
    pub(crate) fn kube_access(&self) -> ClientConfigSource {
        self.kubeconfig.clone().map_or(ClientConfigSource::InCluster, ClientConfigSource::Kubeconfig)
    }
}

/// The settings of the `kernel` strategy, which uses the pods from the API server and the kernel's records of connections.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelIdentityConfig {
    /// The settings for reading pods from the API server.
    #[serde(flatten)]
    pub cluster: ClusterIdentityConfig,
    /// The ServiceAccounts of proxies that connect for other pods, in these pods' network namespaces.
    #[serde(serialize_with = "serialize_as_texts")]
    pub trusted_proxies: Vec<ServiceAccount>,
    /// The ranges of source addresses that pods have beside those that the API server reports.
    #[serde(serialize_with = "serialize_as_texts")]
    pub egress_ranges: Vec<IpNet>,
    /// The paths of the redirect's eBPF programs and of the pods' cgroups.
    pub redirect: RedirectConfig,
    /// The UID of the agent's own pod.
    #[serde(skip)]
    pub own_pod_uid: PodUid,
    /// The node's addresses. Pods connect to these addresses if a listener listens on all addresses (`0.0.0.0` or `::`).
    #[serde(skip)]
    pub node_addresses: NodeAddresses,
}

/// The paths at which this process finds the redirect's eBPF programs and the pods' cgroups.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RedirectConfig {
    /// The mount point of a BPF file system.
    pub bpffs: PathBuf,
    /// The mount point of the cgroup tree.
    pub cgroup_root: PathBuf,
    /// The path of the pods' cgroup below `cgroup_root`. If it is `None`, the agent searches the usual paths.
    pub kubepods_cgroup: Option<PathBuf>,
}

fn node_name<S: Serializer>(node: &NodeName, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(node.as_str())
}

/// The name of a strategy in the configuration file.
#[derive(Clone, Copy, PartialEq)]
enum StrategyName {
    Static,
    SourceIp,
    Kernel,
    Anyone,
}

impl StrategyName {
    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "static" => Self::Static,
            "source-ip" => Self::SourceIp,
            "kernel" => Self::Kernel,
            "anyone" => Self::Anyone,
            _ => return None,
        })
    }
}

impl IdentityConfig {
    /// Reads the section, which is `table`. `downward` provides the values that differ between nodes, such as the node's name. `listen` contains
    /// each listener with the dialects (clouds' metadata APIs) that it serves. `egress_ranges` comes from [`read_egress_ranges`].
    pub fn read(
        root: &DocumentTable<'_>,
        table: &DocumentTable<'_>,
        clouds: &CloudsConfig,
        base: &Path,
        listen: &[(SocketAddr, &[DialectName])],
        downward: &DownwardApi,
        egress_ranges: Vec<IpNet>,
    ) -> Self {
        let strategy = table.node_of_key("strategy");
        let wanted = strategy.text("static, source-ip, kernel or anyone", StrategyName::read);
        let file = table.node_of_key("file").text("the path of the identity file", |t| resolve_path(t, base));
        // Read the keys of all strategies, even of strategies that are not selected, so that `check` reports every mistake.
        let cluster = ClusterIdentityConfig::read(table, base, downward, wanted);
        let redirect = RedirectConfig::read(&table.node_of_key("redirect").as_table());
        let proxies = table.node_of_key("trustedProxies").list();
        let trusted_proxies: Vec<_> =
            proxies.iter().filter_map(|item| item.text(SERVICE_ACCOUNT, parse_service_account)).collect();
        if !egress_ranges.is_empty() && wanted.is_some_and(|wanted| wanted != StrategyName::Kernel) {
            table.node_of_key("egressRanges").reject("no range, because the strategy is not kernel");
        }
        match (wanted, cluster) {
            (Some(StrategyName::Anyone), _) => {
                // The agent must identify a pod before it gives credentials, and `anyone` identifies no pod.
                if clouds.needs_pod_identity() {
                    strategy.reject(
                        "static, source-ip or kernel, because the agent gives credentials only to pods that it identifies",
                    );
                }
                Self::Anyone
            }
            (Some(StrategyName::SourceIp), Some(cluster)) => Self::SourceIp(Box::new(cluster)),
            (Some(StrategyName::Kernel), Some(cluster)) => Self::Kernel(Box::new(KernelIdentityConfig {
                trusted_proxies,
                egress_ranges,
                ..KernelIdentityConfig::read(root, &strategy, cluster, redirect, listen, downward)
            })),
            // Either the strategy is `static`, or the section has a mistake such as a missing node name. In the second case no
            // code uses this value.
            _ => Self::Static { file: file.unwrap_or_else(|| base.join("pods.yaml")) },
        }
    }
}

/// The expected format of an entry in `trustedProxies`.
const SERVICE_ACCOUNT: &str = "a ServiceAccount as namespace/name";

/// The expected format of an entry in `egressRanges`.
const EGRESS_RANGE: &str = "a range of addresses such as 169.254.172.0/22, without bits after its prefix";

/// Returns the range if it can contain the source address of a connection: a mapped one cannot, because the agent compares IPv4 addresses as such.
fn egress_range(text: &str) -> Option<IpNet> {
    let range: IpNet = text.parse().ok()?;
    let is_mapped = matches!(range.addr(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    (range.addr() == range.network() && range.prefix_len() > 0 && !is_mapped).then_some(range)
}

/// Reads `identity.egressRanges`, on which the addresses of the listeners depend ([`DownwardApi::with_address_for`]).
pub fn read_egress_ranges(identity: &DocumentTable<'_>) -> Vec<IpNet> {
    let items = identity.node_of_key("egressRanges").list();
    items.iter().filter_map(|item| item.text(EGRESS_RANGE, egress_range)).collect()
}

/// The shortest lifetime of a token that the API server accepts (kubernetes, pkg/apis/authentication/validation).
const SHORTEST_TOKEN: Duration = Duration::from_secs(600);

impl ClusterIdentityConfig {
    fn read(
        table: &DocumentTable<'_>,
        base: &Path,
        downward: &DownwardApi,
        wanted: Option<StrategyName>,
    ) -> Option<Self> {
        let name = table.node_of_key("nodeName");
        let node = name.text("the node's name", NodeName::parse);
        let node = node.or_else(|| downward.node_name.as_deref().and_then(NodeName::parse));
        let is_wanted = matches!(wanted, Some(StrategyName::SourceIp | StrategyName::Kernel));
        if is_wanted && node.is_none() && !name.is_present() {
            name.reject(format!(
                "the node's name, here or in the environment variable {}",
                DownwardApi::NODE_NAME_VARIABLE
            ));
        }
        let lifetime = table.node_of_key("podTokenLifetime").text("a duration from 10m to 24h", |text| {
            parse_duration(text).filter(|span| *span >= SHORTEST_TOKEN)
        });
        let kubeconfig =
            table.node_of_key("kubeconfig").text("the path of a kubeconfig", |t| resolve_path(t, base));
        let startup_taint =
            table.node_of_key("startupTaint").text("a taint's key such as seawall.dev/not-ready", taint_key);
        table.reject_moved("passthrough", "this list is now realServer, at the top of the file");
        let pod_token_lifetime = lifetime.unwrap_or(Duration::from_secs(3600));
        node.map(|node_name| Self { node_name, kubeconfig, pod_token_lifetime, startup_taint })
    }
}

impl KernelIdentityConfig {
    fn read(
        root: &DocumentTable<'_>,
        strategy: &DocumentNode<'_>,
        cluster: ClusterIdentityConfig,
        redirect: RedirectConfig,
        listen: &[(SocketAddr, &[DialectName])],
        downward: &DownwardApi,
    ) -> Self {
        if downward.own_pod_uid.is_none() {
            strategy.reject(format!(
                "the UID of the agent's own pod in the environment variable {}",
                DownwardApi::POD_UID_VARIABLE
            ));
        }
        // If a listener has port 0, the kernel chooses the listener's port later. `AgentAddress` cannot hold port 0, so this
        // check uses port 1 instead.
        let spoken = listen.iter().map(|(address, dialects)| {
            let port = address.port().max(1);
            (SocketAddr::new(address.ip(), port), *dialects)
        });
        if let Err(reason) = redirect_target::agent_address(spoken, downward.node_addresses) {
            root.node_of_key("listen").reject(format!("{reason}, because the strategy is kernel"));
        }
        let own = downward.own_pod_uid.clone().unwrap_or_else(|| PodUid("".into()));
        Self {
            cluster,
            trusted_proxies: Vec::new(),
            egress_ranges: Vec::new(),
            redirect,
            own_pod_uid: own,
            node_addresses: downward.node_addresses,
        }
    }
}

impl RedirectConfig {
    fn read(table: &DocumentTable<'_>) -> Self {
        let absolute = |key: &'static str, default: &str| {
            let is_absolute = |text: &str| text.starts_with('/').then(|| PathBuf::from(text));
            table.node_of_key(key).text("an absolute path", is_absolute).unwrap_or_else(|| default.into())
        };
        let is_plain = |path: &PathBuf| path.components().all(|part| matches!(part, Component::Normal(_)));
        let below = |text: &str| Some(PathBuf::from(text)).filter(is_plain);
        let kubepods_cgroup = table
            .node_of_key("kubepodsCgroup")
            .text("a path below the root of the cgroup tree, such as kubepods.slice", below);
        Self {
            bpffs: absolute("bpffs", "/sys/fs/bpf"),
            cgroup_root: absolute("cgroupRoot", "/sys/fs/cgroup"),
            kubepods_cgroup: kubepods_cgroup.filter(|path| !path.as_os_str().is_empty()),
        }
    }
}

/// Returns the text if it is a qualified name (apimachinery `IsQualifiedName`): an optional DNS prefix and a name.
fn taint_key(text: &str) -> Option<String> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let fits = (1..=63).contains(&name.len()) && name.bytes().all(plain);
    (fits && prefix.is_none_or(|prefix| parse_dns_name(prefix).is_some())).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_egress_range_is_one_from_which_a_pod_can_connect() {
        for good in ["169.254.172.0/22", "10.0.0.7/32", "fd00::ac:0/118"] {
            assert!(egress_range(good).is_some(), "{good}");
        }
        for wrong in
            ["", "169.254.172.0", "169.254.172.1/22", "0.0.0.0/0", "::/0", "::ffff:169.254.172.0/118", "a/8"]
        {
            assert!(egress_range(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_taints_key_is_one_that_kubernetes_takes() {
        for good in ["seawall.dev/not-ready", "not-ready", "a"] {
            assert!(taint_key(good).is_some(), "{good}");
        }
        for wrong in ["", "/", "Seawall.dev/x", "seawall.dev/", "a b", "a/b/c"] {
            assert!(taint_key(wrong).is_none(), "{wrong:?}");
        }
    }
}
