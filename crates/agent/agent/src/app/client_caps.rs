//! Computes the caps for clients. With these caps, clients cannot make the kernel kill the agent because of its memory use.
//!
//! Each cap follows from the memory limit and the limit on open files. The configuration can set smaller caps. For connections,
//! the configuration can also set a larger cap. The agent computes and logs the caps once, at the start.
//!
//! The kernel kills a process that exceeds its memory limit, and then no pod gets a response. Clients can make the process hold
//! connections, incomplete request heads, unread responses, and responses of the real server in transit. The memory of the
//! program itself and the sum of all caps fit into the memory limit. The server's `fairness` module divides each cap among
//! clients, so that no client can use up a whole cap.

use seawall_server::listen;

use super::detected_cpu_and_memory::DetectedLimits;
use crate::config;

/// The memory of the program itself on a full node, including the pages of its executable file (benches/agent-memory: 10.9 MiB).
const PROGRAM: u64 = 12 << 20;

/// The memory of a listening socket, all of it in the kernel: the socket, its file and its entry in the poller (3.8 KiB in the slabs of
/// kernel 6.18). [`PROGRAM`] contains the sockets of one address.
const LISTENING_SOCKET: u64 = 4 << 10;

/// The memory of a connection with an unread request: 8.0 KiB in the kernel and 0.3 KiB in the process (measured with 3,500 connections on
/// kernel 6.18, which counts the memory of sockets). An idle connection takes 4.1 KiB. The agent uses this constant only if it
/// cannot measure its memory use while it serves ([`super::cgroup_memory`]).
const CONNECTION: u64 = 8704;

/// The memory of a request to the real server while its response is in transit. This number includes two windows of the response
/// (one window that the agent forwards, and one window in the connection's buffer) and the kernel's buffers (`upstream`).
const FORWARD: u64 = 32 << 10;

/// The memory of a long poll: its future and, in `conceal`, a connection to the real server.
const LONG_POLL: u64 = 12 << 10;

/// The maximum number of connections if there is no memory limit.
const MOST_CONNECTIONS: u64 = 8192;

/// The maximum number of open guests. A guest is a connection that ends after one answer.
/// Most guests have already sent their request when the agent accepts them, so the agent answers and closes them at once.
const MOST_GUESTS: u64 = 128;

/// The maximum number of ended connections whose sockets wait for their clients: as many as two threads keep.
const MOST_CLOSING: u64 = 512;

/// The minimum number of connections. With a smaller number, the agent would refuse pods even on a quiet node.
const LEAST_CONNECTIONS: u64 = 64;

/// The minimum number of file descriptors for clients. This number is enough for four clients with eight connections each.
const LEAST_DESCRIPTORS_FOR_CLIENTS: u64 = 32;

/// The maximum number of bytes that the agent buffers for clients if there is no memory limit.
/// This number is enough for hundreds of the largest request heads.
const MOST_HELD: u64 = 8 << 20;

/// The cap on buffered bytes is at least this number.
/// This number is enough for a few clients, each with the largest request head and a response.
const LEAST_HELD: u64 = 512 << 10;

/// The maximum number of listening sockets per address. This number is a power of two.
/// The kernel distributes pods among these sockets (`listen`).
const MOST_LANES: u64 = 256;

/// The maximum number of these sockets for all addresses together: on a node with two addresses and AWS's second endpoint, each of the four
/// addresses gets half of [`MOST_LANES`].
const MOST_LANES_OF_ALL: u64 = 2 * MOST_LANES;

/// The number of file descriptors that are not for pods. The admin port takes 32, and connections to the cloud and the API server
/// take 20. Pollers, timers, signals and files take the other 36.
const OTHER_DESCRIPTORS: u64 = 88;

/// The caps that apply to clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClientCaps {
    /// The maximum number of open connections of all clients together.
    pub(crate) connections: u32,
    /// The maximum number of guests. A guest is an additional connection that ends after one answer.
    pub(crate) guest_connections: u32,
    /// The maximum number of ended connections whose sockets wait for their clients.
    pub(crate) closing_connections: u32,
    /// The maximum number of open connections of one client, even if there are few other clients.
    pub(crate) connections_per_caller: u32,
    /// The maximum number of bytes in incomplete heads and unread responses, for all clients together.
    pub(crate) buffered_bytes: usize,
    /// The number of listening sockets for pods at each address. If there are several, one additional socket is for connections
    /// from the node itself.
    pub(crate) listening_sockets_per_address: usize,
    /// The maximum number of concurrent requests to the real metadata server.
    pub(crate) upstream_requests: u32,
    /// The maximum number of concurrent long polls.
    pub(crate) long_polls: u32,
    /// The CPU quota in cores.
    pub(crate) cpu_quota_cores: Option<f64>,
}

impl ClientCaps {
    /// Computes the caps from the machine's limits and the number of available file descriptors.
    /// `is_followed` is true if the agent measures its memory use while it serves. In that case, this function does not cap the
    /// connections by the memory limit.
    pub(crate) fn from_machine_limits(
        machine: &DetectedLimits,
        is_followed: bool,
        descriptors: u64,
        config: &config::AgentConfig,
    ) -> Self {
        let limits = &config.limits;
        let lanes = lanes(descriptors, config.listen.len() as u64);
        let sockets_of_one = listen::sockets_per_address(lanes as usize) as u64;
        let sockets = sockets_of_one * config.listen.len() as u64;
        let program = PROGRAM + sockets.saturating_sub(sockets_of_one) * LISTENING_SOCKET;
        let memory = machine.memory_limit.map(|limit| limit.saturating_sub(program).max(limit / 4));
        // Connections get half of `room`. Buffered bytes and upstream requests each get an eighth. Long polls get a sixteenth.
        let part = |part: u64, cost: u64| memory.map_or(u64::MAX, |room| (room / part / cost).max(4));
        let upstream_requests =
            u64::from(limits.upstream_requests).min(descriptors / 16).min(part(8, FORWARD)).max(1);
        let long_polls = u64::from(limits.long_polls).min(descriptors / 8).min(part(16, LONG_POLL)).max(1);
        // For each concurrent request, the agent can hold two connections to the real server: one in use and one idle. A long poll in `conceal` uses
        // one connection.
        // Pods in `realServer` have connections of their own, for each cloud's protocol.
        let idle_pools = if config.clouds.real_server.is_empty() { 1 } else { 3 };
        let taken = sockets + (1 + idle_pools) * upstream_requests + long_polls + OTHER_DESCRIPTORS;
        let open = descriptors.saturating_sub(taken);
        let fit = memory.filter(|_| !is_followed).map_or(MOST_CONNECTIONS, |room| {
            (room / 2 / CONNECTION).clamp(LEAST_CONNECTIONS, MOST_CONNECTIONS)
        });
        // Guests and ended connections each get a ninth of the remaining file descriptors, but at most these numbers.
        let guests = (open / 9).clamp(1, MOST_GUESTS);
        let closing = (open / 9).clamp(1, MOST_CLOSING);
        let beside = (guests + closing).min(open / 2);
        let connections = narrow(limits.connections.map_or(fit, u64::from).min(open - beside));
        Self {
            connections,
            guest_connections: narrow(guests),
            closing_connections: narrow(closing),
            connections_per_caller: per_caller(limits, connections),
            buffered_bytes: memory.map_or(MOST_HELD, |room| (room / 8).clamp(LEAST_HELD, MOST_HELD)) as usize,
            listening_sockets_per_address: lanes as usize,
            upstream_requests: narrow(upstream_requests),
            long_polls: narrow(long_polls),
            cpu_quota_cores: machine.cpu_quota_cores,
        }
    }

    /// Returns the smallest limit on open files that the agent accepts under this configuration.
    /// With fewer file descriptors, four pods could use up all descriptors, because every client may have eight connections.
    pub(crate) fn min_open_files(config: &config::AgentConfig) -> u64 {
        let is_enough = |descriptors: &u64| {
            let caps = Self::from_machine_limits(&DetectedLimits::default(), true, *descriptors, config);
            let asked = config.limits.connections.map_or(LEAST_DESCRIPTORS_FOR_CLIENTS, u64::from);
            u64::from(caps.connections + caps.guest_connections) >= asked.min(LEAST_DESCRIPTORS_FOR_CLIENTS)
        };
        (OTHER_DESCRIPTORS..4096).find(is_enough).unwrap_or(4096)
    }

    /// Returns the number of bytes that clients can make the agent use without opening new connections.
    pub(crate) fn max_total_bytes_on_open_connections(&self) -> u64 {
        self.buffered_bytes as u64
            + u64::from(self.upstream_requests) * FORWARD
            + u64::from(self.long_polls) * LONG_POLL
    }

    /// Returns the maximum number of connections of one client under `limits`, in a process with these caps.
    pub(crate) fn max_connections_per_client(&self, limits: &config::LimitsConfig) -> u32 {
        per_caller(limits, self.connections)
    }
}

fn per_caller(limits: &config::LimitsConfig, connections: u32) -> u32 {
    limits.connections_per_pod.unwrap_or(connections).min(connections)
}

/// Returns the number of usual shards per address (`listen`). The number is a power of two.
/// The usual shards of all addresses together take at most an eighth of the file descriptors and number at most [`MOST_LANES_OF_ALL`].
fn lanes(descriptors: u64, addresses: u64) -> u64 {
    let of_one = |of_all: u64| of_all / addresses.max(1);
    let most = of_one(descriptors / 8).min(of_one(MOST_LANES_OF_ALL)).clamp(1, MOST_LANES);
    1 << most.ilog2()
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::AgentConfig;

    fn room(memory: Option<u64>, descriptors: u64, limits: &str) -> ClientCaps {
        let text = format!(
            "google: {{ mode: conceal }}\nidentity: {{ strategy: anyone }}\nlimits: {{ {limits} }}\n"
        );
        let config = AgentConfig::parse(&text, Path::new("/"), &config::DownwardApi::default()).unwrap();
        ClientCaps::from_machine_limits(
            &DetectedLimits { memory_limit: memory, cpu_quota_cores: None },
            false,
            descriptors,
            &config,
        )
    }

    #[test]
    fn what_clients_may_hold_fits_beside_the_program() {
        for mebibytes in [16, 25, 32, 64, 256] {
            let limit = mebibytes << 20;
            let room = room(Some(limit), 1 << 20, "");
            let traffic =
                u64::from(room.upstream_requests) * FORWARD + u64::from(room.long_polls) * LONG_POLL;
            let most = u64::from(room.connections) * CONNECTION + room.buffered_bytes as u64 + traffic;
            assert_eq!(room.max_total_bytes_on_open_connections(), room.buffered_bytes as u64 + traffic);
            assert!(most <= limit - PROGRAM.min(limit / 4 * 3), "{mebibytes} MiB: {room:?}");
        }
        let room = room(Some(25 << 20), 1 << 20, "");
        assert!((700..1000).contains(&room.connections), "{room:?}");
    }

    #[test]
    fn without_a_limit_the_caps_are_the_documented_ones() {
        let room = room(None, 1 << 20, "");
        assert_eq!(
            (room.connections, room.connections_per_caller, room.listening_sockets_per_address),
            (8192, 8192, 256)
        );
        assert_eq!((room.upstream_requests, room.long_polls), (64, 256));
    }

    /// Each of the node's addresses has sockets of its own, in the kernel's memory.
    #[test]
    fn more_addresses_take_few_more_sockets_than_two_have_and_no_memory_of_clients() {
        let room = |listen: &str, memory| {
            let text =
                format!("google: {{ mode: conceal }}\nidentity: {{ strategy: anyone }}\nlisten: {listen}\n");
            let addresses = "10.0.0.1,fd00::1".parse().unwrap();
            let downward =
                config::DownwardApi { node_addresses: addresses, ..config::DownwardApi::default() };
            let config = AgentConfig::parse(&text, Path::new("/"), &downward).unwrap();
            let limits = DetectedLimits { memory_limit: memory, cpu_quota_cores: None };
            ClientCaps::from_machine_limits(&limits, false, 1 << 16, &config)
        };
        let sockets = |listen, addresses: u64| {
            let lanes = room(listen, None).listening_sockets_per_address;
            listen::sockets_per_address(lanes) as u64 * addresses
        };
        assert_eq!(sockets("[\"10.0.0.1:1\"]", 1), 274);
        assert_eq!(sockets("[\"node:1\"]", 2), 548);
        assert_eq!(sockets("[\"node:1\", \"node:2\"]", 4), 584);
        let connections = |listen| u64::from(room(listen, Some(32 << 20)).connections) * CONNECTION;
        let (one, two) = (connections("[\"10.0.0.1:1\"]"), connections("[\"node:1\"]"));
        // Connections get half of the memory.
        assert!(one - two >= 257 * LISTENING_SOCKET / 2 - CONNECTION, "{one} {two}");
    }

    #[test]
    fn connections_never_use_up_the_open_files() {
        for descriptors in [256, 1024, 4096] {
            let room = room(None, descriptors, "connections: 100000");
            let used = u64::from(
                room.connections
                    + room.guest_connections
                    + room.closing_connections
                    + 2 * room.upstream_requests
                    + room.long_polls,
            ) + room.listening_sockets_per_address as u64;
            assert!(used + OTHER_DESCRIPTORS <= descriptors, "{descriptors}: {room:?}");
        }
    }

    #[test]
    fn an_agent_that_may_start_has_descriptors_for_several_clients() {
        let config = |limits: &str| {
            let text = format!(
                "google: {{ mode: conceal }}\nidentity: {{ strategy: anyone }}\nlimits: {{ {limits} }}\n"
            );
            AgentConfig::parse(&text, Path::new("/"), &config::DownwardApi::default()).unwrap()
        };
        let least = ClientCaps::min_open_files(&config(""));
        assert!((150..256).contains(&least), "{least}");
        let at_least = room(None, least, "");
        assert_eq!(at_least.connections + at_least.guest_connections, 32, "{at_least:?}");
        let below = room(None, least - 1, "");
        assert!(below.connections + below.guest_connections < 32, "{below:?}");
        assert!(ClientCaps::min_open_files(&config("connections: 4")) < least);
    }

    #[test]
    fn the_configuration_may_ask_for_less_or_more_than_memory_suggests() {
        assert_eq!(room(Some(25 << 20), 1 << 20, "connections: 10").connections, 10);
        assert_eq!(room(Some(25 << 20), 1 << 20, "connections: 5000").connections, 5000);
        let room = room(None, 1 << 20, "connections: 100, connectionsPerPod: 20");
        assert_eq!(room.connections_per_caller, 20);
    }
}
