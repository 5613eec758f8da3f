//! Who calls: pods and the ServiceAccounts they run as.

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
    /// Whom the pod runs as; also gives the namespace.
    pub service_account: ServiceAccount,
}

/// Why no Kubernetes token could be had for a pod. The text is for logs and `/debug/pods`, never for a pod.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub struct SubjectError {
    /// What failed, with the file or API call that failed; never the token.
    pub reason: String,
    /// Whether trying again can help without anybody changing anything.
    pub retryable: bool,
}

/// A future that a [`SubjectTokens`] returns.
pub type SubjectFuture<'a> = Pin<Box<dyn Future<Output = Result<Secret<String>, SubjectError>> + Send + 'a>>;

/// Gives the Kubernetes token (a JWT) with which one pod proves itself to a cloud.
///
/// The handle is narrow on purpose: its holder can ask for this pod's token and for nothing else.
pub trait SubjectTokens: Send + Sync + fmt::Debug {
    /// A token for `audience`, read or requested anew.
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a>;
}
