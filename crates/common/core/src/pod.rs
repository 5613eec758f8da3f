//! Pods, their ServiceAccounts and their tokens.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::secret::Secret;

/// The UID of a pod. With `static` identity there is no API server, and the UID is any unique text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(pub Arc<str>);

/// A Kubernetes ServiceAccount by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceAccount {
    /// The namespace of the ServiceAccount.
    pub namespace: Arc<str>,
    /// The name within the namespace.
    pub name: Arc<str>,
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod that attestation identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The UID, which is unique. A later pod can get the name or the address of an earlier pod.
    pub uid: PodUid,
    /// The name of the pod, for display.
    pub name: Arc<str>,
    /// The ServiceAccount of the pod. Its namespace is also the pod's namespace.
    pub service_account: ServiceAccount,
}

/// The reason why the agent got no Kubernetes token for a pod. The text is for logs and `/debug/pods`; pods never see it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub struct SubjectTokenError {
    /// The failed file access or API call with its error. The text never contains the token.
    pub reason: String,
    /// True if a retry can succeed without a change by an operator.
    pub is_retryable: bool,
}

/// The future that [`SubjectTokens::subject_token`] returns.
pub type SubjectFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Secret<String>, SubjectTokenError>> + Send + 'a>>;

/// The source of the Kubernetes token (a JWT) by which one pod authenticates at a cloud.
///
/// The trait is narrow on purpose: code that has such a source can request only this pod's token.
pub trait SubjectTokens: Send + Sync + fmt::Debug {
    /// Reads or requests a new token for `audience`, and returns it.
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a>;
}
