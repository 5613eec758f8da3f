//! The addresses to which cloud clients send their requests. The kernel programs contain the same addresses
//! (`redirect/ebpf/capture.bpf.c`, `place4` and `place6`). The network-namespace tests of `redirect` check that the two lists
//! agree.
//!
//! This module contains no dialects: [`crate::cloud`] maps each dialect to an endpoint. `redirect` directs connections for these
//! addresses to the agent, and `identity` selects the agent's port that answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A metadata service with its addresses. The endpoint determines which port of the agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataEndpoint {
    /// The metadata of the machine: Google's metadata server, and AWS's instance metadata service.
    Metadata,
    /// AWS's endpoint for containers (EKS Pod Identity).
    ContainerCredentials,
}

/// The addresses of the metadata services. Google, AWS and Azure use 169.254.169.254.
/// Google also uses fd20:ce::254 ("Access VM metadata", Compute Engine). AWS also uses fd00:ec2::254 ("Instance Metadata
/// Service", IPv6 on Nitro).
pub const METADATA_ADDRESSES: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// The addresses of the credentials endpoint for containers. Source: "EKS Pod Identity Agent" in the AWS user guide.
pub const CONTAINER_CREDENTIALS_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
];

/// The URL at which a node, and a pod that nothing captures, reaches the real metadata server of either cloud.
pub const REAL_SERVER_URL: &str = "http://169.254.169.254";

/// The TCP port of all these addresses.
pub const METADATA_PORT: u16 = 80;

/// The port that the agent never captures, because 169.254.169.254 is also a DNS server on Google's machines ("Internal DNS").
pub const DNS_PORT: u16 = 53;

impl MetadataEndpoint {
    /// All metadata endpoints.
    pub const ALL: [Self; 2] = [Self::Metadata, Self::ContainerCredentials];

    /// Returns the addresses of this endpoint.
    #[must_use]
    pub const fn addresses(self) -> &'static [IpAddr] {
        match self {
            Self::Metadata => &METADATA_ADDRESSES,
            Self::ContainerCredentials => &CONTAINER_CREDENTIALS_ADDRESSES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_clouds_documentation() {
        let texts = |endpoint: MetadataEndpoint| {
            endpoint.addresses().iter().map(IpAddr::to_string).collect::<Vec<_>>()
        };
        assert_eq!(texts(MetadataEndpoint::Metadata), ["169.254.169.254", "fd20:ce::254", "fd00:ec2::254"]);
        assert_eq!(texts(MetadataEndpoint::ContainerCredentials), ["169.254.170.23", "fd00:ec2::23"]);
    }
}
