//! The routes: the kinds of requests, as a closed set for metrics. Each cloud's module lists the routes that it answers.

use std::ptr;

use seawall_core::cloud::CloudName;

/// A kind of request. Each kind is one static value, which its memory address identifies.
#[derive(Debug)]
pub struct MetadataRoute {
    cloud: Option<CloudName>,
    name: &'static str,
    is_credential: bool,
}

/// A request that was refused before its kind was known, or because of its client.
pub static REFUSED: MetadataRoute = MetadataRoute { cloud: None, name: "refused", is_credential: false };

/// The agent's own readiness request, and requests with public answers.
pub static PROBE: MetadataRoute = MetadataRoute { cloud: None, name: "probe", is_credential: false };

impl MetadataRoute {
    /// Returns a route of this cloud whose successful answers contain credentials.
    pub const fn credential(cloud: CloudName, name: &'static str) -> Self {
        Self { cloud: Some(cloud), name, is_credential: true }
    }

    /// Returns a route of this cloud whose answers contain no credentials.
    pub const fn other(cloud: CloudName, name: &'static str) -> Self {
        Self { cloud: Some(cloud), name, is_credential: false }
    }

    /// Returns the name of the route, as a metric label.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the cloud of the route, or `None` for [`REFUSED`] and [`PROBE`].
    pub fn cloud_name(&self) -> Option<CloudName> {
        self.cloud
    }

    /// Returns the cloud's name as a metric label, or `none`.
    pub fn cloud(&self) -> &'static str {
        self.cloud.map_or("none", CloudName::as_str)
    }

    /// True if a successful answer contains a credential.
    pub fn is_credential(&self) -> bool {
        self.is_credential
    }

    /// True if both references point to the same static value.
    pub fn is_same(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}
