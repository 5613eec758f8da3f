//! Writes whole responses of the metadata service to a buffer that the agent reuses.
//!
//! The header with a token's lifetime occurs only on a response that grants a token. Without this header, the SDKs for Go, Ruby
//! and Rust accept no token. If a refusal had this header, the SDK for Rust would use the refusal's body as a token for hours.

use seawall_http::head_writer;

use super::super::credentials::{CredentialsDocument, DocumentFormat};
use super::super::refuse;
use super::super::role::RoleName;
use super::super::session_token::GrantedToken;
use super::super::time::Iso8601Time;
use super::{MetadataText, TOKEN_METHOD_NOT_ALLOWED, TTL};
use seawall_http::{Refusal, ResponseContext};

/// The constant headers of every response, with the server name of the real service.
const ALWAYS: &[u8] = b"Server: EC2ws\r\n";
const TEXT: &[u8] = b"Content-Type: text/plain\r\n";
const SECRET_TEXT: &[u8] = b"Cache-Control: no-store\r\nContent-Type: text/plain\r\n";

/// Writes a session token and its lifetime. The body is only the token, because a line end after the token breaks all clients
/// except two.
pub fn write_token(out: &mut Vec<u8>, frame: &ResponseContext<'_>, grant: &GrantedToken) {
    frame.begin_head(out, 200, ALWAYS);
    out.extend_from_slice(TTL.as_bytes());
    out.extend_from_slice(b": ");
    head_writer::write_decimal(out, grant.ttl.as_secs());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(SECRET_TEXT);
    frame.end_with_body(out, &[grant.token()]);
}

/// Writes the name of the pod's role, without a line end.
///
/// Three clients insert the response into the path of their next request. Two of these clients abort if the response has a line
/// end.
pub fn write_role_name(out: &mut Vec<u8>, frame: &ResponseContext<'_>, role: &RoleName) {
    frame.begin_head(out, 200, ALWAYS);
    out.extend_from_slice(TEXT);
    frame.end_with_body(out, &[role.as_str().as_bytes()]);
}

/// Writes the document of a role. The response has `Cache-Control: no-store`.
pub fn write_credentials(
    out: &mut Vec<u8>,
    frame: &ResponseContext<'_>,
    credentials: &CredentialsDocument<'_>,
    shape: DocumentFormat,
) {
    frame.begin_head(out, 200, ALWAYS);
    out.extend_from_slice(SECRET_TEXT);
    credentials.write_imds_document(out, frame, shape);
}

/// The information about a pod's role. Its texts contain no character that needs an escape in JSON.
#[derive(Clone, Copy, Debug)]
pub struct RoleInfo<'a> {
    /// The ARN of an instance profile. A pod has no instance profile, but some tools read the account from this ARN.
    pub profile_arn: &'a str,
    /// The profile's id, if the configuration has one.
    pub profile_id: Option<&'a str>,
    /// The time of the last update.
    pub last_updated: Iso8601Time,
}

/// Writes the document of `iam/info`.
pub fn write_role_info(out: &mut Vec<u8>, frame: &ResponseContext<'_>, info: &RoleInfo<'_>) {
    frame.begin_head(out, 200, ALWAYS);
    out.extend_from_slice(TEXT);
    let before_id: &[u8] = if info.profile_id.is_some() { b"\",\n  \"InstanceProfileId\" : \"" } else { b"" };
    frame.end_with_body(
        out,
        &[
            b"{\n  \"Code\" : \"Success\",\n  \"LastUpdated\" : \"",
            info.last_updated.as_bytes(),
            b"\",\n  \"InstanceProfileArn\" : \"",
            info.profile_arn.as_bytes(),
            before_id,
            info.profile_id.unwrap_or_default().as_bytes(),
            b"\"\n}",
        ],
    );
}

/// Writes a text from the agent's configuration.
pub fn write_text(out: &mut Vec<u8>, frame: &ResponseContext<'_>, known: &MetadataText<'_>) {
    frame.begin_head(out, 200, ALWAYS);
    out.extend_from_slice(TEXT);
    frame.end_with_body(out, &[known.body.as_bytes()]);
}

/// Writes a refusal.
pub fn write_refusal(out: &mut Vec<u8>, frame: &ResponseContext<'_>, refusal: &Refusal) {
    let allow: &[u8] =
        if *refusal == TOKEN_METHOD_NOT_ALLOWED { b"Allow: PUT\r\n" } else { b"Allow: GET, HEAD\r\n" };
    refuse::write_refusal(out, frame, ALWAYS, allow, refusal);
}

/// Writes the real service's response for an allowed path: its status, some of its headers, and its body.
pub fn write_passthrough<'h>(
    out: &mut Vec<u8>,
    frame: &ResponseContext<'_>,
    status: u16,
    headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    body: &[u8],
) {
    frame.begin_head(out, status, ALWAYS);
    let is_passed = |name: &str| PASSED.iter().any(|passed| name.eq_ignore_ascii_case(passed));
    for (name, value) in headers {
        if is_passed(name) && head_writer::is_header_value(value) {
            head_writer::write_header(out, name, value);
        }
    }
    frame.end_with_body(out, &[body]);
}

/// The headers of the real service that the agent forwards to clients.
///
/// The body can be compressed. Without `Content-Encoding`, a client would mistake compressed bytes for text. The agent does not
/// forward the header with a token's lifetime, because the agent issues its own tokens.
const PASSED: [&str; 4] = ["Content-Type", "Content-Encoding", "ETag", "Last-Modified"];
