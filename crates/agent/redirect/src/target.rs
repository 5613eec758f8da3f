//! Defines the target of captured connections and the location of the pods' cgroups, in the programs' format.
//!
//! The format is `struct target` in `ebpf/capture.bpf.c`.
//!
//! This module does no I/O; [`crate::TargetMap`] writes the target.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

/// The addresses at which an agent listens on a node, with a port for each endpoint.
/// If a field is `None`, the programs refuse the connections that need that address or port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentAddress {
    /// The address for connections to IPv4 metadata addresses. It also serves IPv6 metadata addresses if `v6` is `None`.
    pub v4: Option<Ipv4Addr>,
    /// The address for connections to IPv6 metadata addresses.
    pub v6: Option<Ipv6Addr>,
    /// The port that serves the node's metadata endpoint.
    pub metadata_port: Option<NonZeroU16>,
    /// The port that serves AWS's container endpoint.
    pub container_credentials_port: Option<NonZeroU16>,
    /// The slot of the agent's listening socket, from [`crate::TargetMap::register_listener`]. The programs look up this slot to
    /// check that the agent still listens.
    pub listener_slot: u16,
}

/// The target's size in bytes in the programs' format.
pub(crate) const TARGET_BYTES: usize = 80;

/// All settings that the programs read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedirectTarget {
    /// The agent that receives captured connections.
    pub agent: AgentAddress,
    /// The port at which an agent connects to itself to detect `node_netns_cookie`; 0 at other times.
    pub(crate) netns_detection_port: u16,
    /// The depth of the cgroup `kubepods` below the tree's root.
    pub(crate) kubepods_depth: u32,
    /// The id of the pods' parent cgroup.
    pub(crate) kubepods_cgroup_id: u64,
    /// The ids of the QoS cgroups between `kubepods` and most pods; 0 for a missing cgroup.
    pub(crate) qos_cgroup_ids: [u64; 2],
    /// The cgroups of the agents' own pods, which may reach the real server.
    ///
    /// Both are set while one agent replaces another. 0 means no cgroup.
    pub exempt_cgroup_ids: [u64; 2],
    /// The cookie of the node's own network namespace. While it is unknown (0), hostNetwork pods are not identified.
    pub node_netns_cookie: u64,
}

impl RedirectTarget {
    /// Returns the target with one more exempt pod. The target has two exempt pods, so a third pod replaces the oldest. By then,
    /// two newer agents have replaced that pod's agent.
    #[must_use]
    pub fn with_exempt_pod(mut self, pod: u64) -> Self {
        if !self.exempt_cgroup_ids.contains(&pod) {
            self.exempt_cgroup_ids = [pod, self.exempt_cgroup_ids[0]];
        }
        self
    }

    pub(crate) fn encode(&self) -> [u8; TARGET_BYTES] {
        let mut bytes = [0; TARGET_BYTES];
        let port = |port: Option<NonZeroU16>| port.map_or(0, NonZeroU16::get).to_be_bytes();
        bytes[0..4].copy_from_slice(&self.agent.v4.map_or([0; 4], |v4| v4.octets()));
        bytes[4..6].copy_from_slice(&port(self.agent.metadata_port));
        bytes[6..8].copy_from_slice(&port(self.agent.container_credentials_port));
        bytes[8..24].copy_from_slice(&self.agent.v6.map_or([0; 16], |v6| v6.octets()));
        bytes[24..28].copy_from_slice(&self.kubepods_depth.to_ne_bytes());
        bytes[28..30].copy_from_slice(&self.netns_detection_port.to_be_bytes());
        bytes[30..32].copy_from_slice(&self.agent.listener_slot.to_ne_bytes());
        let [first, second] = self.qos_cgroup_ids;
        let [newer, older] = self.exempt_cgroup_ids;
        let ids = [self.kubepods_cgroup_id, first, second, newer, older, self.node_netns_cookie];
        for (place, id) in bytes[32..].chunks_exact_mut(8).zip(ids) {
            place.copy_from_slice(&id.to_ne_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; TARGET_BYTES]) -> Self {
        let port = |at| NonZeroU16::new(u16::from_be_bytes(bytes_at(bytes, at)));
        let id = |at| u64::from_ne_bytes(bytes_at(bytes, at));
        let (v4, v6) = (bytes_at::<4>(bytes, 0), bytes_at::<16>(bytes, 8));
        Self {
            agent: AgentAddress {
                v4: (v4 != [0; 4]).then(|| v4.into()),
                v6: (v6 != [0; 16]).then(|| v6.into()),
                metadata_port: port(4),
                container_credentials_port: port(6),
                listener_slot: u16::from_ne_bytes(bytes_at(bytes, 30)),
            },
            kubepods_depth: u32::from_ne_bytes(bytes_at(bytes, 24)),
            netns_detection_port: u16::from_be_bytes(bytes_at(bytes, 28)),
            kubepods_cgroup_id: id(32),
            qos_cgroup_ids: [id(40), id(48)],
            exempt_cgroup_ids: [id(56), id(64)],
            node_netns_cookie: id(72),
        }
    }
}

/// Returns the `N` bytes at an offset, or zeros if they extend beyond the end.
pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..at + N).and_then(|part| part.try_into().ok());
    found.unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> RedirectTarget {
        RedirectTarget {
            agent: AgentAddress {
                v4: Some(Ipv4Addr::new(10, 0, 0, 1)),
                v6: Some(Ipv6Addr::new(0xfd00, 1, 2, 3, 4, 5, 6, 7)),
                metadata_port: NonZeroU16::new(0x1234),
                container_credentials_port: NonZeroU16::new(0x5678),
                listener_slot: 7,
            },
            netns_detection_port: 0x9abc,
            kubepods_depth: 2,
            kubepods_cgroup_id: 11,
            qos_cgroup_ids: [12, 13],
            exempt_cgroup_ids: [14, 15],
            node_netns_cookie: 16,
        }
    }

    #[test]
    fn a_target_is_read_as_it_was_written() {
        for target in [RedirectTarget::default(), full()] {
            assert_eq!(RedirectTarget::decode(&target.encode()), target);
        }
    }

    #[test]
    fn addresses_and_ports_are_in_network_order() {
        let bytes = full().encode();
        assert_eq!(bytes[..8], [10, 0, 0, 1, 0x12, 0x34, 0x56, 0x78]);
        assert_eq!(bytes[28..30], [0x9a, 0xbc]);
    }

    #[test]
    fn of_three_exempt_pods_the_oldest_goes() {
        let target = RedirectTarget::default()
            .with_exempt_pod(1)
            .with_exempt_pod(2)
            .with_exempt_pod(2)
            .with_exempt_pod(3);
        assert_eq!(target.exempt_cgroup_ids, [3, 2]);
    }
}
