//! Defines the objects that the agent reads besides pods: their kinds, their API paths and the selected annotation keys.
//!
//! [`crate::index`] decides when the agent reads these objects. [`crate::snapshot_writer`] reads them.

use std::fmt;
use std::sync::Arc;

use seawall_core::annotations::{AnnotationKey, AnnotationKeys};
use seawall_core::{Pod, ServiceAccount};

use crate::object::{KeptAnnotationKeys, ObjectMeta};

/// A kind of object whose annotations apply to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelatedObjectKind {
    ServiceAccount,
    Namespace,
}

/// Names one ServiceAccount or namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RelatedObject {
    ServiceAccount(ServiceAccount),
    Namespace(Arc<str>),
}

/// Holds the annotation keys that the configured clouds select. If no cloud selects a key of namespaces, the agent requests no
/// namespaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct SelectedAnnotationKeys {
    pub(crate) pod: KeptAnnotationKeys,
    pub(crate) service_account: KeptAnnotationKeys,
    pub(crate) namespace: Option<KeptAnnotationKeys>,
}

impl RelatedObjectKind {
    /// Returns the API path of this kind's objects in all namespaces.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::ServiceAccount => "/api/v1/serviceaccounts",
            Self::Namespace => "/api/v1/namespaces",
        }
    }

    /// Returns the kind and the name of the object that has this metadata.
    pub(crate) fn object_from_metadata(self, metadata: &ObjectMeta) -> RelatedObject {
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
    pub(crate) fn kind(&self) -> RelatedObjectKind {
        match self {
            Self::ServiceAccount(_) => RelatedObjectKind::ServiceAccount,
            Self::Namespace(_) => RelatedObjectKind::Namespace,
        }
    }

    pub(crate) fn path(&self) -> String {
        match self {
            Self::ServiceAccount(ServiceAccount { namespace, name }) => {
                format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
            }
            Self::Namespace(name) => format!("{}/{name}", RelatedObjectKind::Namespace.path()),
        }
    }

    /// True if this object's annotations apply to this pod.
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

impl SelectedAnnotationKeys {
    pub(crate) fn merge(all: &[AnnotationKeys]) -> Self {
        let keys = |of: fn(&AnnotationKeys) -> &Vec<AnnotationKey>| {
            all.iter().flat_map(of).cloned().collect::<KeptAnnotationKeys>()
        };
        let namespace = keys(|selection| &selection.namespace);
        Self {
            pod: keys(|selection| &selection.pod),
            service_account: keys(|selection| &selection.service_account),
            namespace: (!namespace.is_empty()).then_some(namespace),
        }
    }

    /// Returns the selected keys of this kind; empty if no cloud selects a key of this kind.
    pub(crate) fn keys_of_kind(&self, kind: RelatedObjectKind) -> KeptAnnotationKeys {
        match kind {
            RelatedObjectKind::ServiceAccount => self.service_account.clone(),
            RelatedObjectKind::Namespace => self.namespace.clone().unwrap_or_default(),
        }
    }
}
