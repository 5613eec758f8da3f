//! Names from the user: which are valid, and which need no name server.

use std::net::IpAddr;

/// The most bytes of a whole name, and between two dots (RFC 1035 section 2.3.4).
const LONGEST: [usize; 2] = [253, 63];

/// Checks a name for a lookup: an address, or letters, digits, hyphens and underscores between single dots.
///
/// # Errors
/// The expected form of a name.
pub fn validated(name: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=LONGEST[1]).contains(&label.len()) && label.bytes().all(is_byte)
    };
    let short = name.strip_suffix('.').unwrap_or(name);
    let is_name = short.len() <= LONGEST[0] && short.split('.').all(is_label);
    if is_name || name.parse::<IpAddr>().is_ok() {
        return Ok(name.to_owned());
    }
    Err("not a valid name: expected letters, digits, hyphens and underscores, at most 63 between two dots and 253 in total".to_owned())
}

/// Returns the reason why a name needs no name server, if so.
pub(super) fn local_answer_reason(name: &str, hosts: &str) -> Option<&'static str> {
    let short = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if name.parse::<IpAddr>().is_ok() {
        return Some("it is an address");
    }
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let mut names = lines.flat_map(|line| line.split_ascii_whitespace().skip(1));
    if names.any(|known| known.eq_ignore_ascii_case(&short)) {
        return Some("/etc/hosts has it, and the C library reads that file first");
    }
    // RFC 6761 section 6.3.
    let is_own = short == "localhost" || short.ends_with(".localhost");
    is_own.then_some("it is this machine")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_no_question_is_refused() {
        let long = ["a"; 127].join(".");
        for name in [
            "a..b",
            "",
            ".",
            ".a",
            "a b",
            "http://a/",
            "a:80",
            "a/b",
            &"a".repeat(64),
            &format!("{long}.a"),
            "a\0",
            "ä.de",
        ] {
            assert!(validated(name).is_err(), "{name}");
        }
        for name in [
            "a",
            "a.b.",
            "db_1.shop",
            "_http._tcp.a",
            "10.0.0.1",
            "::1",
            "xn--4ca.de",
            &"a".repeat(63),
            &long,
        ] {
            assert_eq!(validated(name).as_deref(), Ok(name));
        }
    }

    #[test]
    fn nobody_is_asked_for_addresses_for_this_machine_and_for_what_its_own_file_names() {
        let hosts = "127.0.0.1 localhost\n10.0.0.7 cart.example cart # basket\n# 10.0.0.8 gone\n";
        for name in ["10.0.0.1", "::1", "localhost", "LOCALHOST.", "a.localhost", "cart", "Cart.Example"] {
            assert!(local_answer_reason(name, hosts).is_some(), "{name}");
        }
        for name in
            ["10.0.0.7.example", "basket", "gone", "localhost.example", "cart.example.org", "10.0.0.7."]
        {
            assert_eq!(local_answer_reason(name, hosts), None, "{name}");
        }
    }
}
