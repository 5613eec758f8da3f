//! Decides which identity pods on the node's network (`hostNetwork`) get at the metadata addresses.
//!
//! [`mod@crate::attach`] applies the decision before it attaches the programs, so it holds before the first agent and while the agent
//! is away. The programs recognise the node's network by the cookie of its namespace, which no pod can choose. The kernel has no
//! safe call by which a process can read this cookie. Therefore the process connects a socket of its own, and the program `learn4`
//! writes down the namespace of this one socket.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError};
use seawall_core::endpoint::{METADATA_PORT, MetadataEndpoint};

use crate::error::Error;
use crate::pins::{PASSED_NETNS_MAP, Pins};

/// The program that writes down the network namespace of one socket (`ebpf/capture.bpf.c`).
pub(crate) const LEARN_PROGRAM: &str = "learn4";

/// The map in which [`LEARN_PROGRAM`] finds the socket and writes its namespace. It is not pinned.
const LEARNED_NETNS_MAP: &str = "learned_netns";

/// The only key of the map [`PASSED_NETNS_MAP`].
const ONLY: u32 = 0;

/// The identity that pods on the node's network get at the metadata addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostNetworkPods {
    /// The node's identity: their connections go to the real metadata server, as those of the node's own processes do. The address
    /// is one of the node's. The caller must run on the node's network.
    Node(IpAddr),
    /// Their own identity: the programs capture their connections like those of all other pods.
    Seawall,
}

/// Writes the namespace whose sockets pass to the programs' map. `attach_learn_program` attaches [`LEARN_PROGRAM`] to a cgroup,
/// calls the function that it gets, and detaches the program again.
///
/// # Errors
/// The node's address is not an address of this process's network, or the programs do not see this process's sockets.
pub(crate) fn apply(
    host_network_pods: HostNetworkPods,
    programs: &mut Ebpf,
    pins: &Pins,
    groups: &[&Path],
    mut attach_learn_program: impl FnMut(&mut Ebpf, &Path, &dyn Fn() -> Result<(), Error>) -> Result<(), Error>,
) -> Result<(), Error> {
    let cookie = match host_network_pods {
        HostNetworkPods::Seawall => 0,
        HostNetworkPods::Node(address) => {
            check_is_own_address(address)?;
            let mut learned = LearnedNetns::new(programs)?;
            let mut cookie = 0;
            for group in groups {
                attach_learn_program(programs, group, &|| learned.connect())?;
                cookie = learned.cookie()?;
                if cookie != 0 {
                    break;
                }
            }
            learned.forget();
            // The programs would take 0 for "nobody passes", and the node's own agents would lose their metadata server silently.
            if cookie == 0 { Err(Error::UnknownNodeNetwork) } else { Ok(cookie) }?
        }
    };
    let mut map = Array::<_, u64>::try_from(Map::Array(pins.open_map(PASSED_NETNS_MAP)?))
        .map_err(Error::for_map(PASSED_NETNS_MAP))?;
    map.set(ONLY, cookie, 0).map_err(Error::for_map(PASSED_NETNS_MAP))
}

/// True if pods on the node's network reach the real metadata server. False if programs without this setting are attached.
///
/// # Errors
/// The kernel refuses to read.
pub fn passes_host_network_pods(pins: &Pins) -> Result<bool, Error> {
    let map = match pins.open_map(PASSED_NETNS_MAP) {
        Err(Error::NotAttached { .. }) => return Ok(false),
        map => Array::<MapData, u64>::try_from(Map::Array(map?)).map_err(Error::for_map(PASSED_NETNS_MAP))?,
    };
    Ok(map.get(&ONLY, 0).map_err(Error::for_map(PASSED_NETNS_MAP))? != 0)
}

/// Returns the node's IPv4 address from which packets to the metadata address would come, by the node's routes. Returns `None` if the node
/// has no such route, or no address of its own for it. Sends no packet. The process must be on the node's network.
///
/// Kubernetes reports no IPv4 address of a node in an IPv6 cluster, although the node can have one (`identity.egressRanges`).
#[must_use]
pub fn find_ipv4_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    let metadata = MetadataEndpoint::Metadata.addresses().iter().find(|address| address.is_ipv4())?;
    // The port does not matter: nothing is sent.
    socket.connect((*metadata, METADATA_PORT)).ok()?;
    let IpAddr::V4(own) = socket.local_addr().ok()?.ip() else { return None };
    let is_usable = !(own.is_unspecified() || own.is_loopback() || own.is_link_local());
    is_usable.then_some(own)
}

/// Checks that this process runs on the network that has the node's address. In a pod's own network, all pods' connections would
/// stay captured, and the sockets of that one pod would pass.
fn check_is_own_address(address: IpAddr) -> Result<(), Error> {
    UdpSocket::bind((address, 0)).map(drop).map_err(|source| Error::NotOnNodeNetwork { address, source })
}

/// A socket of this process, and the map in which [`LEARN_PROGRAM`] writes its namespace.
struct LearnedNetns {
    socket: UdpSocket,
    cookie: u64,
    map: HashMap<MapData, u64, u64>,
}

impl LearnedNetns {
    fn new(programs: &mut Ebpf) -> Result<Self, Error> {
        let failed = Error::for_map(LEARNED_NETNS_MAP);
        let map = programs.take_map(LEARNED_NETNS_MAP).ok_or(MapError::KeyNotFound);
        let mut map = map.and_then(HashMap::<_, u64, u64>::try_from).map_err(failed)?;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .map_err(Error::for_system_call("open", "a UDP socket"))?;
        // The kernel gives each socket another cookie, in all namespaces together.
        let cookie = rustix::net::sockopt::socket_cookie(&socket)
            .map_err(|error| Error::for_system_call("identify", "a UDP socket")(error.into()))?;
        map.insert(cookie, 0, 0).map_err(Error::for_map(LEARNED_NETNS_MAP))?;
        Ok(Self { socket, cookie, map })
    }

    /// Connects the socket, which sends no packet.
    fn connect(&self) -> Result<(), Error> {
        let to = self.socket.local_addr().and_then(|own| self.socket.connect(own));
        to.map_err(Error::for_system_call("connect", "a UDP socket"))
    }

    /// Returns the cookie of the socket's namespace; 0 if the program has not seen the socket.
    fn cookie(&self) -> Result<u64, Error> {
        self.map.get(&self.cookie, 0).map_err(Error::for_map(LEARNED_NETNS_MAP))
    }

    /// Removes the socket's entry. The map disappears with this process anyway.
    fn forget(&mut self) {
        let _ = self.map.remove(&self.cookie);
    }
}
