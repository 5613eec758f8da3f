//! The routes of AWS's endpoints.

use seawall_core::cloud::CloudName::Aws;
use seawall_server::route::MetadataRoute;

/// A session token of the metadata service.
pub(super) static TOKEN: MetadataRoute = MetadataRoute::other(Aws, "token");

/// The listing of a pod's role.
pub(super) static ROLE_LIST: MetadataRoute = MetadataRoute::other(Aws, "role_list");

/// A role's document at the metadata service.
pub(super) static CREDENTIALS: MetadataRoute = MetadataRoute::credential(Aws, "credentials");

/// A role's document at the credentials endpoint of containers.
pub(super) static CONTAINERS: MetadataRoute = MetadataRoute::credential(Aws, "containers");

/// Facts of the node.
pub(super) static METADATA: MetadataRoute = MetadataRoute::other(Aws, "metadata");

/// A request passed on to the real metadata service.
pub(super) static FORWARD: MetadataRoute = MetadataRoute::other(Aws, "forward");

/// All routes of AWS.
pub(crate) static ALL: [&MetadataRoute; 6] =
    [&TOKEN, &ROLE_LIST, &CREDENTIALS, &CONTAINERS, &METADATA, &FORWARD];
