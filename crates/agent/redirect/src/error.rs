//! Why nothing was attached, read or removed, each with what to do about it. For operators and logs; no pod sees any of it.

use std::io;
use std::path::PathBuf;

use crate::attach_points::Hook;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel lacks what the programs use.
    #[error("the kernel is {have}, and the redirect needs 5.15; use the mode nft")]
    KernelTooOld {
        /// Its version.
        have: String,
    },
    /// This process may not do what attaching takes.
    #[error("this process lacks {missing}; a container needs `capabilities: {{add: [BPF, NET_ADMIN]}}`")]
    MissingCapability {
        /// What it lacks, by name.
        missing: String,
    },
    /// Nothing can be pinned there.
    #[error("{path} is no BPF file system; mount one there (`mount -t bpf bpf PATH`), or the host's /sys/fs/bpf into the container", path = .path.display())]
    NoBpffs {
        /// The place that was named.
        path: PathBuf,
    },
    /// Another process changes something there.
    #[error("another process holds the lock of {path} and changes what is attached; try again when it is done", path = .path.display())]
    Busy {
        /// The place that was named.
        path: PathBuf,
    },
    /// There are no control groups of version 2.
    #[error("neither {path} nor `unified` below it is a cgroup2 tree: with cgroup v1 alone the kernel cannot tell pods apart; use the mode nft", path = .path.display())]
    NotCgroup2 {
        /// The place that was named.
        path: PathBuf,
    },
    /// The tree is a container's part of the node's.
    #[error("{path} is not the root of the node's cgroups but a container's view (its inode is {inode}, not 1); mount the host's /sys/fs/cgroup into the container", path = .path.display())]
    NotTreeRoot {
        /// The place that was named.
        path: PathBuf,
        /// Its inode.
        inode: u64,
    },
    /// The kubelet's group of pods is not there.
    #[error("no group of pods below {tree}: tried {tried}; is --cgroup-root set, or --cgroups-per-qos off, or are pods in version 1's groups alone (then use the mode nft)?", tree = .tree.display())]
    NoKubepods {
        /// The tree.
        tree: PathBuf,
        /// What was looked for in it.
        tried: String,
    },
    /// A group around the pods' has a program that ours would switch off, or that keeps ours out.
    #[error("another program is attached to {group} for {hook} without BPF_F_ALLOW_MULTI: it and the redirect exclude each other", group = .group.display())]
    ConflictingProgram {
        /// The group.
        group: PathBuf,
        /// What it is attached to.
        hook: Hook,
    },
    /// What is pinned has another layout under the same name.
    #[error(
        "the map {map} that is pinned is not as this version makes it ({found}, not {wanted}); remove it (`redirect remove`) and attach again"
    )]
    MapLayout {
        /// Its name.
        map: &'static str,
        /// Sizes of key and value in bytes, as they are.
        found: String,
        /// As they should be.
        wanted: String,
    },
    /// Nothing is attached, so there is nothing to read or to write.
    #[error("nothing is pinned at {path}: the redirect is not attached (`redirect attach`)", path = .path.display())]
    NotAttached {
        /// The pin that was looked for.
        path: PathBuf,
    },
    /// No address, or no port, to send anybody to.
    #[error("a target needs an address and a port")]
    NoTarget,
    /// More agents than one and the next one.
    #[error("{agents} agents live on this node already")]
    TooManyAgents {
        /// How many.
        agents: u16,
    },
    /// The agent's own connection to itself was not written down.
    #[error(
        "the agent's own connection was not seen: it is not in a pod of this node, so hostNetwork pods cannot be told apart"
    )]
    NotInPod,
    /// A pod that was named has no group.
    #[error("no group of the pod {} is among those of the node's pods", .0.0)]
    NoPodCgroup(seawall_core::PodUid),
    /// The kernel refused a program. Its verifier says why.
    #[error("the kernel refuses the program for {hook}: {source}")]
    Program {
        /// Which.
        hook: Hook,
        /// The verifier's log is in its text.
        source: Box<aya::programs::ProgramError>,
    },
    /// The object could not be loaded or its maps made.
    #[error("cannot load the redirect's programs: {}", chain(.0))]
    Load(Box<aya::EbpfError>),
    /// A map could not be read or written.
    #[error("cannot use the map {map}: {}", chain(.source))]
    Map {
        /// Its name.
        map: &'static str,
        /// Why.
        source: Box<aya::maps::MapError>,
    },
    /// A call of the system failed.
    #[error("cannot {doing} {path}: {source}", path = .path.display())]
    System {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no program `nft` here.
    #[error("no program nft here: print the rules (`redirect print`) and load them where there is one")]
    NoNft,
    /// The program `nft` did not take the rules.
    #[error("nft refuses the rules: {said}")]
    Rules {
        /// What it said.
        said: String,
    },
}

/// The library's errors tell the system's reason in a chain alone.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

impl Error {
    /// For `map_err`: what was tried with what.
    pub(crate) fn system(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::System { doing, path, source }
    }

    /// For `map_err`: which map.
    pub(crate) fn map(map: &'static str) -> impl FnOnce(aya::maps::MapError) -> Self {
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
        let told = Error::map("callers")(source).to_string();
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
