//! The routes of Google's metadata server: the kinds of requests that it serves.

use seawall_broker::google::CredentialRequestRef;
use seawall_core::cloud::CloudName::Google;
use seawall_server::route::MetadataRoute;

/// The route of requests for an access token.
pub(super) static TOKEN: MetadataRoute = MetadataRoute::with_credential(Google, "token");

/// The route of requests for an identity token.
pub(super) static IDENTITY: MetadataRoute = MetadataRoute::with_credential(Google, "identity");

/// The route of requests for anything else in the metadata tree.
pub(super) static METADATA: MetadataRoute = MetadataRoute::without_credential(Google, "metadata");

/// The route of requests that the agent forwards to the real metadata server.
pub(super) static FORWARD: MetadataRoute = MetadataRoute::without_credential(Google, "forward");

/// All routes of Google's metadata server.
pub(crate) static ALL: [&MetadataRoute; 4] = [&TOKEN, &IDENTITY, &METADATA, &FORWARD];

/// Returns the route of a credential request.
pub(super) fn route_of_request(want: CredentialRequestRef<'_>) -> &'static MetadataRoute {
    match want {
        CredentialRequestRef::AccessToken { .. } => &TOKEN,
        CredentialRequestRef::IdToken { .. } => &IDENTITY,
    }
}
