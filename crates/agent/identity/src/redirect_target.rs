//! Chooses the listeners to which the redirect sends the connections that it captures from pods. Does no I/O.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use seawall_core::cloud::DialectName;
use seawall_core::endpoint::MetadataEndpoint;
use seawall_redirect::AgentAddress;

use super::node_addresses::NodeAddresses;

type Listener<'a> = (SocketAddr, &'a [DialectName]);

/// Returns the agent's addresses and ports to which the redirect sends connections.
///
/// For each endpoint (metadata, container credentials), the result has the port of one listener: the first that pods can reach
/// and that serves the endpoint. The result has at most one address of each IP family, and an endpoint's port is the same in
/// both families. For a listener on all addresses (`0.0.0.0` or `::`), the result has the addresses `node`.
///
/// # Errors
/// Pods cannot reach any listener, or the listeners of the two endpoints have different addresses.
pub(crate) fn agent_address<'a>(
    spoken: impl IntoIterator<Item = Listener<'a>>,
    node: NodeAddresses,
) -> Result<AgentAddress, String> {
    let reach = |(at, dialects): Listener<'a>| {
        reachable(at, node).into_iter().map(move |at| (at, dialects)).collect::<Vec<_>>()
    };
    let listeners: Vec<_> = spoken.into_iter().flat_map(reach).collect();
    let first =
        |endpoint| listeners.iter().find(|(_, dialects)| answers(dialects, endpoint)).map(|(at, _)| *at);
    let (metadata, containers) =
        (first(MetadataEndpoint::Metadata), first(MetadataEndpoint::ContainerCredentials));
    let at =
        metadata.or(containers).ok_or("an address of the node that pods can reach, such as node:0")?.ip();
    if containers.is_some_and(|containers| containers.ip() != at) {
        return Err("the same address for metadata and for container credentials".to_owned());
    }
    let ports: Vec<u16> = metadata.iter().chain(&containers).map(SocketAddr::port).collect();
    let has_all = |ip: IpAddr| {
        ports.iter().all(|port| listeners.iter().any(|(at, _)| *at == SocketAddr::new(ip, *port)))
    };
    let other =
        listeners.iter().map(|(at, _)| at.ip()).find(|ip| ip.is_ipv4() != at.is_ipv4() && has_all(*ip));
    let port = |at: Option<SocketAddr>| NonZeroU16::new(at?.port());
    let mut agent = AgentAddress {
        metadata_port: port(metadata),
        container_credentials_port: port(containers),
        ..AgentAddress::default()
    };
    for ip in [Some(at), other].into_iter().flatten() {
        match ip {
            IpAddr::V4(ip) => agent.v4 = Some(ip),
            IpAddr::V6(ip) => agent.v6 = Some(ip),
        }
    }
    Ok(agent)
}

fn answers(dialects: &[DialectName], endpoint: MetadataEndpoint) -> bool {
    dialects.iter().any(|dialect| dialect.endpoint() == endpoint)
}

/// Returns the addresses at which a pod reaches a listener. Returns none for loopback, because a pod's connection to loopback
/// stays inside the pod.
fn reachable(at: SocketAddr, node: NodeAddresses) -> Vec<SocketAddr> {
    let ip = at.ip().to_canonical();
    let addresses: Vec<IpAddr> = if ip.is_unspecified() {
        // A listener on `::` accepts IPv4 and IPv6. A listener on `0.0.0.0` accepts only IPv4.
        node.iter().filter(|node| at.is_ipv6() || node.is_ipv4()).collect()
    } else {
        [ip].into_iter().filter(|ip| !ip.is_loopback()).collect()
    };
    addresses.into_iter().map(|ip| SocketAddr::new(ip, at.port())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOGLE: &[DialectName] = &[DialectName::Google, DialectName::AwsImds];
    const CONTAINERS: &[DialectName] = &[DialectName::AwsContainers];

    /// Returns the addresses and ports as the text `v4 v6 metadata containers`, with `-` for each missing value.
    fn told(listeners: &[(&str, &'static [DialectName])]) -> Result<String, String> {
        told_on("10.0.0.1", listeners)
    }

    fn told_on(node: &str, listeners: &[(&str, &'static [DialectName])]) -> Result<String, String> {
        let listeners = listeners.iter().map(|(at, dialects)| (at.parse().unwrap(), *dialects));
        let node = node.parse().unwrap();
        let AgentAddress {
            v4,
            v6,
            metadata_port: metadata,
            container_credentials_port: containers,
            listener_slot: _,
        } = agent_address(listeners, node)?;
        let text = |value: Option<String>| value.unwrap_or("-".to_owned());
        let port = |port: Option<NonZeroU16>| text(port.map(|port| port.to_string()));
        let (v4, v6) = (text(v4.map(|ip| ip.to_string())), text(v6.map(|ip| ip.to_string())));
        Ok(format!("{v4} {v6} {} {}", port(metadata), port(containers)))
    }

    #[test]
    fn the_first_listener_that_pods_reach_answers_an_endpoint() {
        for (listeners, expected) in [
            (
                &[("127.0.0.1:1", GOOGLE), ("10.0.0.2:2", GOOGLE), ("10.0.0.2:3", GOOGLE)][..],
                "10.0.0.2 - 2 -",
            ),
            (&[("10.0.0.2:2", GOOGLE), ("10.0.0.2:3", CONTAINERS)], "10.0.0.2 - 2 3"),
            (&[("10.0.0.2:3", CONTAINERS)], "10.0.0.2 - - 3"),
            (&[("0.0.0.0:2", GOOGLE)], "10.0.0.1 - 2 -"),
            (&[("[::]:2", GOOGLE)], "10.0.0.1 - 2 -"),
            (&[("[fd00::2]:2", GOOGLE)], "- fd00::2 2 -"),
        ] {
            assert_eq!(told(listeners).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_second_address_counts_where_it_has_the_same_ports() {
        let both = [("10.0.0.2:2", GOOGLE), ("[fd00::2]:2", GOOGLE)];
        assert_eq!(told(&both).unwrap(), "10.0.0.2 fd00::2 2 -");
        let apart = [("10.0.0.2:2", GOOGLE), ("[fd00::2]:3", GOOGLE)];
        assert_eq!(told(&apart).unwrap(), "10.0.0.2 - 2 -");
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_at_each_of_the_nodes_that_it_accepts() {
        for node in ["10.0.0.1,fd00::1", "fd00::1,10.0.0.1"] {
            assert_eq!(told_on(node, &[("[::]:2", GOOGLE)]).unwrap(), "10.0.0.1 fd00::1 2 -");
            assert_eq!(told_on(node, &[("0.0.0.0:2", GOOGLE)]).unwrap(), "10.0.0.1 - 2 -");
        }
        let each = [
            ("[fd00::1]:2", GOOGLE),
            ("10.0.0.1:2", GOOGLE),
            ("[fd00::1]:3", CONTAINERS),
            ("10.0.0.1:3", CONTAINERS),
        ];
        assert_eq!(told_on("fd00::1,10.0.0.1", &each).unwrap(), "10.0.0.1 fd00::1 2 3");
        assert!(told_on("fd00::1", &[("0.0.0.0:2", GOOGLE)]).is_err());
    }

    #[test]
    fn what_pods_cannot_reach_and_what_one_target_cannot_hold_is_refused() {
        assert!(
            told(&[("127.0.0.1:1", GOOGLE), ("[::1]:1", GOOGLE)]).unwrap_err().contains("pods can reach")
        );
        let apart = [("10.0.0.2:2", GOOGLE), ("10.0.0.3:2", CONTAINERS)];
        assert!(told(&apart).unwrap_err().contains("the same address"));
    }
}
