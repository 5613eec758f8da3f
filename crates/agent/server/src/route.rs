//! Defines routes. A route is a kind of request. Each cloud's module lists its routes. The set of routes is fixed, because
//! metrics have the route as a label.

use std::ptr;

use seawall_core::cloud::CloudName;

/// A kind of request. Each kind is one static value. [`Self::is_same`] compares the memory addresses of two values.
#[derive(Debug)]
pub struct MetadataRoute {
    cloud: Option<CloudName>,
    name: &'static str,
    is_credential: bool,
}

/// The route of a request that the agent refused because of the client, or before the agent knew the request's route.
pub static REFUSED: MetadataRoute = MetadataRoute { cloud: None, name: "refused", is_credential: false };

/// The route of the readiness request that the agent sends to itself, and of requests with public answers.
pub static PROBE: MetadataRoute = MetadataRoute { cloud: None, name: "probe", is_credential: false };

/// The route of requests that the agent passes on to the real metadata server for pods that the configuration names (`realServer`).
pub static REAL_SERVER: MetadataRoute =
    MetadataRoute { cloud: None, name: "real-server", is_credential: false };

impl MetadataRoute {
    /// Returns a route of this cloud whose successful answers contain credentials.
    pub const fn with_credential(cloud: CloudName, name: &'static str) -> Self {
        Self { cloud: Some(cloud), name, is_credential: true }
    }

    /// Returns a route of this cloud whose answers contain no credentials.
    pub const fn without_credential(cloud: CloudName, name: &'static str) -> Self {
        Self { cloud: Some(cloud), name, is_credential: false }
    }

    /// Returns the name of the route, as a metric label.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the cloud of the route, or `None` for [`REFUSED`], [`PROBE`] and [`REAL_SERVER`].
    pub fn cloud_name(&self) -> Option<CloudName> {
        self.cloud
    }

    /// Returns the cloud's name as a metric label, or `none`.
    pub fn cloud_label(&self) -> &'static str {
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
