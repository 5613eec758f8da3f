//! Defines the errors of attaching, reading and removing the redirect. If the operator can fix the cause, the error says how.
//! Operators and logs see these errors; pods do not.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::attach_points::Hook;

/// An error of the redirect.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel lacks a feature that the programs need.
    #[error(
        "the kernel is {have}, and the redirect needs 5.11, or an older one with its features; use the mode nft"
    )]
    KernelTooOld {
        /// The kernel's version.
        have: String,
    },
    /// The kernel does not tell the programs the cgroup of each pod's sockets.
    #[error(
        "the kernel is {have}, and net_cls or net_prio of cgroup v1 is in use: before 5.15 this hides pods from the redirect; boot with cgroup v2 alone, or use the mode nft"
    )]
    CgroupV1HidesPods {
        /// The kernel's version.
        have: String,
    },
    /// This process lacks the capabilities that attaching needs.
    #[error("this process lacks {missing}; a container needs `capabilities: {{add: [BPF, NET_ADMIN]}}`")]
    MissingCapability {
        /// The names of the missing capabilities.
        missing: String,
    },
    /// The path is not on a BPF file system, so nothing can be pinned there.
    #[error("{path} is not a BPF file system; mount a BPF file system there (`mount -t bpf bpf PATH`), or mount the host's /sys/fs/bpf into the container", path = .path.display())]
    NoBpffs {
        /// The given path.
        path: PathBuf,
    },
    /// Another process holds the lock of the pins.
    #[error("another process holds the lock of {path} because it changes the redirect; try again when that process is done", path = .path.display())]
    PinsLocked {
        /// The given path.
        path: PathBuf,
    },
    /// The path contains no cgroup v2 tree.
    #[error("neither {path} nor `unified` below it is a cgroup2 tree: with cgroup v1 alone the kernel cannot tell pods apart; use the mode nft", path = .path.display())]
    NotCgroup2 {
        /// The given path.
        path: PathBuf,
    },
    /// The tree is a container's view of the node's tree.
    #[error("{path} is not the root of the node's cgroups but a container's view (its inode is {inode}, not 1); mount the host's /sys/fs/cgroup into the container", path = .path.display())]
    NotTreeRoot {
        /// The given path.
        path: PathBuf,
        /// The inode of the path.
        inode: u64,
    },
    /// The kubelet's parent cgroup of pods does not exist.
    #[error("cannot find the parent cgroup of pods below {tree} (tried {tried}); name the group with --kubepods-cgroup (the value redirect.kubepodsCgroup of the chart), or check the kubelet's --cgroup-root and --cgroups-per-qos; if pods have cgroup v1 groups only, use the mode nft", tree = .tree.display())]
    NoKubepods {
        /// The root of the tree.
        tree: PathBuf,
        /// The paths that were tried in the tree.
        tried: String,
    },
    /// Another program conflicts with the redirect, because the kernel would run only one of the two.
    /// The program is attached to the pods' parent cgroup or to one of its ancestors.
    #[error("another program is attached to {group} for {hook} without BPF_F_ALLOW_MULTI, so the redirect cannot be attached; detach that program or attach it with BPF_F_ALLOW_MULTI", group = .group.display())]
    ConflictingProgram {
        /// The cgroup with the other program.
        group: PathBuf,
        /// The hook of the other program.
        hook: Hook,
    },
    /// A pinned map has the expected name but another layout.
    #[error(
        "the pinned map {map} has the sizes {found} (key+value in bytes), but this version needs {wanted}; remove the map (`redirect detach`) and attach again"
    )]
    MapLayoutMismatch {
        /// The map's name.
        map: &'static str,
        /// The sizes of its key and value in bytes.
        found: String,
        /// The expected sizes of the key and the value in bytes.
        wanted: String,
    },
    /// The redirect is not attached, so there is nothing to read or write.
    #[error("nothing is pinned at {path}: the redirect is not attached; run `redirect attach`", path = .path.display())]
    NotAttached {
        /// The missing pin.
        path: PathBuf,
    },
    /// The agent's address lacks an IP address or a port.
    #[error("the agent's address is incomplete: the redirect needs an IP address and a port of the agent")]
    IncompleteAgentAddress,
    /// All listener slots for agents are taken.
    #[error("this node already has {agents} agents, the maximum")]
    TooManyAgents {
        /// The number of listener slots.
        agents: u16,
    },
    /// The programs did not record the agent's own connection.
    #[error(
        "the redirect cannot identify hostNetwork pods: the kernel did not record the agent's own connection, so the agent does not run in a pod of this node"
    )]
    NotInPod,
    /// The given address of the node is not an address of this process's network.
    #[error(
        "{address} is not an address of the network that this process runs on ({source}): run it on the node's network (`hostNetwork: true`) with an address of the node, or give --host-network-pods=seawall"
    )]
    NotOnNodeNetwork {
        /// The given address.
        address: IpAddr,
        /// The cause.
        source: io::Error,
    },
    /// The programs saw no socket of this process, so the node's network is unknown.
    #[error(
        "the eBPF programs do not see this process's sockets, so they cannot recognise the node's network: run it in a cgroup below the pods' cgroup or below --conflict-check-root, or give --host-network-pods=seawall"
    )]
    UnknownNodeNetwork,
    /// The named pod has no cgroup.
    #[error("the pod {} has no cgroup on this node", .0.0)]
    NoPodCgroup(seawall_core::PodUid),
    /// The kernel rejected a program. The verifier's log contains the reason.
    #[error(
        "the kernel refuses the program for {hook}, because it lacks a feature or forbids it; use the mode nft: {source}"
    )]
    ProgramRejected {
        /// The program's hook.
        hook: Hook,
        /// The cause. Its text contains the verifier's log.
        source: Box<aya::programs::ProgramError>,
    },
    /// The eBPF object file could not be loaded, or its maps could not be created.
    #[error("cannot load the redirect's programs: {}", chain(.0))]
    LoadObjectFile(Box<aya::EbpfError>),
    /// A map could not be read or written.
    #[error("cannot use the map {map}: {}", chain(.source))]
    Map {
        /// The map's name.
        map: &'static str,
        /// The cause.
        source: Box<aya::maps::MapError>,
    },
    /// A system call failed.
    #[error("cannot {doing} {path}: {source}", path = .path.display())]
    SystemCall {
        /// The action that failed, as a verb.
        doing: &'static str,
        /// The path or other object of the action.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The kernel has no nf_tables, or not for both address families.
    #[error("the kernel has no nf_tables for IPv4 and IPv6 ({0}), so the drop rules cannot be loaded")]
    NoNfTables(io::Error),
    /// The kernel refused a request about netfilter rules.
    #[error("cannot {doing}: {source}")]
    Netfilter {
        /// The action that failed, as a verb.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The program `nft` is not installed here.
    #[error(
        "the program nft is not installed here; print the rules (`redirect print`) and load them where nft is installed"
    )]
    NoNft,
    /// The program `nft` rejected the rules.
    #[error("nft rejects the rules: {said}")]
    NftRulesRejected {
        /// The output of `nft`.
        said: String,
    },
}

/// Joins an error's whole chain of causes. The errors of the library aya contain the system's reason only in the chain.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

impl Error {
    /// Creates a function for `map_err` that adds the action and its object.
    pub(crate) fn for_system_call(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::SystemCall { doing, path, source }
    }

    /// Creates a function for `map_err` that adds the map's name.
    pub(crate) fn for_map(map: &'static str) -> impl FnOnce(aya::maps::MapError) -> Self {
        move |source| Self::Map { map, source: Box::new(source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_reason_is_told() {
        let source = aya::maps::MapError::CreateError {
            name: "callers".to_owned(),
            io_error: io::Error::from_raw_os_error(1),
        };
        let told = Error::for_map("callers")(source).to_string();
        assert!(told.contains("Operation not permitted"), "{told}");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let refusal = Error::NotCgroup2 { path: "/sys/fs/cgroup".into() };
        assert!(refusal.to_string().contains("use the mode nft"));
        let refusal = Error::NotTreeRoot { path: "/sys/fs/cgroup".into(), inode: 77 };
        assert!(refusal.to_string().contains("inode is 77"));
    }
}
