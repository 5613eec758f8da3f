//! The routes of AWS's endpoints.

use seawall_core::cloud::CloudName::Aws;
use seawall_server::route::MetadataRoute;

/// Requests for a session token of the metadata service.
pub(super) static TOKEN: MetadataRoute = MetadataRoute::other(Aws, "token");

/// Requests for the listing of a pod's role.
pub(super) static ROLE_LIST: MetadataRoute = MetadataRoute::other(Aws, "role_list");

/// Requests for a role's document at the metadata service.
pub(super) static CREDENTIALS: MetadataRoute = MetadataRoute::credential(Aws, "credentials");

/// Requests for a role's credentials at the containers' endpoint.
pub(super) static CONTAINERS: MetadataRoute = MetadataRoute::credential(Aws, "containers");

/// Requests for facts of the node.
pub(super) static METADATA: MetadataRoute = MetadataRoute::other(Aws, "metadata");

/// Requests that the agent forwards to the real metadata service.
pub(super) static FORWARD: MetadataRoute = MetadataRoute::other(Aws, "forward");

/// All routes of AWS.
pub(crate) static ALL: [&MetadataRoute; 6] =
    [&TOKEN, &ROLE_LIST, &CREDENTIALS, &CONTAINERS, &METADATA, &FORWARD];
