//! Finds the network namespace to which the node's route to an address leads.
//!
//! A network plugin connects a pod by a pair of virtual devices (`veth` or `netkit`): one in the pod's network namespace, one in the
//! node's. The kernel gives each namespace that the node's devices lead to a number (`IFLA_LINK_NETNSID`), the same for two pairs into
//! one namespace. So two addresses with the same number belong to one pod.
//!
//! No pod chooses the node's routes. A pod with CAP_NET_ADMIN can move its own end of a pair into another namespace of which it has a
//! descriptor, and the kernel gives numbers of devices and of namespaces to others once they are free. So every answer is read anew.
//! Reading a device waits for the kernel's lock of all network configuration, which can take long. Therefore no thread that serves
//! clients may call this module.
//!
//! A route over a bridge, by a gateway or to more than one address, and a device of another kind lead to no namespace: then this module
//! knows nothing.
//!
//! Sources: Linux `include/uapi/linux/rtnetlink.h` and `linux/if_link.h`; `inet_rtm_getroute` in `net/ipv4/route.c`, which answers with the
//! route of a packet that the node would send; `rtnl_fill_link_netnsid` in `net/core/rtnetlink.c`.

use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::Protocol;

use crate::error::Error;
use crate::netlink::{ERROR, NetlinkSocket, REQUEST, attribute, error_of, message, next_attribute, u32_at};

/// The subsystem of routes and devices (`NETLINK_ROUTE`). Its number is 0, for which rustix has no [`Protocol`].
const ROUTE: Option<Protocol> = None;

// `linux/rtnetlink.h`: message types, lengths of the subsystem's headers (`rtmsg`, `ifinfomsg`), a type of route, and attributes.
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const ROUTE_HEADER_BYTES: usize = 12;
const LINK_HEADER_BYTES: usize = 16;
/// Where the header of a route has its type.
const ROUTE_TYPE_AT: usize = 7;
/// Where the header of a device has its number.
const LINK_INDEX_AT: usize = 4;
/// Where the header of a route has the length of its prefix in bits, and the flags of a request.
const PREFIX_LENGTH_AT: usize = 1;
const ROUTE_FLAGS_AT: usize = 8;
const UNICAST: u8 = 1;
/// The answer is the entry of the table (`RTM_F_FIB_MATCH`), with its prefix.
const TABLE_ENTRY: u32 = 0x2000;
const ROUTE_DESTINATION: u16 = 1;
const ROUTE_SOURCE: u16 = 2;
const ROUTE_DEVICE: u16 = 4;
/// What a route to a neighbour does not have: a gateway, several next hops, a gateway of the other family, an encapsulation, and a next
/// hop that is an object of its own.
const NOT_OF_NEIGHBOURS: [u16; 5] = [5, 9, 18, 22, 30];

// `linux/if_link.h`: attributes of a device, the same of its kind, and the filter that leaves out counters.
const LINK_INFO: u16 = 18;
const LINK_INFO_KIND: u16 = 1;
const LINK_EXTENT: u16 = 29;
const LINK_NAMESPACE: u16 = 37;
const SKIP_STATISTICS: u32 = 1 << 3;

/// The kinds of devices that are pairs.
const PAIRS: [&[u8]; 2] = [b"veth\0", b"netkit\0"];

/// `AF_INET` and `AF_INET6`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;

/// The number of a network namespace, as the node's network sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PodNamespace(u32);

impl PodNamespace {
    /// Creates a number for tests that have no network.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// Reads the node's routes and devices. The process must be on the node's network. Needs no capability.
#[derive(Debug)]
pub struct PodLinks {
    socket: NetlinkSocket,
    /// The number of the last message.
    sequence: u32,
}

impl PodLinks {
    /// Opens a socket to the kernel's routes.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn open() -> Result<Self, Error> {
        let socket = NetlinkSocket::open(ROUTE)
            .map_err(|error| Error::for_system_call("open", "a socket for routes")(error.into()))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Returns the namespace to which packets to `address` go, or `None` if they go elsewhere than into a pod's namespace. Packets come
    /// from `local` if it is an address of the same family. Takes some microseconds, or as long as the kernel's lock is held.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn namespace_of(
        &mut self,
        address: IpAddr,
        local: Option<IpAddr>,
    ) -> Result<Option<PodNamespace>, Error> {
        let found = self.read_namespace(address, local);
        found.map_err(|error| Error::for_system_call("read", "the node's routes")(error.into()))
    }

    fn read_namespace(
        &mut self,
        address: IpAddr,
        local: Option<IpAddr>,
    ) -> Result<Option<PodNamespace>, Errno> {
        let route = self.ask(GET_ROUTE, &route_request(address, local), NEW_ROUTE)?;
        let Some(device) = route.and_then(|route| device_of_route(&route, address)) else { return Ok(None) };
        let link = self.ask(GET_LINK, &link_request(device), NEW_LINK)?;
        Ok(link.and_then(|link| namespace_of_link(&link)))
    }

    /// Sends a request and returns the body of its answer, or `None` if the kernel has no such object.
    fn ask(&mut self, kind: u16, body: &[u8], expected: u16) -> Result<Option<Vec<u8>>, Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&message(kind, REQUEST, self.sequence, body))?;
        loop {
            for answer in self.socket.receive()? {
                match answer.kind {
                    // An answer to an earlier request, for which this socket did not wait long enough.
                    _ if answer.sequence != self.sequence => {}
                    ERROR => return error_of(&answer.body).map_or(Ok(None), absent_or_failed),
                    kind if kind == expected => return Ok(Some(answer.body)),
                    _ => {}
                }
            }
        }
    }
}

/// Returns `None` for the errors that mean that there is no such route or device: no route, one that refuses, a source that is not the
/// node's, or a device that is gone. Other errors are failures.
fn absent_or_failed(error: Errno) -> Result<Option<Vec<u8>>, Errno> {
    match error {
        Errno::NETUNREACH
        | Errno::HOSTUNREACH
        | Errno::ACCESS
        | Errno::INVAL
        | Errno::NODEV
        | Errno::NOENT => Ok(None),
        error => Err(error),
    }
}

/// Returns a request for the route of a packet: `rtmsg`, the destination and the source.
fn route_request(address: IpAddr, local: Option<IpAddr>) -> Vec<u8> {
    let family = if address.is_ipv4() { IPV4 } else { IPV6 };
    let source = local.filter(|local| local.is_ipv4() == address.is_ipv4());
    let lengths = [bits(address), source.map_or(0, bits)];
    let mut request = [&[family][..], &lengths, &[0; ROUTE_FLAGS_AT - 3]].concat();
    request.extend(TABLE_ENTRY.to_ne_bytes());
    request.extend(attribute(ROUTE_DESTINATION, &octets(address)));
    request.extend(source.map_or(Vec::new(), |source| attribute(ROUTE_SOURCE, &octets(source))));
    request
}

/// Returns the length of an address in bits.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns a request for a device: `ifinfomsg` and a filter.
fn link_request(device: u32) -> Vec<u8> {
    let mut request = vec![0; LINK_HEADER_BYTES];
    request.splice(LINK_INDEX_AT..LINK_INDEX_AT + 4, device.to_ne_bytes());
    request.extend(attribute(LINK_EXTENT, &SKIP_STATISTICS.to_ne_bytes()));
    request
}

/// Returns the device of a route to a neighbour, if the route is for this address alone. A route for a range would make each address in it
/// that has no route of its own the same pod's.
fn device_of_route(body: &[u8], address: IpAddr) -> Option<u32> {
    let (header, attributes) = body.split_at_checked(ROUTE_HEADER_BYTES)?;
    let is_neighbour = header.get(ROUTE_TYPE_AT) == Some(&UNICAST)
        && header.get(PREFIX_LENGTH_AT) == Some(&bits(address))
        && NOT_OF_NEIGHBOURS.iter().all(|kind| find(attributes, *kind).is_none());
    is_neighbour.then(|| u32_at(find(attributes, ROUTE_DEVICE)?, 0)).flatten()
}

/// Returns the namespace of the other end of a pair.
fn namespace_of_link(body: &[u8]) -> Option<PodNamespace> {
    let attributes = body.get(LINK_HEADER_BYTES..)?;
    let kind = find(find(attributes, LINK_INFO)?, LINK_INFO_KIND)?;
    let number = u32_at(find(attributes, LINK_NAMESPACE)?, 0)?;
    // The kernel writes -1 for a namespace without a number.
    (PAIRS.contains(&kind) && number.cast_signed() >= 0).then_some(PodNamespace(number))
}

fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some((kind, value, rest)) = next_attribute(attributes) {
        if kind == wanted {
            return Some(value);
        }
        attributes = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::NESTED;

    fn route(kind: u8, bits: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; ROUTE_HEADER_BYTES];
        (body[ROUTE_TYPE_AT], body[PREFIX_LENGTH_AT]) = (kind, bits);
        body.extend(attributes.iter().flat_map(|(kind, value)| attribute(*kind, value)));
        body
    }

    fn link(kind: &[u8], namespace: Option<i32>) -> Vec<u8> {
        let mut body = vec![0; LINK_HEADER_BYTES];
        body.extend(attribute(LINK_INFO | NESTED, &attribute(LINK_INFO_KIND, kind)));
        body.extend(namespace.map_or(Vec::new(), |number| attribute(LINK_NAMESPACE, &number.to_ne_bytes())));
        body
    }

    #[test]
    fn only_a_route_to_one_neighbour_leads_to_a_pod() {
        const LOCAL: u8 = 2;
        const BLACKHOLE: u8 = 6;
        let device: (u16, &[u8]) = (ROUTE_DEVICE, &7_u32.to_ne_bytes());
        let (ipv4, ipv6) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]));
        let good = route(UNICAST, 32, &[(ROUTE_DESTINATION, &[10, 0, 0, 1]), device]);
        assert_eq!(device_of_route(&good, ipv4), Some(7));
        assert_eq!(device_of_route(&good, ipv6), None, "a range of IPv6");
        assert_eq!(device_of_route(&route(UNICAST, 128, &[device]), ipv6), Some(7));
        let others = NOT_OF_NEIGHBOURS.map(|kind| route(UNICAST, 32, &[device, (kind, &[0; 18])]));
        for elsewhere in others.into_iter().chain([
            route(LOCAL, 32, &[device]),
            route(BLACKHOLE, 32, &[device]),
            route(UNICAST, 22, &[device]),
            route(UNICAST, 0, &[device]),
            route(UNICAST, 32, &[]),
            route(UNICAST, 32, &[(ROUTE_DEVICE, &[7])]),
            vec![0; 3],
        ]) {
            assert_eq!(device_of_route(&elsewhere, ipv4), None, "{elsewhere:?}");
        }
    }

    #[test]
    fn only_a_pair_leads_to_a_namespace() {
        for kind in PAIRS {
            assert_eq!(namespace_of_link(&link(kind, Some(3))), Some(PodNamespace(3)));
        }
        for none in [
            link(b"macvlan\0", Some(3)),
            link(b"vet\0", Some(3)),
            link(b"veth\0", None),
            link(b"veth\0", Some(-1)),
            vec![0; LINK_HEADER_BYTES],
            vec![0; 3],
        ] {
            assert_eq!(namespace_of_link(&none), None, "{none:?}");
        }
    }

    #[test]
    fn loopback_and_what_has_no_route_lead_to_no_namespace() {
        let mut links = PodLinks::open().unwrap();
        for address in ["127.0.0.1", "::1", "255.255.255.255"] {
            assert_eq!(links.namespace_of(address.parse().unwrap(), None).unwrap(), None, "{address}");
        }
        let foreign_source = Some("192.0.2.77".parse().unwrap());
        assert_eq!(links.namespace_of("127.0.0.1".parse().unwrap(), foreign_source).unwrap(), None);
    }
}
