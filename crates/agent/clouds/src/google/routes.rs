//! What is asked of Google's metadata server, by kind.

use seawall_broker::google::WantRef;
use seawall_core::cloud::CloudName::Google;
use seawall_server::route::Route;

/// An access token.
pub(super) static TOKEN: Route = Route::credential(Google, "token");

/// An identity token.
pub(super) static IDENTITY: Route = Route::credential(Google, "identity");

/// Anything else of the metadata tree.
pub(super) static TREE: Route = Route::other(Google, "tree");

/// A request passed on to the real metadata server.
pub(super) static FORWARD: Route = Route::other(Google, "forward");

/// All of them.
pub(crate) static ALL: [&Route; 4] = [&TOKEN, &IDENTITY, &TREE, &FORWARD];

/// The route of a credential.
pub(super) fn of(want: WantRef<'_>) -> &'static Route {
    match want {
        WantRef::AccessToken { .. } => &TOKEN,
        WantRef::IdToken { .. } => &IDENTITY,
    }
}
