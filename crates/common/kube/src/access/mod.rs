//! Whom to reach, as whom, and by which files: what Kubernetes gives each pod, or a kubeconfig.
//!
//! An [`KubeEndpoint`] says where things are, its papers are what stands there at one moment. Nothing here opens a connection or
//! keeps a clock; [`crate::transport`] does both, and reads the papers again. Every file is a regular one of a bounded size
//! (`core::file`), and no text of an error holds a word of what a file says.

pub mod endpoint;
pub mod kubeconfig;

use std::path::{Path, PathBuf};

use endpoint::{KubeEndpoint, POD_FILES};

/// Where the API server's address, CA and the caller's own credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeAccess {
    /// The environment and files that Kubernetes gives each pod; token and CA are read again as they rotate.
    InCluster,
    /// A kubeconfig file, its current context.
    Kubeconfig(PathBuf),
}

/// The credentials for the API server cannot be read: a mistake in the configuration, not an outage.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {access}: {reason}")]
pub struct KubeAccessError {
    /// What was to be used.
    pub access: String,
    /// What is wrong with it.
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
    /// Reads what leads there; asks nobody.
    ///
    /// # Errors
    /// What is missing, wrong, or not supported.
    pub(crate) fn of(access: &KubeAccess) -> Result<Self, String> {
        match access {
            KubeAccess::InCluster => Self::in_cluster(|name| std::env::var(name).ok(), Path::new(POD_FILES)),
            KubeAccess::Kubeconfig(path) => kubeconfig::read(path),
        }
    }
}
