//! A control plane whose API server is waited for, and the test's own hand on it.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use seawall_testkit::control_plane::{ADMIN, ControlPlane};

use super::api::Api;
use super::until_true;

/// A running control plane; ends with everything it started when dropped.
pub(crate) struct Plane(ControlPlane);

impl Plane {
    /// Storage and API server, ready.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::ready(ControlPlane::without_api_server(folder))
    }

    /// The API server of this one, ready.
    pub(crate) fn ready(plane: ControlPlane) -> Self {
        let mut plane = Self(plane);
        plane.start_api_server();
        plane
    }

    /// Starts the API server and waits until it is ready, which takes it some seconds.
    pub(crate) fn start_api_server(&mut self) {
        self.launch_api_server();
        until_true("kube-apiserver to be ready", || {
            self.has_certificate()
                && self.admin().call("GET", "/readyz", None).is_ok_and(|(status, _)| status == 200)
        });
    }

    /// Who may do everything.
    pub(crate) fn admin(&self) -> Api {
        Api::new(self.address(), &self.certificate(), ADMIN)
    }
}

impl Deref for Plane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        &self.0
    }
}

impl DerefMut for Plane {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        &mut self.0
    }
}
