//! Implements the EC2 metadata service (IMDSv1 and IMDSv2). This module parses requests and checks their session tokens.
//!
//! The service denies by default. Roles and credentials belong to the pod, and the node's metadata comes from the
//! configuration. A pod can read a path of the real service only if an operator's expression allows the path. No expression can
//! allow the node's credentials. All rules apply to the canonical path, so a client cannot avoid the rules with another
//! encoding of a path.
//!
//! Two rules follow from the behaviour of clients. First, the service grants a token to every client, even to a client that is
//! not identified yet. If the service refuses a token, the client sends its later requests without a token, in some cases until
//! its process ends. Second, if a pod gets no credentials, the service refuses the *listing* of roles. A client that gets a
//! role's name but no credentials can abort its process; a client of the AWS CRT does so.

mod passthrough_paths;
pub mod respond;

use std::borrow::Cow;
use std::time::Duration;

use seawall_http::RequestHead;

use self::passthrough_paths::PassthroughPathPatterns;
use super::credentials::DocumentFormat;
use super::full_match_regex::Pattern;
use super::node_metadata::{InstanceMetadata, InstanceMetadataByPath};
use super::role::{OwnRole, RequestedRole};
use super::session_token::{GrantedToken, MAX_TTL, TokenClient, TokenSigningKeys, TtlLimit};
use super::time::UnixTime;
use super::{IMDS_PATH_CHARSET, NOT_FOUND, header_checks};
use crate::request_head_rules::require_no_body;
use seawall_http::Refusal;
use seawall_http::path::{self, BAD_PATH, CanonicalPath};

/// The refusal for a method other than GET and HEAD.
pub const METHOD_NOT_ALLOWED: Refusal =
    Refusal::new(405, "method_not_allowed", "Use GET or HEAD to read metadata.");
/// The refusal for a GET or HEAD at the token path.
pub const TOKEN_METHOD_NOT_ALLOWED: Refusal =
    Refusal::new(405, "token_method_not_allowed", "Use PUT to request a session token.");
/// The refusal for a token request without a valid lifetime.
///
/// Clients treat 400 as final and conclude that this server supports tokens. After any other status most clients would continue
/// without a token.
pub const BAD_TTL: Refusal = Refusal::new(
    400,
    "bad_ttl",
    "A request for a session token needs the header X-aws-ec2-metadata-token-ttl-seconds with a number from 1 to 21600.",
);
/// The refusal for a token request below a dated version, such as `/2021-01-03/api/token`. Like the real service, the agent
/// grants tokens only below `latest`.
pub const TOKEN_ONLY_AT_LATEST: Refusal =
    Refusal::new(403, "token_only_at_latest", "Request session tokens at /latest/api/token.");
/// The refusal for a request without a token if [`TokenRequirement::Required`] applies.
pub const NO_TOKEN: Refusal = Refusal::new(
    401,
    "no_token",
    "This request needs a session token (IMDSv2). Request one with PUT at /latest/api/token.",
);
/// The refusal for a listing of roles if the pod has no role.
pub const NO_ROLE: Refusal =
    Refusal::new(404, "no_role", "No AWS role is configured for this pod or its Kubernetes ServiceAccount.");
/// The refusal for a role that the pod does not have. The agent does not return credentials of the pod's own role instead,
/// because the client would not notice that it got the wrong role.
pub const WRONG_ROLE: Refusal =
    Refusal::new(403, "wrong_role", "The role in the path is not this pod's role.");

const TOKEN: &str = "X-aws-ec2-metadata-token";
const TTL: &str = "X-aws-ec2-metadata-token-ttl-seconds";

/// The metadata service of one node.
#[derive(Debug)]
pub struct Imds {
    facts: InstanceMetadataByPath,
    passed: PassthroughPathPatterns,
}

/// Defines whether requests need a session token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRequirement {
    /// Requests need a token (IMDSv2 only).
    Required,
    /// Requests without a token are allowed (IMDSv1). If a request has a token, the service still checks the token.
    Optional,
}

/// The settings with which the service grants and checks tokens.
#[derive(Clone, Copy, Debug)]
pub struct TokenRules<'a> {
    /// The keys that sign the tokens.
    pub keys: &'a TokenSigningKeys,
    /// Defines whether requests need a token.
    pub requirement: TokenRequirement,
    /// The longest lifetime of a token.
    pub ttl_limit: TtlLimit,
}

/// A parsed request.
#[derive(Debug)]
pub enum ImdsRequest<'t, 'b> {
    /// A request for a session token. The caller answers at once ([`respond::write_token`]), even if the client is unknown, and
    /// keeps the connection open.
    Token(GrantedToken),
    /// A read of metadata. The caller answers after it has identified the client.
    Read(ImdsQuery<'t, 'b>),
}

/// A read of metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImdsQuery<'t, 'b> {
    /// The requested resource.
    pub resource: ImdsResource<'t, 'b>,
    /// The time at which the token of this request expires.
    ///
    /// The value is `None` if the request has no token. Such requests occur only with [`TokenRequirement::Optional`].
    pub token_expires_at: Option<UnixTime>,
}

/// The resource that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImdsResource<'t, 'b> {
    /// The name of the pod's role. The response is [`respond::write_role_name`] or [`NO_ROLE`].
    ///
    /// Before the caller answers with a role's name, the caller must have the role's credentials, because the client requests
    /// them next.
    RoleListing(DocumentFormat),
    /// The credentials of a role ([`respond::write_credentials`]). [`check_role`] checks that the pod has this role.
    RoleCredentials {
        /// The role that the request names.
        role: RequestedRole<'b>,
        /// The document's format.
        shape: DocumentFormat,
    },
    /// Information about the pod's role. The response is [`respond::write_role_info`] or [`NO_ROLE`].
    RoleInfo,
    /// A text from the agent's configuration ([`respond::write_text`]).
    Text(MetadataText<'t>),
    /// A path of the real service that the configuration allows, in canonical form.
    ///
    /// The agent does not forward the client's headers and query.
    Passthrough(Cow<'b, str>),
}

/// A text from the agent's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataText<'t> {
    /// The text.
    pub body: &'t str,
}

impl ImdsResource<'_, '_> {
    /// Returns the name of the route. The set of names is fixed.
    pub fn route_name(&self) -> &'static str {
        match self {
            Self::RoleListing(_) => "role_list",
            Self::RoleCredentials { .. } => "credentials",
            Self::RoleInfo => "role_info",
            Self::Text(_) => "metadata",
            Self::Passthrough(_) => "pass",
        }
    }
}

/// True if a canonical path belongs to this service: a version and any path below it. The agent selects the endpoint with this
/// check, because several endpoints can share an address.
pub fn is_imds_path(path: &str) -> bool {
    below_version(path).is_some()
}

/// True if EC2's metadata service has credentials at this canonical path: below `iam/security-credentials/`,
/// `iam/security-credentials-extended/` or `identity-credentials/ec2/security-credentials/`. These directories themselves list only names.
pub fn is_credentials_document(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    let below = path.split_once("/security-credentials").and_then(|(_, below)| below.split_once('/'));
    below.is_some_and(|(_, name)| !name.is_empty())
}

/// True if the connection stays open after a request with this method. PUT is included, because clients reuse the connection on
/// which they requested a token.
pub fn method_keeps_alive(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "PUT")
}

/// Checks that the requested role `asked` is the pod's role `own`.
///
/// # Errors
/// [`NO_ROLE`], [`WRONG_ROLE`].
pub fn check_role(asked: &RequestedRole<'_>, own: Option<OwnRole<'_>>) -> Result<(), Refusal> {
    match own {
        Some(own) if asked.is_own(own) => Ok(()),
        Some(_) => Err(WRONG_ROLE),
        None => Err(NO_ROLE),
    }
}

impl Imds {
    /// Creates the service of this node. Pods can read a path of the real service if one of the patterns in `passed` matches
    /// the path.
    ///
    /// Some paths lead to secrets: `user-data`, `managed-ssh-keys`, and the signatures `pkcs7`, `signature` and `rsa2048`. A
    /// pattern allows such a path only if the pattern also contains that word literally.
    pub fn new(node: &InstanceMetadata, passed: Vec<Pattern>) -> Self {
        Self {
            facts: InstanceMetadataByPath::from_metadata(node),
            passed: PassthroughPathPatterns::new(passed),
        }
    }

    /// Parses a request.
    ///
    /// If the error is [`UNEXPECTED_BODY`](crate::request_head_rules::UNEXPECTED_BODY), the caller must close the connection. A
    /// PUT without a length has no body; five clients send such a PUT.
    ///
    /// # Errors
    /// The rule that forbids the request:
    ///
    /// - 405: [`METHOD_NOT_ALLOWED`] or [`TOKEN_METHOD_NOT_ALLOWED`].
    /// - 400: [`BAD_TTL`], a body, or an invalid path.
    /// - 401: [`NO_TOKEN`], or a refused token.
    /// - 403: [`TOKEN_ONLY_AT_LATEST`], or a proxied request.
    /// - 404: any other path.
    pub fn parse_request<'t, 'b>(
        &'t self,
        head: &RequestHead<'_, 'b>,
        sessions: &TokenRules<'_>,
        visitor: &TokenClient,
        now: UnixTime,
    ) -> Result<ImdsRequest<'t, 'b>, Refusal> {
        let is_put = head.method == "PUT";
        if !is_put && !matches!(head.method, "GET" | "HEAD") {
            return Err(METHOD_NOT_ALLOWED);
        }
        require_no_body(head)?;
        header_checks::require_not_proxied(head)?;
        let path = path::canonicalise_target_with(head.target, &IMDS_PATH_CHARSET)?.path;
        // An encoded slash is part of a role's ARN. No rule and no server sees the encoded form: the path is canonical, and the
        // agent compares the ARN and never forwards it.
        if path::has_encoded_slash(head.target) && (is_put || !is_role_arn_path(path.as_str())) {
            return Err(BAD_PATH);
        }
        if is_put {
            return grant(head, &path, sessions, visitor, now).map(ImdsRequest::Token);
        }
        let session = session(head, sessions, visitor, now)?;
        Ok(ImdsRequest::Read(ImdsQuery { resource: self.find(path)?, token_expires_at: session }))
    }

    fn find<'b>(&self, path: CanonicalPath<'b>) -> Result<ImdsResource<'_, 'b>, Refusal> {
        let text = path.as_str();
        let Some(below) = below_version(text) else {
            return if text == "/" {
                Ok(ImdsResource::Text(MetadataText { body: "latest" }))
            } else {
                self.pass(path)
            };
        };
        if let Some(rest) = below.strip_prefix(ROLES) {
            let start = text.len() - rest.len();
            return role(path.into_text(), start);
        }
        match below {
            "meta-data/iam/info" | "meta-data/iam/info/" => Ok(ImdsResource::RoleInfo),
            TOKENS => Err(TOKEN_METHOD_NOT_ALLOWED),
            _ => match self.facts.find(below) {
                Some(body) => Ok(ImdsResource::Text(MetadataText { body })),
                None => self.pass(path),
            },
        }
    }

    fn pass<'b>(&self, path: CanonicalPath<'b>) -> Result<ImdsResource<'static, 'b>, Refusal> {
        if self.passed.allows(path.as_str()) {
            Ok(ImdsResource::Passthrough(path.into_text()))
        } else {
            Err(NOT_FOUND)
        }
    }
}

const ROLES: &str = "meta-data/iam/security-credentials";
const TOKENS: &str = "api/token";

/// Returns the path below `/VERSION/`, or an empty path for a version's own directory. All versions return the same content,
/// because no client compares versions.
fn below_version(path: &str) -> Option<&str> {
    if let Some(below) = path.strip_prefix("/latest/") {
        // Nearly every client uses this version.
        return Some(below);
    }
    let path = path.strip_prefix('/')?;
    let (version, below) = path.split_once('/').unwrap_or((path, ""));
    is_version(version).then_some(below)
}

/// True for `latest`, `1.0`, or a date such as `2021-01-03`.
fn is_version(version: &str) -> bool {
    let is_date = |bytes: &[u8]| {
        let is_fit = |(at, byte): (usize, &u8)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        };
        bytes.len() == 10 && bytes.iter().enumerate().all(is_fit)
    };
    matches!(version, "latest" | "1.0") || is_date(version.as_bytes())
}

/// Parses a path below a directory of roles. `start` is the position in `text` after the word `security-credentials`.
fn role(text: Cow<'_, str>, start: usize) -> Result<ImdsResource<'static, '_>, Refusal> {
    let (shape, start) = match text[start..].strip_prefix("-extended") {
        Some(_) => (DocumentFormat::WithAccount, start + "-extended".len()),
        None => (DocumentFormat::WithoutAccount, start),
    };
    let name = match text[start..].strip_prefix('/') {
        None if start == text.len() => return Ok(ImdsResource::RoleListing(shape)),
        None => return Err(NOT_FOUND),
        Some("") => return Ok(ImdsResource::RoleListing(shape)),
        Some(name) => name.strip_suffix('/').unwrap_or(name),
    };
    let end = start + 1 + name.len();
    let name = match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[start + 1..end]),
        Cow::Owned(text) => Cow::Owned(text[start + 1..end].to_owned()),
    };
    let role = RequestedRole::parse(name).ok_or(NOT_FOUND)?;
    Ok(ImdsResource::RoleCredentials { role, shape })
}

/// True if a canonical path names the credentials of a role by the role's ARN.
fn is_role_arn_path(path: &str) -> bool {
    let Some(rest) = below_version(path).and_then(|below| below.strip_prefix(ROLES)) else { return false };
    let role = role(Cow::Borrowed(path), path.len() - rest.len());
    matches!(role, Ok(ImdsResource::RoleCredentials { role: RequestedRole::Arn(_), .. }))
}

/// Grants a token to any client that requests one.
///
/// # Errors
/// [`METHOD_NOT_ALLOWED`] (405) for another path, [`TOKEN_ONLY_AT_LATEST`] (403), [`BAD_TTL`] and [`super::REPEATED_HEADER`]
/// (400). After every status except 400, most clients continue without a token.
fn grant(
    head: &RequestHead<'_, '_>,
    path: &CanonicalPath<'_>,
    sessions: &TokenRules<'_>,
    visitor: &TokenClient,
    now: UnixTime,
) -> Result<GrantedToken, Refusal> {
    match below_version(path.as_str()) {
        Some(TOKENS) if path.as_str().starts_with("/latest/") => {}
        Some(TOKENS) => return Err(TOKEN_ONLY_AT_LATEST),
        _ => return Err(METHOD_NOT_ALLOWED),
    }
    let ttl = header_checks::find_single(head, TTL)?.and_then(ttl).ok_or(BAD_TTL)?;
    Ok(sessions.keys.issue(visitor, ttl, sessions.ttl_limit, now))
}

/// Parses a lifetime of one to five digits. The lifetime must be from 1 second to [`MAX_TTL`].
fn ttl(value: &[u8]) -> Option<Duration> {
    if !(1..=5).contains(&value.len()) {
        return None;
    }
    let digit = |sum: u64, byte: &u8| byte.is_ascii_digit().then(|| 10 * sum + u64::from(byte - b'0'));
    let ttl = Duration::from_secs(value.iter().try_fold(0, digit)?);
    (Duration::from_secs(1)..=MAX_TTL).contains(&ttl).then_some(ttl)
}

/// Returns the time when the request's token expires, or `None` if the request has no token.
///
/// # Errors
/// [`NO_TOKEN`] if a token is required but missing, the reason why a token is invalid (even if no token is required), or
/// [`super::REPEATED_HEADER`].
fn session(
    head: &RequestHead<'_, '_>,
    sessions: &TokenRules<'_>,
    visitor: &TokenClient,
    now: UnixTime,
) -> Result<Option<UnixTime>, Refusal> {
    match (header_checks::find_single(head, TOKEN)?, sessions.requirement) {
        (Some(token), _) => sessions.keys.verify(token, visitor, now).map(Some),
        (None, TokenRequirement::Optional) => Ok(None),
        (None, TokenRequirement::Required) => Err(NO_TOKEN),
    }
}
