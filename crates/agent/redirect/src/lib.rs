//! Brings the clouds' metadata addresses to the agent, and keeps for each connection whose it is.
//!
//! Three programs for the kernel (`ebpf/capture.bpf.c`), attached to the control group of the node's pods: `connect` to a metadata
//! address becomes one to the agent, and who connects is written down before the first packet leaves. [`attach()`], [`status()`] and
//! [`remove()`] are an operator's (`seawall-agent redirect`); [`Gate`] says where captured connections go, and [`Callers`] tells at accept
//! whose each is; both are the agent's, which learns by [`Attachment`] when what it opened is attached no more. Beside them rules for netfilter ([`nft`]): a net for what does not call `connect`, and
//! a way without programs.
//!
//! The programs stay when every process of ours has ended, and then refuse: a pod never reaches the real server because an agent
//! died. Refuses to know what a pod is in the cluster (it gives groups and UIDs), and what is done with a connection.

pub mod attach;
mod callers;
mod counts;
mod error;
mod gate;
mod hook;
mod link;
mod net;
pub mod nft;
mod pins;
mod pods;
mod prerequisites;
mod remove;
mod site;
mod standing;
mod status;
mod target;

pub use attach::attach;
pub use callers::{Caller, Callers, Owner};
pub use counts::{Connects, Counters, Counts};
pub use error::Error;
pub use gate::Gate;
pub use hook::Hook;
pub use pins::Pins;
pub use pods::Pods;
pub use prerequisites::maps_take_a_right;
pub use remove::remove;
pub use site::Site;
pub use standing::{Attachment, Standing};
pub use status::{HookStatus, LinkStatus, Status, status};
pub use target::{Agent, Target};
