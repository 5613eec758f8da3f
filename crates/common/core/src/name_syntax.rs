//! Checks the syntax of names as Kubernetes and URLs define them.

use std::net::IpAddr;

/// True for an RFC 1123 label, the format of a namespace (apimachinery `IsDNS1123Label`). A label has at most 63 characters of
/// a-z, 0-9 and `-`.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// True for an RFC 1123 subdomain, the format of pod, node and ServiceAccount names (`IsDNS1123Subdomain`). The name has at most
/// 253 characters. Unlike the RFC, Kubernetes does not limit the length of the labels in the name.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

/// True if a URL's host is a loopback address. Seawall sends tokens over plain HTTP only to such a host.
pub fn is_loopback_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// True for 1 to `longest` bytes of visible ASCII without a quote or backslash. Such text needs no escape in JSON or in a header.
pub fn needs_no_escape(text: &str, longest: usize) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    (1..=longest).contains(&text.len()) && plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: each label of a name was limited to 63 characters, which Kubernetes does not require.
    #[test]
    fn names_are_as_long_as_kubernetes_allows() {
        let long = |n| "a".repeat(n);
        assert!(is_dns_label(&long(63)) && !is_dns_label(&long(64)));
        assert!(is_dns_subdomain(&long(253)) && !is_dns_subdomain(&long(254)));
    }

    #[test]
    fn names_are_those_that_kubernetes_takes() {
        for good in ["a", "cart-0", "0", "a--b"] {
            assert!(is_dns_label(good) && is_dns_subdomain(good), "{good}");
        }
        for wrong in ["", "-a", "a-", "A", "a_b", "a b", "a,b", "é"] {
            assert!(!is_dns_label(wrong) && !is_dns_subdomain(wrong), "{wrong:?}");
        }
        assert!(is_dns_subdomain("a.b-1.c") && !is_dns_label("a.b"));
        assert!(!is_dns_subdomain("a..b") && !is_dns_subdomain(".a") && !is_dns_subdomain("a."));
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for near in ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"] {
            assert!(is_loopback_host(near), "{near}");
        }
        for far in ["", "localhost.example", "10.0.0.1", "0.0.0.0", "[::]", "128.0.0.1", "127.0.0.1.example"]
        {
            assert!(!is_loopback_host(far), "{far}");
        }
    }
}
