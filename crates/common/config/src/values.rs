//! Converts text of the agent's configuration to checked values, and reads the files that the configuration names.
//!
//! The module contains no configuration keys. It returns `None` for an invalid value. The code that reads the key then reports
//! what was expected. All sections of the agent's configuration use this module.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use seawall_core::name_syntax::{is_dns_subdomain, is_loopback_host};
use seawall_core::{ServiceAccount, file};
use serde::Serializer;

/// The maximum size in bytes of a configuration file and of each file that the configuration names. An identity file has
/// another limit. All public root certificates together have a quarter of this size.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;

/// The maximum length of a name or URL part, in bytes. The clouds' own names are far shorter.
const NAME_LENGTH: usize = 253;

/// Parses a name or a part of a URL: letters, digits, `-`, `_`, `.` and `:`.
pub fn parse_url_safe_name(text: &str) -> Option<String> {
    let fits = !text.is_empty()
        && text.len() <= NAME_LENGTH
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b));
    fits.then(|| text.to_owned())
}

/// Parses a path. A relative path starts at `base`.
pub fn resolve_path(text: &str, base: &Path) -> Option<PathBuf> {
    (!text.is_empty()).then(|| base.join(text))
}

/// Parses an upstream's base URL: https, or plain http to a loopback address. Every request to the upstream contains a
/// Kubernetes token or a cloud credential. Plain http to a loopback address does not leave the machine.
pub fn parse_https_or_loopback_url(text: &str) -> Option<String> {
    let is_sealed = |url: &http::Uri| match url.scheme_str() {
        Some("https") => true,
        Some("http") => url.host().is_some_and(is_loopback_host),
        _ => false,
    };
    base_url(text, is_sealed)
}

/// Parses a base URL with plain http: the URL of a metadata server, whose traffic never leaves the node, or the URL of a proxy.
pub fn parse_plain_http_url(text: &str) -> Option<String> {
    base_url(text, |url| url.scheme_str() == Some("http"))
}

fn base_url(text: &str, is_fit: impl Fn(&http::Uri) -> bool) -> Option<String> {
    let url: http::Uri = text.parse().ok()?;
    let no_path = matches!(url.path(), "" | "/") && url.query().is_none();
    // A URL with a user or a password is invalid. The command `check` would print the password, and no request would send it.
    let nobody = url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    (nobody && url.host().is_some() && no_path && is_fit(&url)).then(|| text.trim_end_matches('/').to_owned())
}

/// True if the URL's host is this machine's loopback.
pub fn is_loopback_url(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|url| url.host().is_some_and(is_loopback_host))
}

/// True if the URL leads to one of these listeners. If an agent were its own upstream, it would send itself another request for
/// each request, until it has no connections left.
pub fn is_own_listener(url: &str, listeners: &[SocketAddr]) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let (host, port) = (url.host().unwrap_or_default(), url.port_u16().unwrap_or(80));
    let is_own = |own: &SocketAddr| {
        let is_same = host.trim_matches(['[', ']']).parse() == Ok(own.ip());
        own.port() == port && (is_same || is_loopback_host(host) && own.ip().is_unspecified())
    };
    listeners.iter().any(is_own)
}

/// Parses a ServiceAccount: `namespace/name`.
pub fn parse_service_account(text: &str) -> Option<ServiceAccount> {
    let (namespace, name) = text.split_once('/')?;
    let (namespace, name) = (parse_dns_name(namespace)?, parse_dns_name(name)?);
    Some(ServiceAccount { namespace: namespace.into(), name: name.into() })
}

/// Parses a DNS subdomain, which is the form of most names in Kubernetes.
pub fn parse_dns_name(text: &str) -> Option<String> {
    is_dns_subdomain(text).then(|| text.to_owned())
}

/// Parses a positive duration with one unit, up to one day.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let span = matches!(unit, "ms" | "s" | "m" | "h").then(|| seawall_core::duration::parse(text))??;
    (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&span).then_some(span)
}

/// Serializes a duration so that [`parse_duration`] can parse it.
///
/// # Errors
/// The serializer fails.
pub fn serialize_duration<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{}ms", span.as_millis()))
}

/// Serializes each item of a list as its text.
///
/// # Errors
/// The serializer fails.
pub fn serialize_as_texts<T: Display, S: Serializer>(items: &[T], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(items.iter().map(ToString::to_string))
}

/// Reads the text of a file that the configuration names.
///
/// # Errors
/// The file cannot be read. The error names the file and the reason.
pub fn read_named_file(path: &Path) -> anyhow::Result<String> {
    let text = file::read_text(path, MAX_FILE_BYTES)
        .map_err(|reason| anyhow::anyhow!("cannot read {}: {reason}", path.display()))?;
    Ok(text.expose().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_kubernetes_takes() {
        assert_eq!(parse_service_account("shop/cart").unwrap().to_string(), "shop/cart");
        for wrong in ["shop", "shop/", "/cart", "shop/cart/x", "Shop/cart", "shop:cart", ""] {
            assert!(parse_service_account(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn durations_have_one_unit_and_a_bound() {
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Some(Duration::from_secs(120)));
        for bad in ["", "5", "s", "0s", "-1s", "25h", "1d", "99999999999999999999s", "1s1s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
