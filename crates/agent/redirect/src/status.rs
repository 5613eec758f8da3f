//! Reports the redirect's status: the attached programs, their versions and their counters.

use std::fmt;

use crate::attach::programs_version;
use crate::attach_points::Hook;
use crate::cgroup_tree::PodsParentCgroup;
use crate::connection_owners::ConnectionMap;
use crate::ebpf_counters::{ConnectCounts, RedirectCounts};
use crate::error::Error;
use crate::link_info::LinkInfo;
use crate::node_network::passes_host_network_pods;
use crate::pins::{LinkPin, Pins};
use crate::target::RedirectTarget;
use crate::target_map::TargetMap;

/// The status of the redirect.
#[derive(Clone, Debug)]
pub struct RedirectStatus {
    /// The status of each hook.
    pub hooks: Vec<HookStatus>,
    /// The current target. Before the first agent it is `None`, and the programs refuse the metadata connections of all pods.
    pub target: Option<RedirectTarget>,
    /// True if pods on the node's network reach the real metadata server ([`crate::HostNetworkPods::Node`]).
    pub passes_host_network_pods: bool,
    /// The programs' counters.
    pub counts: RedirectCounts,
    /// The number of recorded connections that wait for accept.
    pub waiting_connection_count: usize,
    /// The other layouts that have pins.
    pub other_layouts: Vec<String>,
}

/// The pinned links of a hook: none, one, or two while a new link replaces an old link.
#[derive(Clone, Debug)]
pub struct HookStatus {
    /// The hook.
    pub hook: Hook,
    /// The hook's pinned links.
    pub links: Vec<LinkStatus>,
}

/// A pinned link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// The version of the link's program.
    pub version: String,
    /// True if the link's program has this build's version.
    pub is_current_version: bool,
    /// True if the link is attached to the given parent cgroup of pods.
    pub is_attached: bool,
    /// The program's id, as `bpftool prog` shows it; 0 if it cannot be read.
    pub program_id: u32,
}

impl RedirectStatus {
    /// True if every hook has exactly one link, with this build's program, attached to the pods' parent cgroup, and no other
    /// layout has pins.
    #[must_use]
    pub fn is_fully_attached(&self) -> bool {
        let complete = |hook: &HookStatus| matches!(&hook.links[..], [link] if link.is_current_version && link.is_attached);
        self.other_layouts.is_empty() && self.hooks.iter().all(complete)
    }
}

/// Reads the status.
///
/// # Errors
/// The redirect is not attached, or this process is not allowed to read the status.
pub fn read_status(pins: &Pins, site: &PodsParentCgroup) -> Result<RedirectStatus, Error> {
    let hook = |hook| -> Result<HookStatus, Error> {
        let links = pins.links_of_hook(hook)?.iter().map(|pin| link(pins, site, pin)).collect();
        Ok(HookStatus { hook, links })
    };
    Ok(RedirectStatus {
        hooks: Hook::ALL.into_iter().map(hook).collect::<Result<_, _>>()?,
        target: TargetMap::open(pins, site)?.target()?,
        passes_host_network_pods: passes_host_network_pods(pins)?,
        counts: RedirectCounts::read(pins)?,
        waiting_connection_count: ConnectionMap::open(pins)?.waiting_count(),
        other_layouts: pins.other_layouts()?,
    })
}

fn link(pins: &Pins, site: &PodsParentCgroup, pin: &LinkPin) -> LinkStatus {
    let attached = LinkInfo::at(&pins.path(&pin.name())).ok();
    LinkStatus {
        is_current_version: pin.version == programs_version(),
        is_attached: attached.is_some_and(|attached| attached.cgroup_id == site.kubepods_id()),
        program_id: attached.map_or(0, |attached| attached.program_id),
        version: pin.version.clone(),
    }
}

impl fmt::Display for RedirectStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for hook in &self.hooks {
            write!(f, "{hook}")?;
        }
        writeln!(f, "IPv4 sockets: {}", Line(&self.counts.connect4))?;
        writeln!(f, "IPv6 sockets: {}", Line(&self.counts.connect6))?;
        let RedirectCounts { recorded: stored, closed_early, unrecorded: dropped, .. } = self.counts;
        let waiting = self.waiting_connection_count;
        writeln!(
            f,
            "connection records: {stored} stored, {waiting} waiting, {closed_early} closed early, {dropped} dropped"
        )?;
        match &self.target {
            Some(target) => write!(f, "{target}"),
            None => writeln!(f, "target: none; every captured connection is refused"),
        }?;
        let identity = if self.passes_host_network_pods {
            "the node's: they reach the real metadata server"
        } else {
            "their own: their connections are captured"
        };
        writeln!(f, "identity of pods on the node's network: {identity}")?;
        self.other_layouts
            .iter()
            .try_for_each(|layout| writeln!(f, "another layout is also pinned: {layout}"))
    }
}

impl fmt::Display for HookStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.links.is_empty() {
            writeln!(f, "{}: NOT ATTACHED", self.hook)?;
        }
        for LinkStatus { version, is_current_version: ours, is_attached: attached, program_id: program } in
            &self.links
        {
            let whose = if *ours { "this version" } else { "another version" };
            let place = if *attached { "attached to the pods' cgroup" } else { "ATTACHED TO NO POD" };
            writeln!(f, "{}: {place}, program {program}, {whose} ({version})", self.hook)?;
        }
        Ok(())
    }
}

/// Formats an address family's counts as one line.
struct Line<'a>(&'a ConnectCounts);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectCounts {
            captured,
            to_agent_address: direct,
            from_agent: exempt,
            node_network,
            no_agent,
            unidentified_pod,
            ..
        } = self.0;
        let ConnectCounts { unsupported_port, too_many_waiting, unresponsive_agent, no_family, .. } = self.0;
        write!(
            f,
            "{captured} captured, {direct} directly to the agent, {exempt} by an agent, {node_network} by pods on the node's network, {} refused",
            self.0.refused()
        )?;
        write!(
            f,
            " ({no_agent} without an agent, {unresponsive_agent} with an unresponsive agent, {too_many_waiting} by pods with too many waiting connections, {unidentified_pod} by unidentified pods, {unsupported_port} to an unsupported port, {no_family} without an agent address of their family)"
        )
    }
}

impl fmt::Display for RedirectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agent = &self.agent;
        let address = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        let port = |port: Option<std::num::NonZeroU16>| {
            port.map_or_else(|| "refused".to_owned(), |port| port.to_string())
        };
        write!(
            f,
            "target: IPv4 {}, IPv6 {}",
            address(agent.v4.map(|v4| v4.to_string())),
            address(agent.v6.map(|v6| v6.to_string()))
        )?;
        writeln!(
            f,
            "; port for metadata {}, for containers {}",
            port(agent.metadata_port),
            port(agent.container_credentials_port)
        )?;
        let known = if self.node_netns_cookie == 0 {
            "NOT KNOWN; hostNetwork pods cannot be identified"
        } else {
            "known"
        };
        writeln!(f, "node's network namespace: {known}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(links: &[LinkStatus]) -> RedirectStatus {
        let hooks = Hook::ALL.into_iter().map(|hook| HookStatus { hook, links: links.to_vec() }).collect();
        RedirectStatus {
            hooks,
            target: None,
            passes_host_network_pods: false,
            counts: RedirectCounts::default(),
            waiting_connection_count: 0,
            other_layouts: Vec::new(),
        }
    }

    fn link() -> LinkStatus {
        LinkStatus { version: "00ff".to_owned(), is_current_version: true, is_attached: true, program_id: 7 }
    }

    #[test]
    fn complete_is_one_link_of_this_version_on_each_hook() {
        assert!(with(&[link()]).is_fully_attached());
        assert!(!with(&[]).is_fully_attached());
        assert!(!with(&[link(), link()]).is_fully_attached());
        assert!(!with(&[LinkStatus { is_current_version: false, ..link() }]).is_fully_attached());
        assert!(!with(&[LinkStatus { is_attached: false, ..link() }]).is_fully_attached());
    }

    #[test]
    fn what_is_missing_is_said_loudly() {
        let text = with(&[]).to_string();
        assert!(text.contains("connect4: NOT ATTACHED\n"), "{text}");
        assert!(text.contains("every captured connection is refused"), "{text}");
    }
}
