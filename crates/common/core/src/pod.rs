//! Pods and the ServiceAccounts that they run as.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::secret::Secret;

/// A pod's UID. In `static` identity, where no API server gives one, any unique text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(pub Arc<str>);

/// A Kubernetes ServiceAccount by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceAccount {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name within the namespace.
    pub name: Arc<str>,
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod as attestation knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Unique for the pod's life; an address or a name is not.
    pub uid: PodUid,
    /// Pod name, for people.
    pub name: Arc<str>,
    /// The ServiceAccount that the pod runs as; it also gives the namespace.
    pub service_account: ServiceAccount,
}

/// The reason why a pod got no Kubernetes token. The text is for logs and `/debug/pods`; a pod never sees it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub struct SubjectError {
    /// The file or API call that failed, and its error; never the token.
    pub reason: String,
    /// True if a retry can help without a change by an operator.
    pub retryable: bool,
}

/// A future that a [`SubjectTokens`] returns.
pub type SubjectFuture<'a> = Pin<Box<dyn Future<Output = Result<Secret<String>, SubjectError>> + Send + 'a>>;

/// Gives the Kubernetes token (a JWT) with which one pod proves itself to a cloud.
///
/// The handle is narrow on purpose: its holder can ask for this pod's token and for nothing else.
pub trait SubjectTokens: Send + Sync + fmt::Debug {
    /// Returns a token for `audience`, read or requested anew.
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a>;
}
