//! The routes of AWS's endpoints.

use seawall_core::cloud::CloudName::Aws;
use seawall_server::route::MetadataRoute;

/// The route of requests for a session token of the metadata service.
pub(super) static TOKEN: MetadataRoute = MetadataRoute::without_credential(Aws, "token");

/// The route of requests for the listing of a pod's role.
pub(super) static ROLE_LIST: MetadataRoute = MetadataRoute::without_credential(Aws, "role_list");

/// The route of requests for a role's credentials at the metadata service.
pub(super) static CREDENTIALS: MetadataRoute = MetadataRoute::with_credential(Aws, "credentials");

/// The route of requests for a role's credentials at the containers' endpoint.
pub(super) static CONTAINER_CREDENTIALS: MetadataRoute = MetadataRoute::with_credential(Aws, "containers");

/// The route of requests for facts of the node.
pub(super) static METADATA: MetadataRoute = MetadataRoute::without_credential(Aws, "metadata");

/// The route of requests that the agent forwards to the real metadata service.
pub(super) static FORWARD: MetadataRoute = MetadataRoute::without_credential(Aws, "forward");

/// All routes of AWS.
pub(crate) static ALL: [&MetadataRoute; 6] =
    [&TOKEN, &ROLE_LIST, &CREDENTIALS, &CONTAINER_CREDENTIALS, &METADATA, &FORWARD];
