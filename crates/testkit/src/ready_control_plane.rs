//! A control plane whose API server is waited for, and the test's own hand on it.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use crate::control_plane::{ADMIN, ControlPlane};

use crate::api::Api;
use crate::waiting::until_true;

/// A running control plane; ends with everything it started when dropped.
#[derive(Debug)]
pub struct Plane(ControlPlane);

impl Plane {
    /// Storage and API server, ready.
    pub fn start(folder: &Path) -> Self {
        Self::ready(ControlPlane::without_api_server(folder))
    }

    /// The API server of this one, ready.
    pub fn ready(plane: ControlPlane) -> Self {
        let mut plane = Self(plane);
        plane.start_api_server();
        plane
    }

    /// Starts the API server and waits until it is ready, which takes it some seconds.
    pub fn start_api_server(&mut self) {
        self.launch_api_server();
        until_true("kube-apiserver to be ready", || {
            self.has_certificate()
                && self.admin().call("GET", "/readyz", None).is_ok_and(|(status, _)| status == 200)
        });
    }

    /// Who may do everything.
    pub fn admin(&self) -> Api {
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
