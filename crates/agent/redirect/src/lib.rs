//! Redirects the clouds' metadata addresses to the agent and records the owner of each connection.
//!
//! Three eBPF programs (`ebpf/capture.bpf.c`) are attached to the cgroup that contains the node's pods. The programs turn a
//! `connect` to a metadata address into a `connect` to the agent. They also record the client before the first packet leaves.
//!
//! - Operators use [`attach()`], [`read_status()`] and [`detach()`] (`seawall-agent redirect`).
//! - The agent sets the target of captured connections with [`TargetMap`].
//! - The agent proves with [`AgentHeartbeat`] that it serves. Otherwise the programs refuse the connects to it.
//! - The agent finds the owner of each accepted connection with [`ConnectionMap`].
//! - The agent finds with [`PodLinks`] the network namespace to which the node's route to an address leads.
//! - The agent learns from [`AttachmentSnapshot`] that the pinned maps which it opened were removed or replaced.
//! - [`netfilter`] loads drop rules for packets that bypass `connect`.
//! - [`nft_rules`] generates netfilter rules: drop rules for packets that bypass `connect`, and translation rules for nodes without
//!   the eBPF programs.
//!
//! The programs stay attached after all Seawall processes have ended. Without a live agent they refuse each connection of a pod to
//! a metadata address. Therefore a pod does not reach the real metadata server even if the agent dies. This crate does not know
//! pods as cluster objects; it returns cgroups and UIDs. It does not know the purpose of a connection.

pub mod attach;
mod attach_points;
mod attachment_check;
mod cgroup_pods;
mod cgroup_tree;
mod connection_owners;
mod detach;
mod ebpf_addresses;
mod ebpf_counters;
mod error;
mod heartbeat;
mod link_info;
pub mod netfilter;
mod netlink;
pub mod nft_rules;
mod node_network;
mod pins;
mod pod_links;
mod prerequisites;
mod status;
mod target;
mod target_map;
mod trusted_proxies;

pub use attach::attach;
pub use attach_points::Hook;
pub use attachment_check::{AttachmentSnapshot, AttachmentState};
pub use cgroup_pods::PodCgroups;
pub use cgroup_tree::PodsParentCgroup;
pub use connection_owners::{ConnectingSocket, ConnectionMap, ConnectionOwner};
pub use detach::detach;
pub use ebpf_counters::{ConnectCounts, CounterMap, RedirectCounts};
pub use error::Error;
pub use heartbeat::AgentHeartbeat;
pub use node_network::{HostNetworkPods, find_ipv4_address, passes_host_network_pods};
pub use pins::Pins;
pub use pod_links::{PodLinks, PodNamespace};
pub use prerequisites::every_map_use_needs_capability;
pub use status::{HookStatus, LinkStatus, RedirectStatus, read_status};
pub use target::{AgentAddress, RedirectTarget};
pub use target_map::TargetMap;
pub use trusted_proxies::TrustedProxyMap;
