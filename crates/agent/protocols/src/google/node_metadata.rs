//! Builds the directories of a workload's metadata tree from the node's metadata and the workload's account.
//!
//! This module contains no code for requests. [`super::federate`] answers requests from the trees.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::scopes::join_scopes;
use super::tree::{Directory, KeyStyle, Leaf, TreeEntry};

/// The scopes that a GKE node lists for an account without configured scopes.
pub const DEFAULT_ACCOUNT_SCOPES: [&str; 2] =
    ["https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email"];

/// The metadata of the node and its cluster. The tree omits a value that is `None`, so the agent answers 404 at the value's
/// path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMetadata {
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
    /// The value of `attributes/cluster-name`.
    pub cluster_name: Option<String>,
    /// The value of `attributes/cluster-location`.
    pub cluster_location: Option<String>,
    /// The value of `attributes/cluster-uid`.
    pub cluster_uid: Option<String>,
    /// Further values below `attributes/`, by name. A name is one segment of a path, and not one of the three names above.
    pub attributes: BTreeMap<String, String>,
    /// The universe domain. It is `googleapis.com` outside sovereign clouds.
    pub universe_domain: String,
}

/// The Google identity of one workload.
#[derive(Clone, Debug)]
pub struct GoogleIdentity {
    /// The service account's e-mail address, or the workload pool (`PROJECT.svc.id.goog`) if no account is impersonated.
    pub email_or_workload_pool: String,
    /// True if `email_or_workload_pool` names an impersonated service account. Identity tokens exist only for such accounts.
    pub is_impersonated: bool,
    /// The scopes in the listing, which also apply to requests without scopes. See [`DEFAULT_ACCOUNT_SCOPES`].
    pub scopes: AccountScopes,
}

/// An account's scopes in two forms: the listing and the canonical form. All accounts with the same scopes share one value.
/// Cloning is cheap.
#[derive(Clone, Debug)]
pub struct AccountScopes {
    /// The scopes as they appear in the directory.
    leaf: TreeEntry,
    pub(super) canonical: Arc<str>,
}

impl AccountScopes {
    /// Creates the scopes of an account. The listing keeps the order of `scopes`.
    pub fn new(scopes: &[&str]) -> Self {
        Self {
            leaf: Leaf::new_list_entry(scopes.iter().copied()),
            canonical: join_scopes(scopes.to_vec()).into(),
        }
    }
}

type Children = Vec<(Cow<'static, str>, TreeEntry)>;

/// The directories of the node's metadata. The trees of all accounts on the node share these directories.
#[derive(Debug)]
pub(super) struct NodeDirectories {
    /// The children of `instance/`, except the accounts.
    instance: Children,
    /// The directories of `computeMetadata/v1/` other than `instance/`.
    beside: Children,
    /// The leaf with the account's alias, `default`.
    aliases: TreeEntry,
}

impl NodeDirectories {
    pub(super) fn from_metadata(node: &NodeMetadata) -> Self {
        let project = vec![
            directory("attributes", KeyStyle::Verbatim, Vec::new()),
            ("numeric-project-id".into(), Leaf::new_number_entry(node.numeric_project_id)),
            ("project-id".into(), Leaf::new_text_entry(&node.project_id)),
        ];
        let universe = vec![("universe-domain".into(), Leaf::new_text_entry(&node.universe_domain))];
        let mut instance = instance(node);
        instance.push(directory("attributes", KeyStyle::Verbatim, attributes(node)));
        let beside = vec![
            directory("project", KeyStyle::Camel, project),
            directory("universe", KeyStyle::Camel, universe),
        ];
        Self { instance, beside, aliases: Leaf::new_list_entry(["default"]) }
    }

    /// Builds the whole tree with these accounts.
    pub(super) fn build_root(&self, accounts: Arc<Directory>) -> Directory {
        let mut instance = self.instance.clone();
        instance.push(("service-accounts".into(), TreeEntry::Directory(accounts)));
        let mut v1 = self.beside.clone();
        v1.push(directory("instance", KeyStyle::Camel, instance));
        let versions = vec![directory("v1", KeyStyle::Camel, v1)];
        Directory::new(KeyStyle::Camel, vec![directory("computeMetadata", KeyStyle::Camel, versions)])
    }

    /// Builds the directory of accounts. As on Google's server, the account appears under its e-mail address and under `default`.
    pub(super) fn build_accounts_directory(&self, account: Option<&GoogleIdentity>) -> Directory {
        Directory::new(KeyStyle::Verbatim, account.map_or_else(Vec::new, |account| self.both_names(account)))
    }

    fn both_names(&self, account: &GoogleIdentity) -> Children {
        let entry = TreeEntry::Directory(self.account(account).into());
        vec![(account.email_or_workload_pool.clone().into(), entry.clone()), ("default".into(), entry)]
    }

    fn account(&self, account: &GoogleIdentity) -> Directory {
        let identity =
            if account.is_impersonated { TreeEntry::IdToken } else { TreeEntry::IdTokenUnavailable };
        Directory::new(
            KeyStyle::Camel,
            [
                ("aliases".into(), self.aliases.clone()),
                ("email".into(), Leaf::new_text_entry(&account.email_or_workload_pool)),
                ("identity".into(), identity),
                ("scopes".into(), account.scopes.leaf.clone()),
                ("token".into(), TreeEntry::AccessToken),
            ],
        )
    }
}

fn directory(name: &'static str, keys: KeyStyle, children: Children) -> (Cow<'static, str>, TreeEntry) {
    (Cow::Borrowed(name), TreeEntry::Directory(Directory::new(keys, children).into()))
}

fn instance(node: &NodeMetadata) -> Children {
    let zone = node.zone.as_ref().map(|zone| format!("projects/{}/zones/{zone}", node.numeric_project_id));
    let text = |name: &'static str, value: Option<String>| Some((name.into(), Leaf::new_text_entry(value?)));
    let leaves = [
        text("hostname", node.hostname.clone()),
        node.instance_id.map(|id| ("id".into(), Leaf::new_number_entry(id))),
        text("name", node.instance_name.clone()),
        text("zone", zone),
    ];
    leaves.into_iter().flatten().collect()
}

fn attributes(node: &NodeMetadata) -> Children {
    let facts = [
        ("cluster-location", &node.cluster_location),
        ("cluster-name", &node.cluster_name),
        ("cluster-uid", &node.cluster_uid),
    ];
    let facts = facts
        .into_iter()
        .filter_map(|(name, value)| Some((Cow::Borrowed(name), Leaf::new_text_entry(value.as_ref()?))));
    let others =
        node.attributes.iter().map(|(name, value)| (name.clone().into(), Leaf::new_text_entry(value)));
    facts.chain(others).collect()
}
