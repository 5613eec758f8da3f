//! Converts IP addresses to the form that the eBPF programs use.

use std::net::IpAddr;

/// Returns an address as 16 bytes in network order, as the eBPF programs write it. An IPv4 address becomes an IPv4-mapped IPv6 address.
pub(crate) fn ipv6_mapped_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_its_mapped_form_are_the_same_bytes() {
        let plain: IpAddr = "10.1.2.3".parse().unwrap();
        let mapped: IpAddr = "::ffff:10.1.2.3".parse().unwrap();
        assert_eq!(ipv6_mapped_octets(plain), ipv6_mapped_octets(mapped));
    }
}
