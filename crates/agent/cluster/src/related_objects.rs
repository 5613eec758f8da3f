//! The objects that are read beside pods: which they are, where the API server keeps them, what of them is wanted.
//!
//! Refuses to know when they are read, which is [`crate::index`]'s to say, and how, which is [`crate::snapshot_writer`]'s.

use std::fmt;
use std::sync::Arc;

use seawall_core::annotations::AnnotationKeys;
use seawall_core::{Pod, ServiceAccount};

use crate::object::{ObjectMeta, ParsedAnnotationKeys};

/// A kind of such objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelatedKind {
    ServiceAccount,
    Namespace,
}

/// One of them, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RelatedObject {
    ServiceAccount(ServiceAccount),
    Namespace(Arc<str>),
}

/// The keys of the annotations that somebody selects. A kind without any is not asked for at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct SelectedKeys {
    pub(crate) pod: ParsedAnnotationKeys,
    pub(crate) service_account: ParsedAnnotationKeys,
    pub(crate) namespace: Option<ParsedAnnotationKeys>,
}

impl RelatedKind {
    /// The collection of all namespaces' objects.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::ServiceAccount => "/api/v1/serviceaccounts",
            Self::Namespace => "/api/v1/namespaces",
        }
    }

    /// The object whose metadata this is.
    pub(crate) fn object(self, metadata: &ObjectMeta) -> RelatedObject {
        let name = metadata.name.as_str().into();
        match self {
            Self::ServiceAccount => RelatedObject::ServiceAccount(ServiceAccount {
                namespace: metadata.namespace.as_str().into(),
                name,
            }),
            Self::Namespace => RelatedObject::Namespace(name),
        }
    }
}

impl RelatedObject {
    pub(crate) fn kind(&self) -> RelatedKind {
        match self {
            Self::ServiceAccount(_) => RelatedKind::ServiceAccount,
            Self::Namespace(_) => RelatedKind::Namespace,
        }
    }

    pub(crate) fn path(&self) -> String {
        match self {
            Self::ServiceAccount(ServiceAccount { namespace, name }) => {
                format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
            }
            Self::Namespace(name) => format!("{}/{name}", RelatedKind::Namespace.path()),
        }
    }

    /// Whether what it says counts for this pod.
    pub(crate) fn applies_to(&self, pod: &Pod) -> bool {
        match self {
            Self::ServiceAccount(account) => pod.service_account == *account,
            Self::Namespace(name) => pod.service_account.namespace == *name,
        }
    }
}

impl fmt::Display for RelatedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceAccount(account) => write!(f, "ServiceAccount {account}"),
            Self::Namespace(name) => write!(f, "namespace {name}"),
        }
    }
}

impl SelectedKeys {
    pub(crate) fn of(all: &[AnnotationKeys]) -> Self {
        let keys = |of: fn(&AnnotationKeys) -> &'static [&'static str]| {
            all.iter().flat_map(of).copied().collect::<ParsedAnnotationKeys>()
        };
        let namespace = keys(|selection| selection.namespace);
        Self {
            pod: keys(|selection| selection.pod),
            service_account: keys(|selection| selection.service_account),
            namespace: (!namespace.is_empty()).then_some(namespace),
        }
    }

    /// Those of a kind; none of a kind that nobody selects.
    pub(crate) fn keys(&self, kind: RelatedKind) -> ParsedAnnotationKeys {
        match kind {
            RelatedKind::ServiceAccount => self.service_account.clone(),
            RelatedKind::Namespace => self.namespace.clone().unwrap_or_default(),
        }
    }
}
