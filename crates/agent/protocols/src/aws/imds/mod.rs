//! The metadata service of EC2, both versions: what a request asks for, and whether its session is good.
//!
//! Default deny. Roles and credentials are the pod's own, facts are the configuration's, and of the real service a pod reads only
//! what an operator's expression names; never its credentials, whatever the expression. All of it is decided on one canonical
//! path, so that no encoding of a path is another path.
//!
//! The order is the argument. A token is given to whoever asks, also while it is not known who that is: a client that is refused
//! one goes on without, some for the life of their process. Whatever is refused for what the pod is, is refused at the *listing*:
//! a client that is given a role's name and then no document may abort its process (the CRT binding does).

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
pub const METHOD: Refusal = Refusal::new(405, "method", "Metadata is read with GET or HEAD.");
/// The refusal of reading where tokens are given.
pub const TOKEN_METHOD: Refusal = Refusal::new(405, "token_method", "A session token is asked for with PUT.");
/// The refusal of a token asked for without a life that it can have. 400 is final for every client, and says that this server
/// knows tokens; with any other status most would go on without.
pub const BAD_TTL: Refusal = Refusal::new(
    400,
    "bad_ttl",
    "A session token needs the header X-aws-ec2-metadata-token-ttl-seconds with a number from 1 to 21600.",
);
/// The refusal of a token asked for under a dated version: tokens are given under `latest` alone, as on the real service.
pub const TOKEN_VERSION: Refusal =
    Refusal::new(403, "token_version", "Session tokens are given at /latest/api/token.");
/// The refusal of a request without a token where one is needed.
pub const NO_TOKEN: Refusal = Refusal::new(
    401,
    "no_token",
    "Session tokens are required here (IMDSv2): ask for one with PUT at /latest/api/token.",
);
/// The refusal of a listing to a pod that has no role.
pub const NO_ROLE: Refusal =
    Refusal::new(404, "no_role", "No AWS role is configured for this pod or its Kubernetes ServiceAccount.");
/// The refusal of a role that is not the pod's. Never another's instead of it, as a client would not notice.
pub const WRONG_ROLE: Refusal =
    Refusal::new(403, "wrong_role", "The role in the path is not the one that this pod is allowed.");

const TOKEN: &str = "X-aws-ec2-metadata-token";
const TTL: &str = "X-aws-ec2-metadata-token-ttl-seconds";

/// The service of one node.
#[derive(Debug)]
pub struct Imds {
    facts: InstanceMetadataPaths,
    passed: PassedPaths,
}

/// Whether requests need a session token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRequirement {
    /// They do (IMDSv2 alone).
    Required,
    /// They may come without (IMDSv1, too). One that is shown is checked all the same.
    Optional,
}

/// By which rules tokens are given and taken.
#[derive(Clone, Copy, Debug)]
pub struct TokenRules<'a> {
    /// What signs them.
    pub keys: &'a TokenSigningKeys,
    /// Whether they are needed.
    pub requirement: TokenRequirement,
    /// How long they live at most.
    pub ttl_limit: TtlLimit,
}

/// What a request asks for.
#[derive(Debug)]
pub enum ImdsRequest<'t, 'b> {
    /// A session token: to be answered at once ([`respond::token`]), whoever asks and whatever is known of it. The connection goes on.
    Token(GrantedToken),
    /// Metadata: to be answered to who is known.
    Read(ImdsQuery<'t, 'b>),
}

/// Metadata that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImdsQuery<'t, 'b> {
    /// The thing.
    pub resource: ImdsResource<'t, 'b>,
    /// From when on the token that was shown, and so the same request, is to be refused. `None`: no token was shown, so this
    /// is one that is refused where tokens are required.
    pub session: Option<UnixTime>,
}

/// The thing asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImdsResource<'t, 'b> {
    /// The name of the pod's role ([`respond::role_name`]), or [`NO_ROLE`]. Where credentials have to be waited for or refused, it is
    /// here: once this is answered with a name, the document must be had.
    Roles(DocumentFormat),
    /// The document of a role ([`respond::document`]), if it is the pod's ([`check_role`]).
    Role {
        /// The role's name as asked for.
        name: Cow<'b, str>,
        /// In which form.
        shape: DocumentFormat,
    },
    /// About the pod's role ([`respond::role_info`]), or [`NO_ROLE`].
    RoleInfo,
    /// Text that is known ([`respond::text`]).
    Text(MetadataText<'t>),
    /// Something of the real service that the configuration lets pass: its canonical path. No header and no query of the client's
    /// goes along.
    Passthrough(Cow<'b, str>),
}

/// Text that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataText<'t> {
    /// The text.
    pub body: &'t str,
}

impl ImdsResource<'_, '_> {
    /// What it is; a word from a closed set.
    pub fn route(&self) -> &'static str {
        match self {
            Self::Roles(_) => "roles",
            Self::Role { .. } => "credentials",
            Self::RoleInfo => "role_info",
            Self::Text(_) => "fact",
            Self::Passthrough(_) => "pass",
        }
    }
}

/// Whether a canonical path is this service's, where it shares its address with others: a version and what is below it.
pub fn claims(path: &str) -> bool {
    below_version(path).is_some()
}

/// Whether a connection goes on after a request with this method. A token is asked for on the connection on which it is shown next.
pub fn keeps_alive_after(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "PUT")
}

/// Whether the role asked for is the one that the pod has.
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
    /// The service of this node. A path of the real one is let pass if one of `passed` matches it and, where it leads to what is as good as
    /// a credential (`user-data`, `managed-ssh-keys`, and the signatures `pkcs7`, `signature` and `rsa2048`), names that word.
    pub fn new(node: &InstanceMetadata, passed: Vec<Pattern>) -> Self {
        Self { facts: InstanceMetadataPaths::of(node), passed: PassedPaths::new(passed) }
    }

    /// What a request asks for.
    ///
    /// One that announces a body is refused; its bytes are still in the connection, so close it. A PUT without a length has none:
    /// five clients send it so.
    ///
    /// # Errors
    /// The rule that forbids it: [`METHOD`] and [`TOKEN_METHOD`] (405), [`BAD_TTL`], a body, or a path that is none (400), [`NO_TOKEN`] and
    /// a token that is refused (401), [`TOKEN_VERSION`] and a request that was relayed (403), or 404.
    pub fn query<'t, 'b>(
        &'t self,
        head: &RequestHead<'_, 'b>,
        sessions: &TokenRules<'_>,
        visitor: &TokenClient,
        now: UnixTime,
    ) -> Result<ImdsRequest<'t, 'b>, Refusal> {
        let is_put = head.method == "PUT";
        if !is_put && !matches!(head.method, "GET" | "HEAD") {
            return Err(METHOD);
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
            TOKENS => Err(TOKEN_METHOD),
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

/// What follows `/VERSION/`; empty at a version's own directory. Any version is read as the latest: no client compares.
fn below_version(path: &str) -> Option<&str> {
    if let Some(below) = path.strip_prefix("/latest/") {
        // What nearly every client asks.
        return Some(below);
    }
    let path = path.strip_prefix('/')?;
    let (version, below) = path.split_once('/').unwrap_or((path, ""));
    is_version(version).then_some(below)
}

/// `latest`, `1.0`, or a date such as `2021-01-03`.
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

/// What is asked below a directory of roles; `text` from `start` on follows its name without `-extended`.
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

/// A token for who asks for one.
///
/// # Errors
/// [`METHOD`] (405) at another path, [`TOKEN_VERSION`] (403), [`BAD_TTL`] and [`super::REPEATED_HEADER`] (400). To most clients all
/// but 400 mean to go on without a token.
fn grant(
    head: &RequestHead<'_, '_>,
    path: &CanonicalPath<'_>,
    sessions: &TokenRules<'_>,
    visitor: &TokenClient,
    now: UnixTime,
) -> Result<GrantedToken, Refusal> {
    match below_version(path.as_str()) {
        Some(TOKENS) if path.as_str().starts_with("/latest/") => {}
        Some(TOKENS) => return Err(TOKEN_VERSION),
        _ => return Err(METHOD),
    }
    let ttl = headers::find_single(head, TTL)?.and_then(ttl).ok_or(BAD_TTL)?;
    Ok(sessions.keys.issue(visitor, ttl, sessions.ttl_limit, now))
}

/// One to five digits, from 1 to [`MAX_TTL`].
fn ttl(value: &[u8]) -> Option<Duration> {
    if !(1..=5).contains(&value.len()) {
        return None;
    }
    let digit = |sum: u64, byte: &u8| byte.is_ascii_digit().then(|| 10 * sum + u64::from(byte - b'0'));
    let ttl = Duration::from_secs(value.iter().try_fold(0, digit)?);
    (Duration::from_secs(1)..=MAX_TTL).contains(&ttl).then_some(ttl)
}

/// From when on the token that a request shows is refused.
///
/// # Errors
/// [`NO_TOKEN`] where one is needed; what is wrong with one that is shown, needed or not; [`super::REPEATED_HEADER`].
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
