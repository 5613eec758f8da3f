//! Federate mode: the tree that one workload sees.

use std::borrow::Cow;
use std::sync::Arc;

use seawall_wire::RequestHead;

use super::etag::ETag;
use super::query::Hold;
use super::scopes::Scopes;
use crate::Refusal;

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
    /// Scopes listed, and asked for when a request names none.
    pub scopes: Vec<String>,
}

/// Everything one workload can read. Cheap to build, meant to be shared by all pods of a ServiceAccount.
#[derive(Debug)]
pub struct Tree {
    default_scopes: Arc<str>,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query<'t, 'b> {
    /// The thing.
    pub what: What<'t, 'b>,
    /// Set when the answer is to wait: the content has not changed since the client saw it. For a
    /// [`What::AccessToken`] the caller compares `last_etag` itself.
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
    },
    /// An identity token.
    IdToken {
        /// Its audience: 1 to 2048 visible characters.
        audience: Cow<'b, str>,
        /// Whether the account's e-mail is to be in it (`format=full`).
        include_email: bool,
    },
    /// A directory named without its slash.
    Redirect(Redirect<'t, 'b>),
}

/// A body that needs no broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known<'t> {
    /// The body.
    pub body: Cow<'t, str>,
    /// Its `Content-Type`.
    pub content_type: &'static str,
    /// The tag of the content, in whatever form it is asked for; probes have none.
    pub etag: Option<ETag>,
    /// What it is; a word from a closed set, for metrics.
    pub route: &'static str,
}

/// Where a directory really is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect<'t, 'b> {
    /// The canonical path with its slash.
    pub path: Cow<'t, str>,
    /// The query as sent.
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

impl Tree {
    /// The tree of a workload on this node; without an account, every path below `service-accounts/` is a 404.
    pub fn new(_node: &Node, _account: Option<&Account>) -> Self {
        Self { default_scopes: "".into() }
    }

    /// The canonical scopes of a request that names none.
    pub fn default_scopes(&self) -> &Arc<str> {
        &self.default_scopes
    }

    /// What a request asks for.
    ///
    /// A request whose head announces a body is refused; its bytes are still in the connection, so close it.
    ///
    /// # Errors
    /// The rule that forbids it, or 404.
    pub fn query<'t, 'b>(&'t self, _head: &RequestHead<'_, 'b>) -> Result<Query<'t, 'b>, Refusal> {
        Err(Refusal::new(404, "not_found", "There is no such metadata."))
    }
}
