//! A control plane whose API server is ready, and a client for it.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use crate::control_plane::{ADMIN_TOKEN, ControlPlane};

use crate::kubernetes_client::KubernetesApi;
use crate::waiting::wait_until_true;

/// A running control plane; ends with everything it started when dropped.
#[derive(Debug)]
pub struct ReadyControlPlane(ControlPlane);

impl ReadyControlPlane {
    /// Storage and API server, ready.
    pub fn start(folder: &Path) -> Self {
        Self::from_control_plane(ControlPlane::without_api_server(folder))
    }

    /// The API server of this one, ready.
    pub fn from_control_plane(plane: ControlPlane) -> Self {
        let mut plane = Self(plane);
        plane.start_api_server();
        plane
    }

    /// Starts the API server and waits until it is ready, which takes it some seconds.
    pub fn start_api_server(&mut self) {
        self.launch_api_server();
        wait_until_true("kube-apiserver to be ready", || {
            self.has_certificate()
                && self.admin_api().call("GET", "/readyz", None).is_ok_and(|(status, _)| status == 200)
        });
    }

    /// Returns a client of the API server with all rights.
    pub fn admin_api(&self) -> KubernetesApi {
        KubernetesApi::new(self.api_server_address(), &self.certificate_path(), ADMIN_TOKEN)
    }
}

impl Deref for ReadyControlPlane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        &self.0
    }
}

impl DerefMut for ReadyControlPlane {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        &mut self.0
    }
}
