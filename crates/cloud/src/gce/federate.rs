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

use seawall_wire::RequestHead;

use super::etag::ETag;
use super::head::{self, Marks};
use super::path::{self, Path, Target};
use super::query::{Alt, Hold, Params, Unknown};
use super::scopes::Scopes;
use super::tree::{Directory, Entry, Found, Keys, Leaf};
use crate::Refusal;

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

/// What the service-accounts directory of a GKE node lists, for an account whose configuration names no scopes.
pub const DEFAULT_SCOPES: [&str; 2] =
    ["https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email"];

const TEXT: &str = "application/text";
const JSON: &str = "application/json";

/// What is known about the node and its cluster. What is `None` is absent from the tree (404).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Project id, for example `shop-prod`.
    pub project_id: String,
    /// Project number.
    pub numeric_project_id: u64,
    /// Zone name, for example `europe-west4-a`.
    pub zone: Option<String>,
    /// Instance id.
    pub instance_id: Option<u64>,
    /// Instance name.
    pub instance_name: Option<String>,
    /// Fully qualified host name.
    pub hostname: Option<String>,
    /// `attributes/cluster-name`.
    pub cluster_name: Option<String>,
    /// `attributes/cluster-location`.
    pub cluster_location: Option<String>,
    /// `attributes/cluster-uid`.
    pub cluster_uid: Option<String>,
    /// Universe domain; `googleapis.com` outside sovereign clouds.
    pub universe_domain: String,
}

/// The Google identity of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The service account's e-mail, or the workload pool (`PROJECT.svc.id.goog`) when none is impersonated.
    pub email: String,
    /// Whether `email` is a service account that is impersonated; only then identity tokens exist.
    pub impersonated: bool,
    /// Scopes listed, and asked for when a request names none. See [`DEFAULT_SCOPES`].
    pub scopes: Vec<String>,
}

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
    /// Set when the answer is to wait. For [`What::Known`] the comparison is done: the content has not changed since
    /// the client saw it, so wait until this tree is replaced. For tokens it is set whenever the client asked to
    /// wait, because only the lease knows its tag: compare `last_etag` with it, or wait for the next lease.
    pub hold: Option<Hold<'b>>,
    /// Whether the method is HEAD: answer with the head alone.
    pub head_only: bool,
}

/// The thing asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What<'t, 'b> {
    /// Text that is known already: leaf, listing, recursion, probe.
    Known(Known<'t>),
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
    /// A directory named without its slash.
    Redirect(Redirect<'b>),
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
    /// What it is; a word from a closed set, for metrics.
    pub route: &'static str,
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

impl What<'_, '_> {
    /// A word from a closed set, for metrics.
    pub fn route(&self) -> &'static str {
        match self {
            Self::Known(known) => known.route,
            Self::AccessToken { .. } => "token",
            Self::IdToken { .. } => "identity",
            Self::Redirect(_) => "redirect",
        }
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
        let accounts = Arc::new(Directory::new(Keys::Verbatim, accounts(account)));
        Self {
            root: facts.root(accounts.clone()),
            accounts,
            facts,
            default_scopes: account.map(|account| canonical(&account.scopes)).unwrap_or_default().into(),
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
        let method = || if head::asks_for_binding(head) { BINDING } else { METHOD };
        let head_only = head::is_head(head).ok_or_else(method)?;
        head::without_body(head)?;
        let marks = Marks::of(head);
        marks.direct()?;
        let target = path::canonicalise(head.target)?;
        if let Some(known) = probe(&target.path) {
            return Ok(Query { what: What::Known(known), hold: None, head_only });
        }
        marks.flavored()?;
        let found = self.find(&target.path)?;
        let params = Params::parse(target.query, Unknown::Ignored)?;
        let (what, hold) = self.ask(found, target, &params)?;
        Ok(Query { what, hold, head_only })
    }

    /// A leaf has no slash at its end, as on the real server.
    fn find(&self, path: &Path<'_>) -> Result<Found<'_>, Refusal> {
        let found = match path.as_str().strip_prefix(ACCOUNTS) {
            Some(below) => self.accounts.find(path::segments(below)),
            None => self.root.find(path.segments()),
        };
        match found {
            Some(found @ Found::Directory(_)) => Ok(found),
            Some(found) if !path.is_directory() => Ok(found),
            None if !self.has_account && path.as_str().starts_with(ACCOUNTS) => Err(NO_ACCOUNT),
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
            Found::Leaf(leaf) => (What::Known(known_leaf(leaf, params)), unchanged(leaf.etag(), params)),
            Found::Token => {
                params.wants_no_binding()?;
                let scopes = params.scopes_or(&self.default_scopes)?;
                (What::AccessToken { scopes, alt: params.alt.unwrap_or(Alt::Json) }, params.hold())
            }
            Found::Identity => {
                let (audience, include_email) = (params.audience()?, params.includes_email());
                (What::IdToken { audience, include_email }, params.hold())
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
    let listing = !params.is_recursive();
    if listing && (params.alt.is_some() || params.waits()) {
        return Err(DIRECTORY_QUERY);
    }
    if !target.path.is_directory() {
        let path = target.path.into_text().into_owned() + "/";
        return Ok((What::Redirect(Redirect { path, query: target.query }), None));
    }
    let (body, content_type, route) = match params.alt {
        _ if listing => (directory.listing(), TEXT, "listing"),
        Some(Alt::Text) => (directory.to_text(), TEXT, "recursive"),
        Some(Alt::Json) | None => (directory.to_json(), JSON, "recursive"),
    };
    let etag = directory.etag();
    let known = Known { body: body.into(), content_type, etag: Some(etag), route };
    Ok((What::Known(known), unchanged(etag, params)))
}

/// A leaf is text unless JSON is asked for; `recursive` says nothing about it.
fn known_leaf<'t>(leaf: &'t Leaf, params: &Params<'_>) -> Known<'t> {
    let (body, content_type) = match params.alt {
        Some(Alt::Json) => (leaf.to_json().into(), JSON),
        Some(Alt::Text) | None => (leaf.as_text().into(), TEXT),
    };
    Known { body, content_type, etag: Some(leaf.etag()), route: "leaf" }
}

/// The hold of a client that has this content already; one with other content, or none, is answered at once.
fn unchanged<'b>(etag: ETag, params: &Params<'b>) -> Option<Hold<'b>> {
    params.hold().filter(|hold| hold.last_etag.as_deref().is_none_or(|last| etag.matches(last)))
}

fn canonical(scopes: &[String]) -> String {
    let mut scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
    scopes.sort_unstable();
    scopes.dedup();
    scopes.join(" ")
}

type Children = Vec<(Cow<'static, str>, Entry)>;

/// What is the node's, and so the same in the tree of each of its accounts.
#[derive(Debug)]
struct Facts {
    /// Children of `instance/`, but for its accounts.
    instance: Children,
    /// The other directories of `computeMetadata/v1/`.
    beside: Children,
}

impl Facts {
    fn of(node: &Node) -> Self {
        let project = vec![
            directory("attributes", Keys::Verbatim, Vec::new()),
            ("numeric-project-id".into(), Leaf::number(node.numeric_project_id)),
            ("project-id".into(), Leaf::text(&node.project_id)),
        ];
        let universe = vec![("universe-domain".into(), Leaf::text(&node.universe_domain))];
        let mut instance = instance(node);
        instance.push(directory("attributes", Keys::Verbatim, attributes(node)));
        let beside =
            vec![directory("project", Keys::Camel, project), directory("universe", Keys::Camel, universe)];
        Self { instance, beside }
    }

    fn root(&self, accounts: Arc<Directory>) -> Directory {
        let mut instance = self.instance.clone();
        instance.push(("service-accounts".into(), Entry::Directory(accounts)));
        let mut v1 = self.beside.clone();
        v1.push(directory("instance", Keys::Camel, instance));
        let versions = vec![directory("v1", Keys::Camel, v1)];
        Directory::new(Keys::Camel, vec![directory("computeMetadata", Keys::Camel, versions)])
    }
}

fn directory(name: &'static str, keys: Keys, children: Children) -> (Cow<'static, str>, Entry) {
    (Cow::Borrowed(name), Entry::Directory(Directory::new(keys, children).into()))
}

fn instance(node: &Node) -> Children {
    let zone = node.zone.as_ref().map(|zone| format!("projects/{}/zones/{zone}", node.numeric_project_id));
    let text = |name: &'static str, value: Option<String>| Some((name.into(), Leaf::text(value?)));
    let leaves = [
        text("hostname", node.hostname.clone()),
        node.instance_id.map(|id| ("id".into(), Leaf::number(id))),
        text("name", node.instance_name.clone()),
        text("zone", zone),
    ];
    leaves.into_iter().flatten().collect()
}

fn attributes(node: &Node) -> Children {
    let facts = [
        ("cluster-location", &node.cluster_location),
        ("cluster-name", &node.cluster_name),
        ("cluster-uid", &node.cluster_uid),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.into(), Leaf::text(value.as_ref()?)))).collect()
}

/// The account under its e-mail and under `default`, as everywhere at Google.
fn accounts(account: Option<&Account>) -> Children {
    let Some(account) = account else { return Vec::new() };
    let entry = Entry::Directory(account_directory(account).into());
    vec![(account.email.clone().into(), entry.clone()), ("default".into(), entry)]
}

fn account_directory(account: &Account) -> Directory {
    let identity = if account.impersonated { Entry::Identity } else { Entry::NoIdentity };
    Directory::new(
        Keys::Camel,
        [
            ("aliases".into(), Leaf::list(["default"])),
            ("email".into(), Leaf::text(&account.email)),
            ("identity".into(), identity),
            ("scopes".into(), Leaf::list(account.scopes.iter().map(String::as_str))),
            ("token".into(), Entry::Token),
        ],
    )
}
