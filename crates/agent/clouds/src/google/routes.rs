//! The routes of Google's metadata server: the kinds of requests that it serves.

use seawall_broker::google::CredentialRequestRef;
use seawall_core::cloud::CloudName::Google;
use seawall_server::route::MetadataRoute;

/// Requests for an access token.
pub(super) static TOKEN: MetadataRoute = MetadataRoute::credential(Google, "token");

/// Requests for an identity token.
pub(super) static IDENTITY: MetadataRoute = MetadataRoute::credential(Google, "identity");

/// Requests for anything else in the metadata tree.
pub(super) static METADATA: MetadataRoute = MetadataRoute::other(Google, "metadata");

/// Requests that are forwarded to the real metadata server.
pub(super) static FORWARD: MetadataRoute = MetadataRoute::other(Google, "forward");

/// All routes of Google's metadata server.
pub(crate) static ALL: [&MetadataRoute; 4] = [&TOKEN, &IDENTITY, &METADATA, &FORWARD];

/// Returns the route of a credential request.
pub(super) fn of(want: CredentialRequestRef<'_>) -> &'static MetadataRoute {
    match want {
        CredentialRequestRef::AccessToken { .. } => &TOKEN,
        CredentialRequestRef::IdToken { .. } => &IDENTITY,
    }
}
