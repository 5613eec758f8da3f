//! What was asked, by kind: a closed set, for metrics. Each cloud's room says which kinds it answers.

use std::ptr;

use seawall_core::cloud::CloudName;

/// A kind of request. There is one value of each, which is told from others by where it stands in memory.
#[derive(Debug)]
pub struct MetadataRoute {
    cloud: Option<CloudName>,
    name: &'static str,
    is_credential: bool,
}

/// Refused before it was known what was asked, or because of who asks.
pub static REFUSED: MetadataRoute = MetadataRoute { cloud: None, name: "refused", is_credential: false };

/// The agent's own readiness request, and what anybody is told.
pub static PROBE: MetadataRoute = MetadataRoute { cloud: None, name: "probe", is_credential: false };

impl MetadataRoute {
    /// A kind of request of this cloud's, whose good answers are credentials.
    pub const fn credential(cloud: CloudName, name: &'static str) -> Self {
        Self { cloud: Some(cloud), name, is_credential: true }
    }

    /// Another kind of request of this cloud's.
    pub const fn other(cloud: CloudName, name: &'static str) -> Self {
        Self { cloud: Some(cloud), name, is_credential: false }
    }

    /// As a label.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its cloud.
    pub fn cloud_name(&self) -> Option<CloudName> {
        self.cloud
    }

    /// Its cloud, as a label.
    pub fn cloud(&self) -> &'static str {
        self.cloud.map_or("none", CloudName::as_str)
    }

    /// Whether a good answer is a credential.
    pub fn is_credential(&self) -> bool {
        self.is_credential
    }

    /// Whether it is this very one.
    pub fn is_same(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}
