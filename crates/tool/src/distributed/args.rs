//! The flags of `--on`, as typed.

use std::str::FromStr;

use clap::ValueEnum;
use seawall_fleet::manifest::spec::{
    CpuQuantity, ImageName, MemoryQuantity, PullPolicy, ResourceName, Toleration, Volume, parse_label,
};

/// The flags that let pods send the load, and describe these pods.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "From many pods (--on kubernetes)")]
pub(crate) struct DistributedArgs {
    /// Send the load from pods of a Kubernetes cluster: kubernetes, or kubernetes:CONTEXT for a context of the kubeconfig
    #[arg(long, value_name = "WHERE")]
    pub(super) on: Option<LoadBackend>,
    /// Number of pods that share the load, 1 to 1000 [default: 1]
    #[arg(long, value_name = "N", requires = "on", value_parser = clap::value_parser!(u32).range(1..=MOST_PODS))]
    pub(super) pods: Option<u32>,
    /// With find: if the pods limit the load, start more pods, up to this number
    #[arg(long, value_name = "N", requires = "on", value_parser = clap::value_parser!(u32).range(1..=MOST_PODS))]
    pub(super) max_pods: Option<u32>,
    /// Image of this program in a registry that the cluster reaches (`make image` builds it)
    #[arg(long, value_name = "NAME", requires = "on")]
    pub(super) image: Option<ImageName>,
    /// When nodes pull the image: Always, IfNotPresent or Never [default: as Kubernetes decides]
    #[arg(long, value_name = "POLICY", requires = "on")]
    pub(super) image_pull_policy: Option<PullPolicy>,
    /// Namespace of the pods [default: the namespace of the context]
    #[arg(long, value_name = "NAME", requires = "on")]
    pub(super) namespace: Option<ResourceName>,
    /// Run pods only on nodes with this label; repeatable
    #[arg(long, value_name = "KEY=VALUE", requires = "on", value_parser = parse_label)]
    pub(super) node_selector: Vec<(String, String)>,
    /// Run pods also on nodes with this taint: `KEY[=VALUE][:EFFECT]`; repeatable
    #[arg(long, value_name = "TAINT", requires = "on")]
    pub(super) toleration: Vec<Toleration>,
    /// CPU request and limit of each pod, in cores [default: 1]
    #[arg(long, value_name = "CORES", requires = "on")]
    pub(super) cpu: Option<CpuQuantity>,
    /// Memory request and limit of each pod [default: 128Mi]
    #[arg(long, value_name = "SIZE", requires = "on")]
    pub(super) memory: Option<MemoryQuantity>,
    /// Volume for -output, one file per pod: pvc:CLAIM:/PATH (one directory per run) or emptyDir:/PATH (deleted with the pod)
    #[arg(long, value_name = "VOLUME", requires = "on")]
    pub(super) volume: Vec<Volume>,
    /// If a pod is lost: abort the load, or continue and report the pod's share as missing [default: continue]
    #[arg(long, value_name = "WHAT", requires = "on", hide_possible_values = true)]
    pub(super) on_pod_loss: Option<OnPodLoss>,
    /// Print the Kubernetes objects of the pods, for kubectl apply; contact no cluster and send nothing
    #[arg(long, requires = "on")]
    pub(super) dry_run: bool,
    /// Use the pods of an existing Job, such as a Job that --dry-run has printed, instead of creating a Job
    #[arg(long, value_name = "NAME", requires = "on", conflicts_with_all = [
        "pods", "max_pods", "image", "image_pull_policy", "node_selector", "toleration", "cpu", "memory", "volume", "dry_run",
    ])]
    pub(super) attach_job: Option<ResourceName>,
    /// Keep the Job and its pods' logs after the load [default: delete them]
    #[arg(long, requires = "on")]
    pub(super) keep_job: bool,
}

/// Most pods of a load: what one core merges (SPECIFICATION.md).
const MOST_PODS: i64 = 1000;

/// `--on`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LoadBackend {
    /// Pods of a cluster.
    Kubernetes {
        /// None: the kubeconfig's current one.
        context: Option<String>,
    },
    /// Processes of this machine, which do what pods do: to try it out without a cluster, and for tests.
    Processes,
}

impl FromStr for LoadBackend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "processes" {
            return Ok(Self::Processes);
        }
        let (kind, context) =
            text.split_once(':').map_or((text, None), |(kind, context)| (kind, Some(context)));
        let fits = kind == "kubernetes" && context != Some("");
        let malformed =
            || format!("{text:?} is not a value of --on: expected kubernetes or kubernetes:CONTEXT");
        fits.then(|| Self::Kubernetes { context: context.map(str::to_owned) }).ok_or_else(malformed)
    }
}

/// The values of `--on-pod-loss`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnPodLoss {
    /// The load ends.
    Abort,
    /// The other pods continue.
    Continue,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Args as _;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/kubernetes.md");

    #[test]
    fn the_page_lists_every_flag_and_none_that_does_not_exist() {
        let command = DistributedArgs::augment_args(clap::Command::new("it"));
        let flags: BTreeSet<_> =
            command.get_arguments().filter_map(|flag| Some(format!("--{}", flag.get_long()?))).collect();
        let listed =
            PAGE.lines().filter_map(|line| line.strip_prefix("| `--")?.split(['`', ' ', '[']).next());
        let listed: BTreeSet<_> = listed.map(|flag| format!("--{flag}")).collect();
        assert_eq!(listed, flags);
    }
}
