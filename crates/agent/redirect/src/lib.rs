//! Brings the clouds' metadata addresses to the agent, and keeps for each connection whose it is.
//!
//! Three programs for the kernel (`ebpf/capture.bpf.c`), attached to the control group of the node's pods: `connect` to a metadata
//! address becomes one to the agent, and who connects is written down before the first packet leaves. [`attach()`], [`status()`] and
//! [`remove()`] are an operator's (`seawall-agent redirect`); [`TargetMap`] says where captured connections go, and [`ConnectionMap`] tells at accept
//! whose each is; both are the agent's, which learns by [`RedirectAttachment`] when what it opened is attached no more. Beside them rules for netfilter ([`nft_rules`]): a net for what does not call `connect`, and
//! a way without programs.
//!
//! The programs stay when every process of ours has ended, and then refuse: a pod never reaches the real server because an agent
//! died. Refuses to know what a pod is in the cluster (it gives groups and UIDs), and what is done with a connection.

pub mod attach;
mod attach_points;
mod attachment_check;
mod cgroup_pods;
mod cgroup_tree;
mod connection_owners;
mod counts;
mod error;
mod link_info;
mod net;
pub mod nft_rules;
mod pins;
mod prerequisites;
mod remove;
mod status;
mod target;
mod target_map;

pub use attach::attach;
pub use attach_points::Hook;
pub use attachment_check::{AttachmentState, RedirectAttachment};
pub use cgroup_pods::PodCgroups;
pub use cgroup_tree::CgroupTree;
pub use connection_owners::{ConnectingSocket, ConnectionMap, ConnectionOwner};
pub use counts::{ConnectCounts, CounterMap, RedirectCounts};
pub use error::Error;
pub use pins::Pins;
pub use prerequisites::maps_need_capability;
pub use remove::remove;
pub use status::{HookStatus, LinkStatus, RedirectStatus, status};
pub use target::{AgentAddress, RedirectTarget};
pub use target_map::TargetMap;
