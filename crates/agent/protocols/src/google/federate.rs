//! Federate mode: the tree that one workload sees, and what a request asks of it.
//!
//! The tree holds the workload's own facts and no other's, so there is nothing to conceal in it: an unknown path is
//! 404, an unknown query key is ignored (new SDK releases add some). What is enforced is what keeps *others* from
//! asking in the workload's name: the flavour header, no relayed request, GET and HEAD without a body.
//!
//! Which paths and parameters clients use was read in google-auth for Python, cloud.google.com/go/compute/metadata,
//! Node's gcp-metadata and the guest agent; `tests/gce_clients.rs` replays them.

use std::borrow::Cow;
use std::sync::Arc;

use seawall_http::RequestHead;

use super::etag::ETag;
use super::facts::{Account, Facts, Node};
use super::head::{self, Marks};
use super::query::{Alt, Hold, Params, Unknown};
use super::scopes::Scopes;
use super::tree::{Directory, Found, Leaf};
use crate::head::without_body;
use seawall_http::Refusal;
use seawall_http::path::{self, Path, Target};

/// The refusal of a method other than GET and HEAD. 405 (with `Allow`, RFC 9110 section 15.5.6) is final for
/// every SDK; a 403 would send people looking for a missing permission.
pub const METHOD: Refusal = Refusal::new(405, "method", "Metadata is read with GET or HEAD.");
/// As [`METHOD`], of what google-auth does where it finds a certificate.
pub const BINDING: Refusal = Refusal::new(405, "method", head::BINDING);
/// The refusal of a path that leads nowhere.
pub const NOT_FOUND: Refusal = Refusal::new(404, "not_found", "There is no such metadata here.");
/// The refusal of an account's path where there is no account.
pub const NO_ACCOUNT: Refusal =
    Refusal::new(404, "no_account", "No Google identity is configured for this Kubernetes ServiceAccount.");
/// The refusal of an identity token to a workload that impersonates nobody: the workload pool's own identity gets
/// access tokens only. 404 is what peers answer; SDKs do not retry it.
pub const NO_IDENTITY: Refusal = Refusal::new(
    404,
    "no_identity",
    "Identity tokens need a Google service account: annotate the Kubernetes ServiceAccount with \
     iam.gke.io/gcp-service-account.",
);
/// The refusal of `alt` or `wait_for_change` on a directory without `recursive`, as the real server has it.
pub const DIRECTORY_QUERY: Refusal = Refusal::new(
    400,
    "directory_query",
    "The parameters alt and wait_for_change on a directory need recursive=true.",
);

const TEXT: &str = "application/text";
const JSON: &str = "application/json";

/// Everything one workload can read; about a KiB beside what is the node's. Pods of one ServiceAccount can share it.
#[derive(Debug)]
pub struct Tree {
    root: Directory,
    /// The directory at [`ACCOUNTS`] within the root: nearly every request is for what is in it.
    accounts: Arc<Directory>,
    facts: Arc<Facts>,
    default_scopes: Arc<str>,
    has_account: bool,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query<'t, 'b> {
    /// The thing.
    pub what: What<'t, 'b>,
    /// Set when the answer is to wait. For [`Text::Known`] the comparison is done: the content has not changed since
    /// the client saw it, so wait until this tree is replaced. For tokens it is set whenever the client asked to
    /// wait, because only the lease knows its tag: compare `last_etag` with it, or wait for the next lease.
    pub hold: Option<Hold<'b>>,
}

/// The thing asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What<'t, 'b> {
    /// Text that is known already.
    Text(Text<'t, 'b>),
    /// A credential, which somebody must hold.
    Credential(Credential<'t, 'b>),
}

/// What needs no credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text<'t, 'b> {
    /// A leaf, a listing, a recursion, a probe.
    Known(Known<'t>),
    /// A directory named without its slash.
    Redirect(Redirect<'b>),
}

/// A credential that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential<'t, 'b> {
    /// An access token.
    AccessToken {
        /// Its scopes.
        scopes: Scopes<'t>,
        /// The form of the answer: JSON unless the client asks for text.
        alt: Alt,
    },
    /// An identity token.
    IdToken {
        /// Its audience: 1 to 2048 visible characters.
        audience: Cow<'b, str>,
        /// Whether the account's e-mail is to be in it (`format=full`).
        include_email: bool,
    },
}

/// A body that needs no broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known<'t> {
    /// The body.
    pub body: Cow<'t, str>,
    /// Its `Content-Type`.
    pub content_type: &'static str,
    /// The tag of the subtree asked for, the same in every form; probes have none.
    pub etag: Option<ETag>,
    /// What it is; a word from a closed set.
    pub route: &'static str,
}

impl Known<'_> {
    /// The same, owned.
    pub fn into_owned(self) -> Known<'static> {
        Known { body: Cow::Owned(self.body.into_owned()), ..self }
    }
}

/// Where a directory really is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect<'b> {
    /// The canonical path with its slash. It begins with one slash, so it names no other host, and holds no character
    /// that could end a header.
    pub path: String,
    /// The query as sent; visible ASCII.
    pub query: Option<&'b str>,
}

impl Text<'_, '_> {
    /// What it is; a word from a closed set.
    pub fn route(&self) -> &'static str {
        match self {
            Self::Known(known) => known.route,
            Self::Redirect(_) => "redirect",
        }
    }
}

impl What<'_, '_> {
    /// What it is; a word from a closed set.
    pub fn route(&self) -> &'static str {
        match self {
            Self::Text(text) => text.route(),
            Self::Credential(Credential::AccessToken { .. }) => "token",
            Self::Credential(Credential::IdToken { .. }) => "identity",
        }
    }
}

/// A look at the text of a tree that can be repeated later, in another tree: what a long poll remembers of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    path: String,
    form: Form,
}

/// The form in which text is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    alt: Option<Alt>,
    is_recursive: bool,
}

impl Form {
    fn of(params: &Params<'_>) -> Self {
        Self { alt: params.alt, is_recursive: params.is_recursive() }
    }
}

impl Look {
    /// What this request looks at.
    ///
    /// # Errors
    /// The rule that forbids the request.
    pub fn of(head: &RequestHead<'_, '_>) -> Result<Self, Refusal> {
        let target = path::canonicalise(head.target)?;
        let form = Form::of(&Params::parse(target.query, Unknown::Ignored)?);
        Ok(Self { path: target.path.into_text().into_owned(), form })
    }
}

/// What is asked, and whether to wait for it.
type Asked<'t, 'b> = (What<'t, 'b>, Option<Hold<'b>>);

impl Tree {
    /// The tree of a workload on this node; without an account, every path below `service-accounts/` is a 404.
    pub fn new(node: &Node, account: Option<&Account>) -> Self {
        Self::with(Arc::new(Facts::of(node)), account)
    }

    /// The tree of another workload on the same node, which shares with this one what is the node's.
    pub fn beside(&self, account: &Account) -> Self {
        Self::with(self.facts.clone(), Some(account))
    }

    fn with(facts: Arc<Facts>, account: Option<&Account>) -> Self {
        let accounts = Arc::new(facts.accounts(account));
        Self {
            root: facts.root(accounts.clone()),
            accounts,
            facts,
            default_scopes: account.map(|account| account.scopes.canonical.clone()).unwrap_or_default(),
            has_account: account.is_some(),
        }
    }

    /// The canonical scopes of a request that names none: the account's own.
    pub fn default_scopes(&self) -> &Arc<str> {
        &self.default_scopes
    }

    /// What a request asks for.
    ///
    /// A request that announces a body is refused; its bytes are still in the connection, so close it.
    ///
    /// # Errors
    /// The rule that forbids it, or 404.
    pub fn query<'t, 'b>(&'t self, head: &RequestHead<'_, 'b>) -> Result<Query<'t, 'b>, Refusal> {
        head::only_reads(head, METHOD, BINDING)?;
        without_body(head)?;
        let marks = Marks::of(head);
        marks.direct()?;
        let target = path::canonicalise(head.target)?;
        if let Some(known) = probe(&target.path) {
            return Ok(Query { what: What::Text(Text::Known(known)), hold: None });
        }
        marks.flavored()?;
        let found = self.find(target.path.as_str())?;
        let params = Params::parse(target.query, Unknown::Ignored)?;
        let (what, hold) = self.ask(found, target, &params)?;
        Ok(Query { what, hold })
    }

    /// The same look at what this tree has now.
    ///
    /// # Errors
    /// There is no such text here.
    pub fn look(&self, look: &Look) -> Result<Known<'_>, Refusal> {
        match self.find(&look.path)? {
            Found::Directory(directory) => Ok(known_directory(directory, look.form)),
            Found::Leaf(leaf) => Ok(known_leaf(leaf, look.form)),
            Found::Token | Found::Identity | Found::NoIdentity => Err(NOT_FOUND),
        }
    }

    /// The entry at a canonical path. A leaf has no slash at its end, as on the real server.
    fn find(&self, path: &str) -> Result<Found<'_>, Refusal> {
        let found = match path.strip_prefix(ACCOUNTS) {
            Some(below) => self.accounts.find(path::segments(below)),
            None => self.root.find(path::segments(path)),
        };
        match found {
            Some(found @ Found::Directory(_)) => Ok(found),
            Some(found) if !path.ends_with('/') => Ok(found),
            None if !self.has_account && path.starts_with(ACCOUNTS) => Err(NO_ACCOUNT),
            _ => Err(NOT_FOUND),
        }
    }

    fn ask<'t, 'b>(
        &'t self,
        found: Found<'t>,
        target: Target<'b>,
        params: &Params<'b>,
    ) -> Result<Asked<'t, 'b>, Refusal> {
        Ok(match found {
            Found::Directory(directory) => return ask_directory(directory, target, params),
            Found::Leaf(leaf) => {
                let known = known_leaf(leaf, Form::of(params));
                (What::Text(Text::Known(known)), unchanged(leaf.etag(), params))
            }
            Found::Token => {
                params.wants_no_binding()?;
                let scopes = params.scopes_or(&self.default_scopes)?;
                let token = Credential::AccessToken { scopes, alt: params.alt.unwrap_or(Alt::Json) };
                (What::Credential(token), params.hold())
            }
            Found::Identity => {
                let (audience, include_email) = (params.audience()?, params.includes_email());
                (What::Credential(Credential::IdToken { audience, include_email }), params.hold())
            }
            Found::NoIdentity => return Err(NO_IDENTITY),
        })
    }
}

const ACCOUNTS: &str = "/computeMetadata/v1/instance/service-accounts/";

/// `/` and `/computeMetadata/` answer without the flavour header (Go probes so), whatever the query: they say no
/// more than that this is a metadata server.
fn probe(path: &Path<'_>) -> Option<Known<'static>> {
    let body = match path.as_str() {
        "/" => "computeMetadata/\n",
        "/computeMetadata/" => "v1/\n",
        _ => return None,
    };
    Some(Known { body: body.into(), content_type: TEXT, etag: None, route: "probe" })
}

fn ask_directory<'t, 'b>(
    directory: &'t Directory,
    target: Target<'b>,
    params: &Params<'b>,
) -> Result<Asked<'t, 'b>, Refusal> {
    if !params.is_recursive() && (params.alt.is_some() || params.waits()) {
        return Err(DIRECTORY_QUERY);
    }
    if !target.path.is_directory() {
        let path = target.path.into_text().into_owned() + "/";
        return Ok((What::Text(Text::Redirect(Redirect { path, query: target.query })), None));
    }
    let known = known_directory(directory, Form::of(params));
    Ok((What::Text(Text::Known(known)), unchanged(directory.etag(), params)))
}

fn known_directory(directory: &Directory, form: Form) -> Known<'_> {
    let (body, content_type, route) = match form.alt {
        _ if !form.is_recursive => (directory.listing(), TEXT, "listing"),
        Some(Alt::Text) => (directory.to_text(), TEXT, "recursive"),
        Some(Alt::Json) | None => (directory.to_json(), JSON, "recursive"),
    };
    Known { body: body.into(), content_type, etag: Some(directory.etag()), route }
}

/// A leaf is text unless JSON is asked for; `recursive` says nothing about it.
fn known_leaf(leaf: &Leaf, form: Form) -> Known<'_> {
    let (body, content_type) = match form.alt {
        Some(Alt::Json) => (leaf.to_json().into(), JSON),
        Some(Alt::Text) | None => (leaf.as_text().into(), TEXT),
    };
    Known { body, content_type, etag: Some(leaf.etag()), route: "leaf" }
}

/// The hold of a client that has this content already; one with other content, or none, is answered at once.
fn unchanged<'b>(etag: ETag, params: &Params<'b>) -> Option<Hold<'b>> {
    params.hold().filter(|hold| hold.last_etag.as_deref().is_none_or(|last| etag.matches(last)))
}
