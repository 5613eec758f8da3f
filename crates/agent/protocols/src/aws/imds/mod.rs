//! The EC2 metadata service, both versions: parses requests and checks their session tokens.
//!
//! It denies by default. Roles and credentials are the pod's own, and the node's metadata comes from the configuration. Of the real
//! service, a pod reads only the paths that an operator's expression names, and never its credentials. All rules judge one canonical path,
//! so another encoding of a path is the same path.
//!
//! The order of the rules matters. The service grants a token to every client, also while the client is unknown: a client without a token
//! goes on without one, some for the life of their process. If a pod gets no credentials, the refusal comes at the *listing*. A client that
//! gets a role's name and then no document may abort its process (the CRT binding does).

mod passed_paths;
pub mod respond;

use std::borrow::Cow;
use std::time::Duration;

use seawall_http::RequestHead;

use self::passed_paths::PassedPaths;
use super::credentials::DocumentFormat;
use super::instance_metadata::{InstanceMetadata, InstanceMetadataPaths};
use super::pattern::Pattern;
use super::role::is_role_name;
use super::session::{GrantedToken, MAX_TTL, TokenClient, TokenSigningKeys, TtlLimit};
use super::time::UnixTime;
use super::{ALPHABET, NOT_FOUND, headers};
use crate::head::require_no_body;
use seawall_http::Refusal;
use seawall_http::path::{self, CanonicalPath};

/// The refusal of a method other than GET and HEAD.
pub const METHOD_NOT_ALLOWED: Refusal =
    Refusal::new(405, "method_not_allowed", "Use GET or HEAD to read metadata.");
/// The refusal of a GET or HEAD at the token path.
pub const TOKEN_METHOD_NOT_ALLOWED: Refusal =
    Refusal::new(405, "token_method_not_allowed", "Use PUT to request a session token.");
/// The refusal of a token request without a valid life.
///
/// 400 is final for every client and says that this server knows tokens. With any other status most clients would go on without a token.
pub const BAD_TTL: Refusal = Refusal::new(
    400,
    "bad_ttl",
    "A request for a session token needs the header X-aws-ec2-metadata-token-ttl-seconds with a number from 1 to 21600.",
);
/// The refusal of a token request at a dated version. Tokens are granted below `latest` alone, as on the real service.
pub const TOKEN_ONLY_AT_LATEST: Refusal =
    Refusal::new(403, "token_only_at_latest", "Request session tokens at /latest/api/token.");
/// The refusal of a request without a required token.
pub const NO_TOKEN: Refusal = Refusal::new(
    401,
    "no_token",
    "This request needs a session token (IMDSv2). Request one with PUT at /latest/api/token.",
);
/// The refusal of a listing to a pod that has no role.
pub const NO_ROLE: Refusal =
    Refusal::new(404, "no_role", "No AWS role is configured for this pod or its Kubernetes ServiceAccount.");
/// The refusal of another role than the pod's. The pod's own role is not returned instead, because the client would not notice.
pub const WRONG_ROLE: Refusal =
    Refusal::new(403, "wrong_role", "The role in the path is not this pod's role.");

const TOKEN: &str = "X-aws-ec2-metadata-token";
const TTL: &str = "X-aws-ec2-metadata-token-ttl-seconds";

/// The metadata service of one node.
#[derive(Debug)]
pub struct Imds {
    facts: InstanceMetadataPaths,
    passed: PassedPaths,
}

/// Says whether requests need a session token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRequirement {
    /// Requests need a token (IMDSv2 alone).
    Required,
    /// Requests may come without a token (IMDSv1, too). A token that is shown is checked all the same.
    Optional,
}

/// The rules by which the service grants and checks tokens.
#[derive(Clone, Copy, Debug)]
pub struct TokenRules<'a> {
    /// The keys that sign the tokens.
    pub keys: &'a TokenSigningKeys,
    /// Says whether requests need a token.
    pub requirement: TokenRequirement,
    /// The longest life of a token.
    pub ttl_limit: TtlLimit,
}

/// A parsed request.
#[derive(Debug)]
pub enum ImdsRequest<'t, 'b> {
    /// A session token. Send it at once ([`respond::token`]) to any client, known or unknown. The connection stays open.
    Token(GrantedToken),
    /// A read of metadata. Answer it once the client is known.
    Read(ImdsQuery<'t, 'b>),
}

/// A read of metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImdsQuery<'t, 'b> {
    /// The requested resource.
    pub resource: ImdsResource<'t, 'b>,
    /// The time from which on the shown token, and so the same request, is refused.
    ///
    /// It is `None` if the request shows no token. Where tokens are required, such a request is refused.
    pub session: Option<UnixTime>,
}

/// The resource that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImdsResource<'t, 'b> {
    /// The name of the pod's role ([`respond::role_name`]), or [`NO_ROLE`].
    ///
    /// Wait for credentials or refuse them here: after a response with a name, the document must be available.
    Roles(DocumentFormat),
    /// The document of a role ([`respond::document`]), if the role is the pod's ([`check_role`]).
    Role {
        /// The role's name in the request.
        name: Cow<'b, str>,
        /// The document's format.
        shape: DocumentFormat,
    },
    /// Information about the pod's role ([`respond::role_info`]), or [`NO_ROLE`].
    RoleInfo,
    /// A text that the agent has ([`respond::text`]).
    Text(MetadataText<'t>),
    /// A path of the real service that the configuration allows, in canonical form.
    ///
    /// The client's headers and query are not sent along.
    Passthrough(Cow<'b, str>),
}

/// A text that the agent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataText<'t> {
    /// The text.
    pub body: &'t str,
}

impl ImdsResource<'_, '_> {
    /// The name of the route, from a closed set.
    pub fn route(&self) -> &'static str {
        match self {
            Self::Roles(_) => "role_list",
            Self::Role { .. } => "credentials",
            Self::RoleInfo => "role_info",
            Self::Text(_) => "metadata",
            Self::Passthrough(_) => "pass",
        }
    }
}

/// True if a canonical path is this service's, for an address that it shares with other endpoints: a version and any path below it.
pub fn claims(path: &str) -> bool {
    below_version(path).is_some()
}

/// True if the connection stays open after a request with this method. Clients show a token on the connection that requested it.
pub fn keeps_alive_after(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "PUT")
}

/// Checks that the requested role is the pod's.
///
/// # Errors
/// [`NO_ROLE`], [`WRONG_ROLE`].
pub fn check_role(asked: &str, own: Option<&str>) -> Result<(), Refusal> {
    match own {
        Some(own) if own == asked => Ok(()),
        Some(_) => Err(WRONG_ROLE),
        None => Err(NO_ROLE),
    }
}

impl Imds {
    /// Creates the service of this node. A path of the real service is allowed if one of the patterns `passed` matches it.
    ///
    /// For a path to secrets (`user-data`, `managed-ssh-keys`, and the signatures `pkcs7`, `signature` and `rsa2048`), the pattern must
    /// also contain that word.
    pub fn new(node: &InstanceMetadata, passed: Vec<Pattern>) -> Self {
        Self { facts: InstanceMetadataPaths::of(node), passed: PassedPaths::new(passed) }
    }

    /// Parses a request.
    ///
    /// A request that announces a body is refused; its bytes are still in the connection, so close it. A PUT without a length has no body:
    /// five clients send it so.
    ///
    /// # Errors
    /// The rule that forbids the request:
    ///
    /// - 405: [`METHOD_NOT_ALLOWED`] or [`TOKEN_METHOD_NOT_ALLOWED`].
    /// - 400: [`BAD_TTL`], a body, or an invalid path.
    /// - 401: [`NO_TOKEN`], or a refused token.
    /// - 403: [`TOKEN_ONLY_AT_LATEST`], or a proxied request.
    /// - 404: any other path.
    pub fn query<'t, 'b>(
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
        headers::require_direct(head)?;
        let path = path::canonicalise_in(head.target, &ALPHABET)?.path;
        if is_put {
            return grant(head, &path, sessions, visitor, now).map(ImdsRequest::Token);
        }
        let session = session(head, sessions, visitor, now)?;
        Ok(ImdsRequest::Read(ImdsQuery { resource: self.find(path)?, session }))
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

/// Returns the path below `/VERSION/`, empty at a version's own directory. All versions read as the latest, as no client compares.
fn below_version(path: &str) -> Option<&str> {
    if let Some(below) = path.strip_prefix("/latest/") {
        // What nearly every client asks.
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

/// Parses a path below a directory of roles. `text` from `start` on follows the directory's name without `-extended`.
fn role(text: Cow<'_, str>, start: usize) -> Result<ImdsResource<'static, '_>, Refusal> {
    let (shape, start) = match text[start..].strip_prefix("-extended") {
        Some(_) => (DocumentFormat::Extended, start + "-extended".len()),
        None => (DocumentFormat::Plain, start),
    };
    let name = match text[start..].strip_prefix('/') {
        None if start == text.len() => return Ok(ImdsResource::Roles(shape)),
        None => return Err(NOT_FOUND),
        Some("") => return Ok(ImdsResource::Roles(shape)),
        Some(name) => name.strip_suffix('/').unwrap_or(name),
    };
    if !is_role_name(name) {
        return Err(NOT_FOUND);
    }
    let end = start + 1 + name.len();
    let name = match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[start + 1..end]),
        Cow::Owned(text) => Cow::Owned(text[start + 1..end].to_owned()),
    };
    Ok(ImdsResource::Role { name, shape })
}

/// Grants a token to any client that requests one.
///
/// # Errors
/// [`METHOD_NOT_ALLOWED`] (405) at another path, [`TOKEN_ONLY_AT_LATEST`] (403), [`BAD_TTL`] and [`super::REPEATED_HEADER`] (400). After any of them but 400,
/// most clients go on without a token.
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
    let ttl = headers::find_single(head, TTL)?.and_then(ttl).ok_or(BAD_TTL)?;
    Ok(sessions.keys.issue(visitor, ttl, sessions.ttl_limit, now))
}

/// Parses a life: one to five digits, from 1 to [`MAX_TTL`] in seconds.
fn ttl(value: &[u8]) -> Option<Duration> {
    if !(1..=5).contains(&value.len()) {
        return None;
    }
    let digit = |sum: u64, byte: &u8| byte.is_ascii_digit().then(|| 10 * sum + u64::from(byte - b'0'));
    let ttl = Duration::from_secs(value.iter().try_fold(0, digit)?);
    (Duration::from_secs(1)..=MAX_TTL).contains(&ttl).then_some(ttl)
}

/// Returns when the request's token expires, or `None` without a token.
///
/// # Errors
/// [`NO_TOKEN`] if a token is required; the reason why a shown token is invalid, required or not; [`super::REPEATED_HEADER`].
fn session(
    head: &RequestHead<'_, '_>,
    sessions: &TokenRules<'_>,
    visitor: &TokenClient,
    now: UnixTime,
) -> Result<Option<UnixTime>, Refusal> {
    match (headers::find_single(head, TOKEN)?, sessions.requirement) {
        (Some(token), _) => sessions.keys.verify(token, visitor, now).map(Some),
        (None, TokenRequirement::Optional) => Ok(None),
        (None, TokenRequirement::Required) => Err(NO_TOKEN),
    }
}
