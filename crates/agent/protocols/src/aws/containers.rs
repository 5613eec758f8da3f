//! Implements the container credentials endpoint of EKS: `GET /v1/credentials` with a Kubernetes token in `Authorization`.
//!
//! This module only extracts the token and limits its length. The `clouds` crate checks the token's pod, audience and expiry
//! time. The agent identifies the client by its connection, not by the token. An attacker's host name can resolve to the
//! endpoint's address (DNS rebinding), and a browser then sends that name in the Host header. So the endpoint also checks the
//! Host header.

use std::net::IpAddr;

use seawall_http::RequestHead;

use super::credentials::CredentialsDocument;
use super::{NOT_FOUND, REQUEST_PATH_CHARSET, header_checks, refuse};
use crate::request_head_rules::require_no_body;
use seawall_http::path::{self, BAD_TARGET};
use seawall_http::{Refusal, ResponseContext};

/// The addresses to which SDKs send a token even over plain HTTP, according to the SDKs' source code. EKS uses 169.254.170.23
/// and the IPv6 address, and ECS uses 169.254.170.2.
pub const ADDRESSES: [IpAddr; 3] = [
    IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 170, 2)),
];

/// The path of the endpoint in EKS.
pub const PATH: &str = "/v1/credentials";

/// The longest accepted token, in bytes. A bound ServiceAccount token has 1 to 2 KiB.
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// The refusal for a method other than GET and HEAD.
pub const METHOD_NOT_ALLOWED: Refusal =
    Refusal::new(405, "method_not_allowed", "Use GET or HEAD to read credentials.");
/// The refusal for a Host header that is not one of the endpoint's addresses.
pub const INVALID_HOST: Refusal =
    Refusal::new(403, "invalid_host", "The Host header is not an address of this credentials endpoint.");
/// The refusal for a request without a token. After this refusal, the second generation of the Java SDK asks the metadata
/// service for credentials.
pub const NO_AUTHORIZATION: Refusal = Refusal::new(
    401,
    "no_authorization",
    "The request lacks the pod's token in the Authorization header; see AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE.",
);
/// The refusal for an Authorization header that cannot be a Kubernetes token.
pub const BAD_AUTHORIZATION: Refusal = Refusal::new(
    401,
    "bad_authorization",
    "The Authorization header must hold the content of the pod's token file and nothing else.",
);

/// The endpoint with its addresses.
#[derive(Clone, Debug)]
pub struct ContainerCredentialsEndpoint {
    addresses: Vec<IpAddr>,
}

/// A request for the credentials of the pod to which the token belongs.
///
/// The type has no `Debug`, because the token is a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ContainerCredentialsQuery<'b> {
    /// The token. It has the format of a JWT and is not verified yet.
    pub token: &'b str,
}

/// True if a canonical path belongs to this endpoint. The agent selects the endpoint with this check, because several endpoints
/// can share an address.
pub fn is_endpoint_path(path: &str) -> bool {
    path.strip_suffix('/').unwrap_or(path) == PATH
}

impl ContainerCredentialsEndpoint {
    /// Creates the endpoint at these addresses, with any port. See [`ADDRESSES`].
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { addresses: addresses.into_iter().collect() }
    }

    /// Parses a request.
    ///
    /// If the error is [`UNEXPECTED_BODY`](crate::request_head_rules::UNEXPECTED_BODY), the caller must close the connection.
    ///
    /// # Errors
    /// The rule that forbids the request:
    ///
    /// - 405: [`METHOD_NOT_ALLOWED`].
    /// - 400: a body, an invalid path, or a repeated header.
    /// - 403: [`INVALID_HOST`], or a proxied request.
    /// - 401: [`NO_AUTHORIZATION`] or [`BAD_AUTHORIZATION`].
    /// - 404: any other path.
    pub fn parse_request<'b>(
        &self,
        head: &RequestHead<'_, 'b>,
    ) -> Result<ContainerCredentialsQuery<'b>, Refusal> {
        if !matches!(head.method, "GET" | "HEAD") {
            return Err(METHOD_NOT_ALLOWED);
        }
        require_no_body(head)?;
        header_checks::require_not_proxied(head)?;
        self.host(head)?;
        let path = path::canonicalise_target_with(head.target, &REQUEST_PATH_CHARSET)?.path;
        if !is_endpoint_path(path.as_str()) {
            return Err(NOT_FOUND);
        }
        let value = header_checks::find_single(head, "Authorization")?.ok_or(NO_AUTHORIZATION)?;
        Ok(ContainerCredentialsQuery { token: jwt(value)? })
    }

    /// Checks the Host header. The target must not contain a host, because that host could contradict the header.
    fn host(&self, head: &RequestHead<'_, '_>) -> Result<(), Refusal> {
        if !head.target.starts_with('/') {
            return Err(BAD_TARGET);
        }
        let host = header_checks::find_single(head, "Host")?.and_then(address).ok_or(INVALID_HOST)?;
        if self.addresses.contains(&host) { Ok(()) } else { Err(INVALID_HOST) }
    }
}

/// Returns the address in a Host header with any port, or `None` if the header contains a name.
fn address(host: &[u8]) -> Option<IpAddr> {
    let host = std::str::from_utf8(host).ok()?;
    if let Some(bracketed) = host.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        let address = address.parse().ok().map(IpAddr::V6)?;
        return (port.is_empty() || is_port(port.strip_prefix(':')?)).then_some(address);
    }
    let (address, port) = host.split_once(':').unwrap_or((host, "80"));
    is_port(port).then(|| address.parse().ok().map(IpAddr::V4))?
}

fn is_port(port: &str) -> bool {
    port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Checks that the header contains exactly the content of the token file.
///
/// A token consists of three base64url parts, separated by dots (RFC 7515 section 7.1). No scheme such as `Bearer` precedes the
/// token.
fn jwt(value: &[u8]) -> Result<&str, Refusal> {
    let text = std::str::from_utf8(value).map_err(|_| BAD_AUTHORIZATION)?;
    if text.is_empty() {
        return Err(NO_AUTHORIZATION);
    }
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_letter);
    let mut parts = text.split('.');
    let has_three = parts.by_ref().take(3).filter(|part| is_part(part)).count() == 3;
    if text.len() <= MAX_TOKEN_BYTES && has_three && parts.next().is_none() {
        Ok(text)
    } else {
        Err(BAD_AUTHORIZATION)
    }
}

/// The constant headers of every response. There are none, because clients of this endpoint do not check the server's name.
const ALWAYS: &[u8] = b"";

/// Writes the credentials of the pod. The response has `Cache-Control: no-store`.
pub fn write_credentials(
    out: &mut Vec<u8>,
    frame: &ResponseContext<'_>,
    credentials: &CredentialsDocument<'_>,
) {
    frame.begin_head(out, 200, ALWAYS);
    out.extend_from_slice(b"Cache-Control: no-store\r\nContent-Type: application/json\r\n");
    credentials.write_container_document(out, frame);
}

/// Writes a refusal.
///
/// Every request must get a response soon, because five of the measured clients wait without a timeout.
pub fn write_refusal(out: &mut Vec<u8>, frame: &ResponseContext<'_>, refusal: &Refusal) {
    refuse::write_refusal(out, frame, ALWAYS, b"Allow: GET, HEAD\r\n", refusal);
}
