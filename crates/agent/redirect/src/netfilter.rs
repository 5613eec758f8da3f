//! Loads the drop rules into the kernel (nf_tables) over netlink, without the program `nft`.
//!
//! The rules are those of [`crate::nft_rules::format_drop_rules`], one for each address. No maintained Rust library without C code
//! and under this project's licence writes nf_tables messages, so this module writes the few messages that it needs. All messages
//! of a change travel in one batch, which the kernel applies completely or not at all. The module changes only the table
//! `inet seawall`.
//!
//! Sources: Linux `include/uapi/linux/netfilter/nfnetlink.h` and `linux/netfilter/nf_tables.h`. All integers of
//! nf_tables attributes are big-endian; those of the message headers have the machine's byte order.

use std::io;
use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::netlink::NETFILTER;
use seawall_core::endpoint::{DNS_PORT, MetadataEndpoint};

use crate::error::Error;
use crate::netlink::{
    ACK, APPEND, Answer, CREATE, DONE, DUMP, ERROR, NESTED, NetlinkSocket, REQUEST, attribute, error_of,
    message, next_attribute,
};

/// The name of the table.
const TABLE: &[u8] = b"seawall\0";

/// The chains, with type, hook and priority: the drop rules for packets that arrive, the same for packets that a translation has led to a
/// metadata address, the agents' ports for packets that arrive and for packets that the node sends, and the two that keep connection tracking
/// from leading packets to these ports to somebody else ([`AgentPorts`]).
const CHAINS: [(&[u8], &[u8], u32, i32); 6] = [
    (DROP_RULES, FILTER, PREROUTING, PRIORITY_RAW),
    (DROP_FORWARDED, FILTER, FORWARD, PRIORITY_FILTER),
    (AGENT_PORTS, NAT, PREROUTING, BEFORE_OTHER_TRANSLATIONS),
    (AGENT_PORTS_OUTPUT, NAT, OUTPUT, BEFORE_OTHER_TRANSLATIONS),
    (TRANSLATED_TO_PORTS, FILTER, PREROUTING, AFTER_CONNECTION_TRACKING),
    (TRANSLATED_FROM_PORTS, FILTER, POSTROUTING, AFTER_OTHER_TRANSLATIONS),
];
const FILTER: &[u8] = b"filter\0";
const NAT: &[u8] = b"nat\0";
const DROP_RULES: &[u8] = b"drop_rules\0";
const DROP_FORWARDED: &[u8] = b"drop_forwarded\0";
const AGENT_PORTS: &[u8] = b"agent_ports\0";
const AGENT_PORTS_OUTPUT: &[u8] = b"agent_ports_output\0";
const TRANSLATED_TO_PORTS: &[u8] = b"translated_to_agent_ports\0";
const TRANSLATED_FROM_PORTS: &[u8] = b"translated_from_agent_ports\0";

// `linux/netfilter/nfnetlink.h`: the frame of a batch, and the subsystem nf_tables.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NF_TABLES: u16 = 10;

// `linux/netfilter/nf_tables.h`: message types.
const NEW_TABLE: u16 = NF_TABLES << 8;
const DELETE_TABLE: u16 = NF_TABLES << 8 | 2;
const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;
const NEW_RULE: u16 = NF_TABLES << 8 | 6;
const GET_RULE: u16 = NF_TABLES << 8 | 7;

/// The family of the table (`NFPROTO_INET`), and the values by which rules match the family of a packet.
const INET: u8 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 10;

/// The hooks `NF_INET_PRE_ROUTING`, `NF_INET_FORWARD`, `NF_INET_LOCAL_OUT` and `NF_INET_POST_ROUTING`.
const PREROUTING: u32 = 0;
const FORWARD: u32 = 2;
const OUTPUT: u32 = 3;
const POSTROUTING: u32 = 4;

/// The priorities `NF_IP_PRI_RAW` (before connection tracking and every address translation) and `NF_IP_PRI_FILTER`; one before
/// `NF_IP_PRI_NAT_DST` (-100), at which kube-proxy and others translate; `NF_IP_PRI_MANGLE`, which is between connection tracking (-200) and
/// translation; and one after `NF_IP_PRI_NAT_SRC` (100).
const PRIORITY_RAW: i32 = -300;
const PRIORITY_FILTER: i32 = 0;
const BEFORE_OTHER_TRANSLATIONS: i32 = -110;
const AFTER_CONNECTION_TRACKING: i32 = -150;
const AFTER_OTHER_TRANSLATIONS: i32 = 110;

const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The agents' addresses and fixed ports. New connections to them are translated to themselves, before any other translation.
///
/// Whoever can create a Service with the node's address in `externalIPs`, or a pod with a `hostPort`, could otherwise lead other pods'
/// requests, with their tokens, from the agent's port to a pod of his own. A connection is translated once, so the first rule decides.
/// Exempting the ports from connection tracking instead would break pods that accept only answers to tracked connections (network policies).
///
/// Connection tracking can also take a pod's connection to the agent for the answer to another one. If a pod connects from the agent's port
/// through a Service whose endpoint is a port of a victim, and the node replaces the source by its own address, the kernel expects answers from
/// the victim's port to the agent's address and port, and leads them to that pod. So three more rules for each port:
///
/// - No connection gets the node's address and this port as its source by a translation. The kernel has not confirmed the connection yet, so
///   nothing of it stays. A connection that is masqueraded to a random port gets another one when it tries again. One that keeps its client's
///   port cannot be opened, so no client should use the agents' ports as its own.
/// - A packet to this port that belongs to a translated connection is dropped. Such connections are from before the rules.
/// - A packet that arrives with the agent's address and port as its source, and opens a connection, is forged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentPorts {
    /// The node's addresses at which agents listen.
    pub addresses: Vec<IpAddr>,
    /// The ports at which agents listen.
    pub ports: Vec<u16>,
}

/// Loads the drop rules and the rules for the agents' ports into the network namespace of this process. They replace all rules of the
/// table. On a kernel without address translation or connection tracking in nf_tables, loads the drop rules alone.
///
/// Returns the ports whose rules are loaded: all of them or none. Ask [`has_drop_rules`] with these ports.
///
/// # Errors
/// The kernel has no nf_tables, the process lacks CAP_NET_ADMIN, or the kernel refuses a message.
pub fn load_drop_rules(ports: &AgentPorts) -> Result<AgentPorts, Error> {
    match load(ports) {
        Err(Error::Netfilter { source, .. })
            if source.raw_os_error() == Some(Errno::NOENT.raw_os_error()) =>
        {
            load(&AgentPorts::default()).map(|()| AgentPorts::default())
        }
        result => result.map(|()| ports.clone()),
    }
}

fn load(ports: &AgentPorts) -> Result<(), Error> {
    let mut batch = Batch::new();
    batch.remove_table();
    batch.push(NEW_TABLE, CREATE, &attribute(1, TABLE));
    let rules = rules(ports);
    for (name, kind, hook, priority) in CHAINS {
        if rules.iter().any(|(chain, _)| *chain == name) {
            batch.push(NEW_CHAIN, CREATE, &chain(name, kind, hook, priority));
        }
    }
    for (chain, expressions) in rules {
        let rule = [attribute(1, TABLE), attribute(2, chain), attribute(4 | NESTED, &expressions)];
        batch.push(NEW_RULE, CREATE | APPEND, &rule.concat());
    }
    batch.send()
}

fn chain(name: &[u8], kind: &[u8], hook: u32, priority: i32) -> Vec<u8> {
    let hook = [attribute(1, &hook.to_be_bytes()), attribute(2, &priority.to_be_bytes())].concat();
    let attributes = [
        attribute(1, TABLE),
        attribute(3, name),
        attribute(4 | NESTED, &hook),
        attribute(5, &ACCEPT.to_be_bytes()),
        attribute(7, kind),
    ];
    attributes.concat()
}

/// Removes all rules of the table. Does nothing if there is no such table, or if the kernel has no nf_tables.
///
/// # Errors
/// The process lacks CAP_NET_ADMIN, or the kernel refuses a message.
pub fn remove_rules() -> Result<(), Error> {
    let mut batch = Batch::new();
    batch.remove_table();
    match batch.send() {
        Err(Error::NoNfTables(_)) => Ok(()),
        result => result,
    }
}

/// True if the table has as many rules as [`load_drop_rules`] loads for these ports. Only root can change single rules.
///
/// # Errors
/// The kernel has no nf_tables, the process lacks CAP_NET_ADMIN, or the kernel refuses the request.
pub fn has_drop_rules(ports: &AgentPorts) -> Result<bool, Error> {
    let mut socket = open_socket()?;
    let request = netfilter_message(GET_RULE, REQUEST | DUMP, INET, 0, 1, &attribute(1, TABLE));
    socket.send(&request).map_err(refused("read the rules"))?;
    let mut found = 0;
    loop {
        for Answer { kind, body, .. } in receive(&mut socket)? {
            match kind {
                DONE => return Ok(found == rules(ports).len()),
                // Without the table, new kernels answer ENOENT and old kernels send no rule.
                ERROR => match error_of(&body) {
                    Some(Errno::NOENT) => return Ok(false),
                    Some(error) => return Err(refused("read the rules")(error)),
                    None => {}
                },
                NEW_RULE if is_ours(&body) => found += 1,
                _ => {}
            }
        }
    }
}

/// True if a rule is in the table. Some kernels ignore the name in the request and send all rules.
fn is_ours(body: &[u8]) -> bool {
    let mut is_ours = false;
    // The message begins with four bytes of nfnetlink, the first of which is the family.
    let mut rest = body.get(4..).unwrap_or_default();
    while let Some((kind, value, after)) = next_attribute(rest) {
        is_ours |= kind == 1 && value == TABLE;
        rest = after;
    }
    body.first() == Some(&INET) && is_ours
}

/// Returns all rules: the chain and the expressions of each.
fn rules(ports: &AgentPorts) -> Vec<(&'static [u8], Vec<u8>)> {
    let dropping = |chain| drop_rules().into_iter().map(move |rule| (chain, rule));
    let keeping = |chain| agent_port_rules(ports).into_iter().map(move |rule| (chain, rule));
    let all = dropping(DROP_RULES).chain(dropping(DROP_FORWARDED));
    let all = all.chain(keeping(AGENT_PORTS)).chain(keeping(AGENT_PORTS_OUTPUT));
    let dropped =
        |chain, matched: Vec<u8>| (chain, [matched, expression("counter", &[]), verdict(DROP)].concat());
    let to_ports = ends(ports).flat_map(move |(address, port)| {
        let translated = [to(address), to_port(TCP, port), has_status(TRANSLATED)].concat();
        let forged = [from(address), from_port(TCP, port), is_not_loopback(), is_original()].concat();
        [dropped(TRANSLATED_TO_PORTS, translated), dropped(TRANSLATED_TO_PORTS, forged)]
    });
    let from_ports = ends(ports).map(move |(address, port)| {
        let matched = [from(address), from_port(TCP, port), is_original(), has_status(SOURCE_TRANSLATED)];
        dropped(TRANSLATED_FROM_PORTS, matched.concat())
    });
    all.chain(to_ports).chain(from_ports).collect()
}

/// Returns each port of each address.
fn ends(ports: &AgentPorts) -> impl Iterator<Item = (IpAddr, u16)> {
    ports.addresses.iter().flat_map(|address| ports.ports.iter().map(|port| (*address, *port)))
}

/// Returns the drop rules: per address, DNS by TCP and by UDP is accepted and everything else is dropped.
///
/// One rule that drops all ports except DNS would not match later fragments, because such fragments have no port.
fn drop_rules() -> Vec<Vec<u8>> {
    let addresses = MetadataEndpoint::ALL.iter().flat_map(|endpoint| endpoint.addresses());
    let of_addresses = addresses.flat_map(|address| {
        let dns = |protocol| [to(*address), to_port(protocol, DNS_PORT), verdict(ACCEPT)].concat();
        let counted = expression("counter", &[]);
        [dns(TCP), dns(UDP), [to(*address), counted, verdict(DROP)].concat()]
    });
    std::iter::once(own_packets()).chain(of_addresses).collect()
}

/// Accepts what the node sends to itself. Where a metadata address is the node's own, the node's processes reach it over `lo`, and no
/// packet of another network does. `lo` has the index 1 in each network namespace (`LOOPBACK_IFINDEX`, Linux `include/net/flow.h`).
fn own_packets() -> Vec<u8> {
    [meta(META_IIF), equals(&LOOPBACK.to_ne_bytes()), verdict(ACCEPT)].concat()
}

const META_IIF: u32 = 4;
const LOOPBACK: u32 = 1;

/// Returns the rules that translate each port of each address to itself.
fn agent_port_rules(ports: &AgentPorts) -> Vec<Vec<u8>> {
    ends(ports)
        .map(|(address, port)| [to(address), to_port(TCP, port), translate_to(address)].concat())
        .collect()
}

/// Translates the destination of a new connection to this address, and leaves the port.
fn translate_to(address: IpAddr) -> Vec<u8> {
    const DESTINATION: u32 = 1;
    let (family, bytes) = match address {
        IpAddr::V4(v4) => (IPV4, v4.octets().to_vec()),
        IpAddr::V6(v6) => (IPV6, v6.octets().to_vec()),
    };
    let value = attribute(2 | NESTED, &attribute(1, &bytes));
    let loaded = expression("immediate", &[attribute(1, &REGISTER), value].concat());
    let numbers = [DESTINATION, u32::from(family)].map(u32::to_be_bytes);
    let [kind, family] = numbers;
    let nat = [attribute(1, &kind), attribute(2, &family), attribute(3, &REGISTER)].concat();
    [loaded, expression("nat", &nat)].concat()
}

/// Matches packets to an address, by the bytes of the destination address in the network header (RFC 791, RFC 8200).
fn to(address: IpAddr) -> Vec<u8> {
    address_at([16, 24], address)
}

/// Matches packets from an address.
fn from(address: IpAddr) -> Vec<u8> {
    address_at([12, 8], address)
}

/// Matches packets with these bytes at an offset of the network header. `offsets` has the offsets of IPv4 and of IPv6.
fn address_at(offsets: [u32; 2], address: IpAddr) -> Vec<u8> {
    let (family, at, bytes) = match address {
        IpAddr::V4(v4) => (IPV4, offsets[0], v4.octets().to_vec()),
        IpAddr::V6(v6) => (IPV6, offsets[1], v6.octets().to_vec()),
    };
    const NETWORK_HEADER: u32 = 1;
    // Without the family, the bytes of a packet of the other family could match.
    const META_NFPROTO: u32 = 15;
    [meta(META_NFPROTO), equals(&[family]), payload(NETWORK_HEADER, at, bytes.len()), equals(&bytes)].concat()
}

/// Matches packets of a transport protocol to a port (RFC 768, RFC 9293).
fn to_port(protocol: u8, port: u16) -> Vec<u8> {
    port_at(2, protocol, port)
}

/// Matches packets of a transport protocol from a port.
fn from_port(protocol: u8, port: u16) -> Vec<u8> {
    port_at(0, protocol, port)
}

fn port_at(offset: u32, protocol: u8, port: u16) -> Vec<u8> {
    const TRANSPORT_HEADER: u32 = 2;
    const META_L4PROTO: u32 = 16;
    let port = port.to_be_bytes();
    [meta(META_L4PROTO), equals(&[protocol]), payload(TRANSPORT_HEADER, offset, 2), equals(&port)].concat()
}

// `linux/netfilter/nf_tables.h` (`enum nft_ct_keys`) and `linux/netfilter/nf_conntrack_common.h`: keys of a connection, and their bits.
const DIRECTION: u32 = 1;
const STATUS: u32 = 2;
/// The bit of a connection whose source was translated (`IPS_SRC_NAT`).
const SOURCE_TRANSLATED: u32 = 1 << 4;
/// The bits of a connection of which an end was translated to another one (`IPS_NAT_MASK`).
const TRANSLATED: u32 = SOURCE_TRANSLATED | 1 << 5;

/// Matches packets in the direction of the packet that opened their connection (`IP_CT_DIR_ORIGINAL`).
fn is_original() -> Vec<u8> {
    const ORIGINAL: u8 = 0;
    [of_connection(DIRECTION), equals(&[ORIGINAL])].concat()
}

/// Matches packets that arrived from another device than `lo`.
fn is_not_loopback() -> Vec<u8> {
    [meta(META_IIF), compares(NOT_EQUAL, &LOOPBACK.to_ne_bytes())].concat()
}

/// Reads a property of a packet's connection. Connection tracking must have run before.
fn of_connection(key: u32) -> Vec<u8> {
    expression("ct", &[attribute(1, &REGISTER), attribute(2, &key.to_be_bytes())].concat())
}

/// Matches packets whose connection has one of these bits in its status.
fn has_status(bits: u32) -> Vec<u8> {
    let value = |bits: u32| attribute(1, &bits.to_ne_bytes());
    let masked = [
        attribute(1, &REGISTER),
        attribute(2, &REGISTER),
        attribute(3, &4_u32.to_be_bytes()),
        attribute(4 | NESTED, &value(bits)),
        attribute(5 | NESTED, &value(0)),
    ];
    let masked = expression("bitwise", &masked.concat());
    [of_connection(STATUS), masked, compares(NOT_EQUAL, &0_u32.to_ne_bytes())].concat()
}

/// The register that each expression writes or reads (`NFT_REG_1`), and the register of the verdict.
const REGISTER: [u8; 4] = 1_u32.to_be_bytes();
const VERDICT_REGISTER: [u8; 4] = 0_u32.to_be_bytes();

fn meta(key: u32) -> Vec<u8> {
    expression("meta", &[attribute(1, &REGISTER), attribute(2, &key.to_be_bytes())].concat())
}

fn payload(header: u32, offset: u32, length: usize) -> Vec<u8> {
    let length = u32::try_from(length).unwrap_or_default();
    let values = [header, offset, length].map(u32::to_be_bytes);
    let attributes = (2_u16..).zip(values).flat_map(|(kind, value)| attribute(kind, &value));
    expression("payload", &attribute(1, &REGISTER).into_iter().chain(attributes).collect::<Vec<_>>())
}

// `enum nft_cmp_ops`.
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

fn equals(value: &[u8]) -> Vec<u8> {
    compares(EQUAL, value)
}

fn compares(how: u32, value: &[u8]) -> Vec<u8> {
    let value = attribute(3 | NESTED, &attribute(1, value));
    expression("cmp", &[attribute(1, &REGISTER), attribute(2, &how.to_be_bytes()), value].concat())
}

fn verdict(code: u32) -> Vec<u8> {
    let code = attribute(2 | NESTED, &attribute(1, &code.to_be_bytes()));
    expression("immediate", &[attribute(1, &VERDICT_REGISTER), attribute(2 | NESTED, &code)].concat())
}

/// Returns an element of a rule's list of expressions.
fn expression(name: &str, attributes: &[u8]) -> Vec<u8> {
    let named = attribute(1, &[name.as_bytes(), &[0]].concat());
    attribute(1 | NESTED, &[named, attribute(2 | NESTED, attributes)].concat())
}

/// Returns a message: the header of netlink, the header of nfnetlink, and the attributes. `resource` has network byte order.
fn netfilter_message(
    kind: u16,
    flags: u16,
    family: u8,
    resource: u16,
    sequence: u32,
    attributes: &[u8],
) -> Vec<u8> {
    let [high, low] = resource.to_be_bytes();
    message(kind, flags, sequence, &[&[family, 0, high, low], attributes].concat())
}

/// Messages that the kernel applies together.
struct Batch {
    bytes: Vec<u8>,
    /// The sequence number of the last message.
    sequence: u32,
}

impl Batch {
    fn new() -> Self {
        Self { bytes: netfilter_message(BATCH_BEGIN, REQUEST, 0, NF_TABLES, 0, &[]), sequence: 0 }
    }

    fn push(&mut self, kind: u16, flags: u16, attributes: &[u8]) {
        self.sequence += 1;
        let flags = REQUEST | ACK | flags;
        self.bytes.extend(netfilter_message(kind, flags, INET, 0, self.sequence, attributes));
    }

    /// Adds the table before it removes it, because the kernel refuses to remove a missing table.
    fn remove_table(&mut self) {
        self.push(NEW_TABLE, CREATE, &attribute(1, TABLE));
        self.push(DELETE_TABLE, 0, &attribute(1, TABLE));
    }

    fn send(mut self) -> Result<(), Error> {
        self.bytes.extend(netfilter_message(BATCH_END, REQUEST, 0, NF_TABLES, self.sequence + 1, &[]));
        let mut socket = open_socket()?;
        socket.send(&self.bytes).map_err(refused("load the drop rules"))?;
        // The kernel answers each message once it has applied or refused the whole batch.
        let mut answers = 0;
        while answers < self.sequence {
            for Answer { kind, body, .. } in receive(&mut socket)? {
                if kind == ERROR {
                    error_of(&body).map_or(Ok(()), |error| Err(refused("load the drop rules")(error)))?;
                    answers += 1;
                }
            }
        }
        Ok(())
    }
}

fn open_socket() -> Result<NetlinkSocket, Error> {
    NetlinkSocket::open(Some(NETFILTER)).map_err(refused("open a netfilter socket"))
}

fn receive(socket: &mut NetlinkSocket) -> Result<Vec<Answer>, Error> {
    socket.receive().map_err(refused("receive the kernel's answer"))
}

/// Creates a function for `map_err`. These errors mean that the kernel lacks netfilter's sockets, nf_tables, or tables for both
/// families.
fn refused(doing: &'static str) -> impl FnOnce(Errno) -> Error {
    move |error| match error {
        Errno::OPNOTSUPP | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => Error::NoNfTables(error.into()),
        Errno::PERM => Error::MissingCapability { missing: "CAP_NET_ADMIN".to_owned() },
        error => Error::Netfilter { doing, source: io::Error::from(error) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_nf_tables_is_told_from_a_missing_capability() {
        assert!(matches!(refused("x")(Errno::OPNOTSUPP), Error::NoNfTables(_)));
        assert!(matches!(refused("x")(Errno::PERM), Error::MissingCapability { .. }));
    }

    #[test]
    fn each_metadata_address_has_two_exceptions_for_dns_and_a_rule_that_drops() {
        let addresses: usize = MetadataEndpoint::ALL.iter().map(|endpoint| endpoint.addresses().len()).sum();
        // Before and after address translation.
        let dropping = 2 * (1 + 3 * addresses);
        assert_eq!(rules(&AgentPorts::default()).len(), dropping);
        let ports = AgentPorts { addresses: vec![IpAddr::from([10, 0, 0, 1])], ports: vec![8988, 8986] };
        // For each of two ports: its translation for packets that arrive and that the node sends, and three that drop.
        assert_eq!(rules(&ports).len(), dropping + 5 * 2);
        let both = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1])];
        assert_eq!(rules(&AgentPorts { addresses: both.into(), ..ports }).len(), dropping + 5 * 2 * 2);
    }
}
