//! Finds the API server's address and the client's credentials, in a pod's environment or in a kubeconfig.
//!
//! A [`KubeEndpoint`] names the sources of the credentials. [`endpoint::KubeCredentials`] contains the credentials at one
//! moment. This module opens no connection and reads no clock. [`crate::transport`] opens connections and reads the clock. It
//! also reads the credentials again while the program runs. Every file must be a regular file of limited size (`core::file`).
//! No error message contains content of a file.

pub mod endpoint;
pub mod kubeconfig;

use std::path::{Path, PathBuf};

use endpoint::{KubeEndpoint, SERVICE_ACCOUNT_FOLDER};

/// The source of the API server's address, its CA and the client's own credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientConfigSource {
    /// The environment variables and files that Kubernetes provides in each pod. The client reads the token and the CA again,
    /// because they rotate.
    InCluster,
    /// The current context of a kubeconfig file.
    Kubeconfig(PathBuf),
}

/// The error for an address or credentials that cannot be used. The cause is a mistake in the configuration, not an outage.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {config_source}: {reason}")]
pub struct ClientConfigError {
    /// The source that the client could not use.
    pub config_source: String,
    /// The reason why the client cannot use the source.
    pub reason: String,
}

impl ClientConfigError {
    pub(crate) fn new(access: &ClientConfigSource, reason: String) -> Self {
        let access = match access {
            ClientConfigSource::InCluster => "the in-cluster credentials".into(),
            ClientConfigSource::Kubeconfig(path) => format!("the kubeconfig {}", path.display()),
        };
        Self { config_source: access, reason }
    }
}

impl KubeEndpoint {
    /// Reads the address and the sources of the credentials, without sending a request.
    ///
    /// # Errors
    /// A part of the access is missing, invalid or not supported; the error names this part.
    pub(crate) fn from_config_source(access: &ClientConfigSource) -> Result<Self, String> {
        match access {
            ClientConfigSource::InCluster => {
                Self::in_cluster(|name| std::env::var(name).ok(), Path::new(SERVICE_ACCOUNT_FOLDER))
            }
            ClientConfigSource::Kubeconfig(path) => kubeconfig::read_kubeconfig(path),
        }
    }
}
