//! Parses the addresses of the node that Kubernetes reports. Does no I/O: an address in the list need not be bound on this machine.

use std::net::IpAddr;
use std::str::FromStr;

/// The node's addresses: at most one IPv4 address and one IPv6 address, in the order in which Kubernetes lists them.
///
/// The redirect's programs know one address of each family, so the first address of each family counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    first: Option<IpAddr>,
    /// The address of the other family.
    second: Option<IpAddr>,
}

/// The format of a list of addresses.
pub const NODE_ADDRESSES_FORMAT_HINT: &str = "IP addresses of the node, such as 10.0.0.1 or 10.0.0.1,fd00::1";

impl NodeAddresses {
    /// Returns the addresses, the first one of the list first.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        [self.first, self.second].into_iter().flatten()
    }

    /// True if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl FromIterator<IpAddr> for NodeAddresses {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let mut addresses = addresses.into_iter().map(|address| address.to_canonical());
        let first = addresses.next();
        let second = addresses.find(|next| first.is_some_and(|first| first.is_ipv4() != next.is_ipv4()));
        Self { first, second }
    }
}

impl From<IpAddr> for NodeAddresses {
    fn from(address: IpAddr) -> Self {
        Self::from_iter([address])
    }
}

impl FromStr for NodeAddresses {
    type Err = std::net::AddrParseError;

    /// Parses addresses that commas separate, as `status.hostIPs` is written into an environment variable. An empty text has no addresses.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let items = text.split(',').map(str::trim);
        let items: Vec<_> = if text.trim().is_empty() { Vec::new() } else { items.collect() };
        items.into_iter().map(IpAddr::from_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Vec<String>> {
        let addresses: NodeAddresses = text.parse().ok()?;
        Some(addresses.iter().map(|address| address.to_string()).collect())
    }

    #[test]
    fn the_first_address_of_each_family_counts_in_the_order_of_the_list() {
        for (text, expected) in [
            ("10.0.0.1", &["10.0.0.1"][..]),
            ("10.0.0.1,fd00::1", &["10.0.0.1", "fd00::1"]),
            ("fd00::1, 10.0.0.1", &["fd00::1", "10.0.0.1"]),
            ("10.0.0.1,10.0.0.2,fd00::1,fd00::2", &["10.0.0.1", "fd00::1"]),
            ("fd00::1,fd00::2", &["fd00::1"]),
            ("", &[]),
        ] {
            assert_eq!(parsed(text).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address_that_it_maps() {
        assert_eq!(parsed("::ffff:10.0.0.1,10.0.0.2").unwrap(), ["10.0.0.1"]);
        assert_eq!(parsed("fd00::1,::ffff:10.0.0.1").unwrap(), ["fd00::1", "10.0.0.1"]);
    }

    #[test]
    fn a_list_with_one_item_that_is_no_address_is_refused() {
        for text in ["here", "10.0.0.1,", ",10.0.0.1", "10.0.0.1;fd00::1", "10.0.0.1,10.0.0", "fe80::1%eth0"]
        {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }
}
