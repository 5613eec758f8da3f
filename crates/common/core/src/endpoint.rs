//! The addresses to which clients of the clouds send requests. The kernel programs hold them, too (`redirect/ebpf/capture.bpf.c`,
//! `place4` and `place6`); the tests of `redirect` in network namespaces check that the two lists agree.
//!
//! The module knows no dialect: [`crate::cloud`] maps each dialect to an endpoint. `redirect` sends connections to these addresses to
//! the agent, and `identity` chooses the agent's port that answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A metadata service and its addresses; it decides which of the agent's ports answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataEndpoint {
    /// The machine's metadata: Google's server, and AWS's instance metadata.
    Metadata,
    /// AWS's endpoint for containers (EKS Pod Identity).
    Containers,
}

/// The addresses of the metadata services. 169.254.169.254: Google, AWS and Azure; fd20:ce::254: Google ("Access VM metadata",
/// Compute Engine); fd00:ec2::254: AWS ("Instance Metadata Service", IPv6 on Nitro).
pub const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// The addresses of the credentials endpoint for containers. Source: "EKS Pod Identity Agent" of AWS's user guide.
pub const CONTAINERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
];

/// The port of all these addresses.
pub const PORT: u16 = 80;

/// The port that is never captured: 169.254.169.254 is a DNS server on Google's machines ("Internal DNS").
pub const DNS: u16 = 53;

impl MetadataEndpoint {
    /// Both endpoints.
    pub const ALL: [Self; 2] = [Self::Metadata, Self::Containers];

    /// Its addresses.
    #[must_use]
    pub const fn addresses(self) -> &'static [IpAddr] {
        match self {
            Self::Metadata => &METADATA,
            Self::Containers => &CONTAINERS,
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
        assert_eq!(texts(MetadataEndpoint::Containers), ["169.254.170.23", "fd00:ec2::23"]);
    }
}
