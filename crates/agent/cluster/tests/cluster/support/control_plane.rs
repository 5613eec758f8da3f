//! Starts a control plane and waits until its API server is ready.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use seawall_testkit::control_plane::{self, ADMIN_TOKEN};
use tempfile::TempDir;
use tokio::time::timeout;

use super::EVENTUALLY;
use super::api::Api;

/// A running control plane. Dropping it ends all its processes.
pub(crate) struct ControlPlane {
    programs: control_plane::ControlPlane,
    _folder: TempDir,
}

impl ControlPlane {
    /// Starts etcd and the API server, and waits until both are ready.
    pub(crate) async fn start() -> Self {
        let folder = TempDir::with_prefix("seawall-kube-").unwrap();
        let programs = control_plane::ControlPlane::without_api_server(folder.path());
        let mut plane = Self { programs, _folder: folder };
        plane.start_api_server().await;
        plane
    }

    /// Starts the API server and waits until it is ready. The start takes about four seconds.
    pub(crate) async fn start_api_server(&mut self) {
        self.launch_api_server();
        let wait = async {
            while !self.is_ready().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if timeout(EVENTUALLY, wait).await.is_err() {
            panic!("kube-apiserver is not ready; its log ends with:\n{}", self.api_server_log_tail());
        }
    }

    async fn is_ready(&self) -> bool {
        self.has_certificate()
            && self.admin().await.call("GET", "/readyz", None).await.is_ok_and(|(status, _)| status == 200)
    }

    /// Returns a client that is allowed to do everything.
    pub(crate) async fn admin(&self) -> Api {
        self.client_with(ADMIN_TOKEN).await
    }

    /// Returns a client that authenticates with this token.
    pub(crate) async fn client_with(&self, token: &str) -> Api {
        Api::new(self.api_server_port(), &self.certificate_path(), token)
    }

    /// Writes the ServiceAccount files to the path at which every pod has them. `scripts/cluster-test` gives this test a
    /// private directory there.
    pub(crate) fn give_pod_files(&self, token: &str) {
        let folder = Path::new("/var/run/secrets/kubernetes.io/serviceaccount");
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("token"), token).unwrap();
        fs::write(folder.join("namespace"), "seawall").unwrap();
        fs::copy(self.certificate_path(), folder.join("ca.crt")).unwrap();
    }
}

impl Deref for ControlPlane {
    type Target = control_plane::ControlPlane;

    fn deref(&self) -> &Self::Target {
        &self.programs
    }
}

impl DerefMut for ControlPlane {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.programs
    }
}
