//! The API server's address and the credentials for it: those that Kubernetes gives each pod, or those of a kubeconfig.
//!
//! A [`KubeEndpoint`] names the sources; [`endpoint::KubeCredentials`] holds what was read from them at one moment. Nothing here opens
//! a connection or keeps a clock; [`crate::transport`] does both, and reads the credentials again. Every file is a regular one of a
//! bounded size (`core::file`), and no error message holds any content of a file.

pub mod endpoint;
pub mod kubeconfig;

use std::path::{Path, PathBuf};

use endpoint::{KubeEndpoint, POD_FILES};

/// The source of the API server's address, its CA and the client's own credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeAccess {
    /// The environment and files that Kubernetes gives each pod; token and CA are read again as they rotate.
    InCluster,
    /// The current context of a kubeconfig file.
    Kubeconfig(PathBuf),
}

/// The credentials for the API server cannot be read: a mistake in the configuration, not an outage.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {access}: {reason}")]
pub struct KubeAccessError {
    /// The source that was to be used.
    pub access: String,
    /// The reason why it cannot be used.
    pub reason: String,
}

impl KubeAccessError {
    pub(crate) fn new(access: &KubeAccess, reason: String) -> Self {
        let access = match access {
            KubeAccess::InCluster => "the in-cluster credentials".into(),
            KubeAccess::Kubeconfig(path) => format!("the kubeconfig {}", path.display()),
        };
        Self { access, reason }
    }
}

impl KubeEndpoint {
    /// Reads the address and the sources of the credentials; sends no request.
    ///
    /// # Errors
    /// The error names the part that is missing, wrong, or not supported.
    pub(crate) fn of(access: &KubeAccess) -> Result<Self, String> {
        match access {
            KubeAccess::InCluster => Self::in_cluster(|name| std::env::var(name).ok(), Path::new(POD_FILES)),
            KubeAccess::Kubeconfig(path) => kubeconfig::read(path),
        }
    }
}
