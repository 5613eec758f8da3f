//! What is asked of Google's metadata server, by kind.

use seawall_broker::google::CredentialRequestRef;
use seawall_core::cloud::CloudName::Google;
use seawall_server::route::MetadataRoute;

/// An access token.
pub(super) static TOKEN: MetadataRoute = MetadataRoute::credential(Google, "token");

/// An identity token.
pub(super) static IDENTITY: MetadataRoute = MetadataRoute::credential(Google, "identity");

/// Anything else of the metadata tree.
pub(super) static TREE: MetadataRoute = MetadataRoute::other(Google, "tree");

/// A request passed on to the real metadata server.
pub(super) static FORWARD: MetadataRoute = MetadataRoute::other(Google, "forward");

/// All of them.
pub(crate) static ALL: [&MetadataRoute; 4] = [&TOKEN, &IDENTITY, &TREE, &FORWARD];

/// The route of a credential.
pub(super) fn of(want: CredentialRequestRef<'_>) -> &'static MetadataRoute {
    match want {
        CredentialRequestRef::AccessToken { .. } => &TOKEN,
        CredentialRequestRef::IdToken { .. } => &IDENTITY,
    }
}
