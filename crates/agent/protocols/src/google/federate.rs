//! Implements federate mode: builds the metadata tree of one workload, and parses requests for this tree.
//!
//! The tree contains only data that the workload is allowed to read, so no entry is concealed. An unknown path gets 404. The
//! parser ignores unknown query keys, because new SDK releases add keys. Three rules prevent *other parties* from sending
//! requests in the workload's name. The flavour header is required. Proxied requests are refused. Only GET and HEAD without a
//! body are allowed.
//!
//! The sources of the paths and parameters are google-auth for Python, cloud.google.com/go/compute/metadata, Node's gcp-metadata
//! and the guest agent. `tests/protocols/google_clients.rs` replays their requests.

use std::borrow::Cow;
use std::sync::Arc;

use seawall_http::RequestHead;

use super::etag::ETag;
use super::node_metadata::{GoogleIdentity, NodeDirectories, NodeMetadata};
use super::query::{QueryParams, ResponseFormat, UnknownKeyPolicy, WaitForChange};
use super::request_head_rules::{self, GuardHeaders};
use super::scopes::Scopes;
use super::tree::{Directory, FoundEntry, Leaf};
use crate::request_head_rules::require_no_body;
use seawall_http::Refusal;
use seawall_http::path::{self, CanonicalPath, RequestTarget};

/// The refusal for a method other than GET and HEAD.
///
/// SDKs treat 405 as final. The response has an `Allow` header (RFC 9110 section 15.5.6). With 403, users would search for a
/// missing permission.
pub const METHOD_NOT_ALLOWED: Refusal =
    Refusal::new(405, "method_not_allowed", "Use GET or HEAD to read metadata.");
/// The refusal for the POST that google-auth sends if it finds a client certificate. Only the message differs from
/// [`METHOD_NOT_ALLOWED`].
pub const CERTIFICATE_BINDING_UNSUPPORTED: Refusal =
    Refusal::new(405, "method_not_allowed", request_head_rules::CERTIFICATE_BINDING_MESSAGE);
/// The refusal for a path that does not exist.
pub const NOT_FOUND: Refusal = Refusal::new(404, "not_found", "The agent has no metadata at this path.");
/// The refusal for an account's path if the workload has no account.
pub const NO_ACCOUNT: Refusal =
    Refusal::new(404, "no_account", "No Google identity is configured for this Kubernetes ServiceAccount.");
/// The refusal for an identity token if the workload impersonates no service account.
///
/// The identity of the workload pool can get access tokens only. Other metadata servers also answer 404, and SDKs do not retry
/// after a 404.
pub const NO_ACCOUNT_FOR_ID_TOKEN: Refusal = Refusal::new(
    404,
    "no_account",
    "Identity tokens need a Google service account: annotate the Kubernetes ServiceAccount with \
     iam.gke.io/gcp-service-account.",
);
/// The refusal for `alt` or `wait_for_change` on a directory without `recursive`. The real server also refuses such requests.
pub const RECURSIVE_REQUIRED: Refusal = Refusal::new(
    400,
    "recursive_required",
    "The parameters alt and wait_for_change on a directory need recursive=true.",
);

const TEXT: &str = "application/text";
const JSON: &str = "application/json";

/// All metadata of one workload. All trees share the node's metadata. The other data of a tree take about 1 KiB. Pods of one
/// ServiceAccount can share a tree.
#[derive(Debug)]
pub struct MetadataTree {
    root: Directory,
    /// The directory at [`ACCOUNTS`] below the root. Nearly every request is for an entry in it.
    accounts: Arc<Directory>,
    facts: Arc<NodeDirectories>,
    default_scopes: Arc<str>,
    has_account: bool,
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRequest<'t, 'b> {
    /// The requested resource.
    pub resource: TreeResource<'t, 'b>,
    /// The long poll, if the response must wait for a change.
    ///
    /// With a [`TreeResponse::Text`], the parser sets this field only if the client sent the current etag or no etag. The
    /// caller then waits until a new tree replaces this tree. With a credential, the parser does not know the current token's
    /// etag, so it sets this field for every long poll. The caller then compares `last_etag` with the etag of the lease (the
    /// cached token). If the etags differ, the caller answers at once. Otherwise it waits for the next lease.
    pub long_poll: Option<WaitForChange<'b>>,
}

/// The resource that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeResource<'t, 'b> {
    /// A response that needs no credential.
    WithoutCredential(TreeResponse<'t, 'b>),
    /// A credential, which the broker provides.
    Credential(CredentialQuery<'t, 'b>),
}

/// A response that needs no credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeResponse<'t, 'b> {
    /// The text of a leaf, a listing, a recursive read or a probe.
    Text(CredentialFreeBody<'t>),
    /// A redirect for a directory path without the final slash.
    Redirect(DirectoryRedirect<'b>),
}

/// A request for a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialQuery<'t, 'b> {
    /// An access token.
    AccessToken {
        /// The requested scopes.
        scopes: Scopes<'t>,
        /// The format of the response: JSON unless the client asks for text.
        alt: ResponseFormat,
    },
    /// An identity token.
    IdToken {
        /// The token's audience. It has 1 to 2048 visible characters.
        audience: Cow<'b, str>,
        /// True if the token must contain the account's e-mail (`format=full`).
        include_email: bool,
    },
}

/// A text body that contains no credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFreeBody<'t> {
    /// The body.
    pub body: Cow<'t, str>,
    /// The body's `Content-Type`.
    pub content_type: &'static str,
    /// The etag of the requested subtree. It is the same in every format. The response to a probe has no etag.
    pub etag: Option<ETag>,
    /// The name of the route. The set of names is fixed.
    pub route_name: &'static str,
}

impl CredentialFreeBody<'_> {
    /// Copies borrowed text, so the result owns its text.
    pub fn into_owned(self) -> CredentialFreeBody<'static> {
        CredentialFreeBody { body: Cow::Owned(self.body.into_owned()), ..self }
    }
}

/// A redirect to a directory's path with the final slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryRedirect<'b> {
    /// The canonical path with the final slash. It begins with exactly one slash, so it cannot name another host.
    /// It contains no character that could end a header.
    pub path: String,
    /// The query as the client sent it. It is visible ASCII.
    pub query: Option<&'b str>,
}

impl TreeResponse<'_, '_> {
    /// Returns the name of the route. The set of names is fixed.
    pub fn route_name(&self) -> &'static str {
        match self {
            Self::Text(known) => known.route_name,
            Self::Redirect(_) => "redirect",
        }
    }
}

impl TreeResource<'_, '_> {
    /// Returns the name of the route. The set of names is fixed.
    pub fn route_name(&self) -> &'static str {
        match self {
            Self::WithoutCredential(text) => text.route_name(),
            Self::Credential(CredentialQuery::AccessToken { .. }) => "token",
            Self::Credential(CredentialQuery::IdToken { .. }) => "identity",
        }
    }
}

/// A read of a text in a tree. A long poll stores the read and repeats it in the tree that replaces this tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPollTarget {
    path: String,
    form: Form,
}

/// The requested form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    alt: Option<ResponseFormat>,
    is_recursive: bool,
}

impl Form {
    fn of(params: &QueryParams<'_>) -> Self {
        Self { alt: params.alt, is_recursive: params.is_recursive() }
    }
}

impl LongPollTarget {
    /// Returns the read that this request describes.
    ///
    /// # Errors
    /// The rule that forbids the request.
    pub fn from_request(head: &RequestHead<'_, '_>) -> Result<Self, Refusal> {
        let target = path::canonicalise_target(head.target)?;
        let form = Form::of(&QueryParams::parse(target.query, UnknownKeyPolicy::Ignored)?);
        Ok(Self { path: target.path.into_text().into_owned(), form })
    }
}

/// The requested resource, and the long poll if the response must wait.
type ParsedTreeRequest<'t, 'b> = (TreeResource<'t, 'b>, Option<WaitForChange<'b>>);

impl MetadataTree {
    /// Creates the tree of a workload on this node. Without an account, every path below `service-accounts/` gets 404.
    pub fn for_workload(node: &NodeMetadata, account: Option<&GoogleIdentity>) -> Self {
        Self::with(Arc::new(NodeDirectories::from_metadata(node)), account)
    }

    /// Creates the tree of another workload on the same node. Both trees share the node's metadata.
    pub fn with_account(&self, account: &GoogleIdentity) -> Self {
        Self::with(self.facts.clone(), Some(account))
    }

    fn with(facts: Arc<NodeDirectories>, account: Option<&GoogleIdentity>) -> Self {
        let accounts = Arc::new(facts.build_accounts_directory(account));
        Self {
            root: facts.build_root(accounts.clone()),
            accounts,
            facts,
            default_scopes: account.map(|account| account.scopes.canonical.clone()).unwrap_or_default(),
            has_account: account.is_some(),
        }
    }

    /// Returns the account's own scopes in canonical form. They apply to a request without scopes.
    pub fn default_scopes(&self) -> &Arc<str> {
        &self.default_scopes
    }

    /// Parses a request.
    ///
    /// If the error is [`UNEXPECTED_BODY`](crate::request_head_rules::UNEXPECTED_BODY), the caller must close the connection.
    ///
    /// # Errors
    /// The rule that forbids the request, or 404.
    pub fn parse_request<'t, 'b>(
        &'t self,
        head: &RequestHead<'_, 'b>,
    ) -> Result<TreeRequest<'t, 'b>, Refusal> {
        request_head_rules::require_read_method(head, METHOD_NOT_ALLOWED, CERTIFICATE_BINDING_UNSUPPORTED)?;
        require_no_body(head)?;
        let marks = GuardHeaders::from_request(head);
        marks.require_not_proxied()?;
        let target = path::canonicalise_target(head.target)?;
        if let Some(known) = probe(&target.path) {
            return Ok(TreeRequest {
                resource: TreeResource::WithoutCredential(TreeResponse::Text(known)),
                long_poll: None,
            });
        }
        marks.require_flavor()?;
        let found = self.find(target.path.as_str())?;
        let params = QueryParams::parse(target.query, UnknownKeyPolicy::Ignored)?;
        let (what, hold) = self.ask(found, target, &params)?;
        Ok(TreeRequest { resource: what, long_poll: hold })
    }

    /// Repeats a read in this tree.
    ///
    /// # Errors
    /// This tree has no text at the path of `look`.
    pub fn reread_text(&self, look: &LongPollTarget) -> Result<CredentialFreeBody<'_>, Refusal> {
        match self.find(&look.path)? {
            FoundEntry::Directory(directory) => Ok(known_directory(directory, look.form)),
            FoundEntry::Leaf(leaf) => Ok(known_leaf(leaf, look.form)),
            FoundEntry::AccessToken | FoundEntry::IdToken | FoundEntry::IdTokenUnavailable => Err(NOT_FOUND),
        }
    }

    /// Finds the entry at a canonical path. If the path ends with a slash, the function finds no leaf. The real server behaves
    /// in the same way.
    fn find(&self, path: &str) -> Result<FoundEntry<'_>, Refusal> {
        let found = match path.strip_prefix(ACCOUNTS) {
            Some(below) => self.accounts.find(path::segments(below)),
            None => self.root.find(path::segments(path)),
        };
        match found {
            Some(found @ FoundEntry::Directory(_)) => Ok(found),
            Some(found) if !path.ends_with('/') => Ok(found),
            None if !self.has_account && path.starts_with(ACCOUNTS) => Err(NO_ACCOUNT),
            _ => Err(NOT_FOUND),
        }
    }

    fn ask<'t, 'b>(
        &'t self,
        found: FoundEntry<'t>,
        target: RequestTarget<'b>,
        params: &QueryParams<'b>,
    ) -> Result<ParsedTreeRequest<'t, 'b>, Refusal> {
        Ok(match found {
            FoundEntry::Directory(directory) => return ask_directory(directory, target, params),
            FoundEntry::Leaf(leaf) => {
                let known = known_leaf(leaf, Form::of(params));
                (TreeResource::WithoutCredential(TreeResponse::Text(known)), unchanged(leaf.etag(), params))
            }
            FoundEntry::AccessToken => {
                params.refuse_certificate_binding()?;
                let scopes = params.scopes_or_default(&self.default_scopes)?;
                let token =
                    CredentialQuery::AccessToken { scopes, alt: params.alt.unwrap_or(ResponseFormat::Json) };
                (TreeResource::Credential(token), params.long_poll())
            }
            FoundEntry::IdToken => {
                let (audience, include_email) = (params.audience()?, params.includes_email());
                (
                    TreeResource::Credential(CredentialQuery::IdToken { audience, include_email }),
                    params.long_poll(),
                )
            }
            FoundEntry::IdTokenUnavailable => return Err(NO_ACCOUNT_FOR_ID_TOKEN),
        })
    }
}

const ACCOUNTS: &str = "/computeMetadata/v1/instance/service-accounts/";

/// Answers `/` and `/computeMetadata/`, which Go's library probes. The request needs no flavour header and can have any query.
///
/// The response reveals only that this is a metadata server.
fn probe(path: &CanonicalPath<'_>) -> Option<CredentialFreeBody<'static>> {
    let body = match path.as_str() {
        "/" => "computeMetadata/\n",
        "/computeMetadata/" => "v1/\n",
        _ => return None,
    };
    Some(CredentialFreeBody { body: body.into(), content_type: TEXT, etag: None, route_name: "probe" })
}

fn ask_directory<'t, 'b>(
    directory: &'t Directory,
    target: RequestTarget<'b>,
    params: &QueryParams<'b>,
) -> Result<ParsedTreeRequest<'t, 'b>, Refusal> {
    if !params.is_recursive() && (params.alt.is_some() || params.is_long_poll()) {
        return Err(RECURSIVE_REQUIRED);
    }
    if !target.path.is_directory() {
        let path = target.path.into_text().into_owned() + "/";
        return Ok((
            TreeResource::WithoutCredential(TreeResponse::Redirect(DirectoryRedirect {
                path,
                query: target.query,
            })),
            None,
        ));
    }
    let known = known_directory(directory, Form::of(params));
    Ok((TreeResource::WithoutCredential(TreeResponse::Text(known)), unchanged(directory.etag(), params)))
}

fn known_directory(directory: &Directory, form: Form) -> CredentialFreeBody<'_> {
    let (body, content_type, route) = match form.alt {
        _ if !form.is_recursive => (directory.listing(), TEXT, "listing"),
        Some(ResponseFormat::Text) => (directory.to_text(), TEXT, "recursive"),
        Some(ResponseFormat::Json) | None => (directory.to_json(), JSON, "recursive"),
    };
    CredentialFreeBody { body: body.into(), content_type, etag: Some(directory.etag()), route_name: route }
}

/// Returns a leaf as text, or as JSON if the client requests JSON. `recursive` has no effect on a leaf.
fn known_leaf(leaf: &Leaf, form: Form) -> CredentialFreeBody<'_> {
    let (body, content_type) = match form.alt {
        Some(ResponseFormat::Json) => (leaf.to_json().into(), JSON),
        Some(ResponseFormat::Text) | None => (leaf.as_text().into(), TEXT),
    };
    CredentialFreeBody { body, content_type, etag: Some(leaf.etag()), route_name: "leaf" }
}

/// Returns the long poll if the client must wait. A client whose etag differs from this content's etag gets an immediate answer.
fn unchanged<'b>(etag: ETag, params: &QueryParams<'b>) -> Option<WaitForChange<'b>> {
    params.long_poll().filter(|hold| hold.last_etag.as_deref().is_none_or(|last| etag.matches(last)))
}
