//! What is asked of AWS's endpoints, by kind.

use seawall_core::cloud::CloudName::Aws;
use seawall_server::route::Route;

/// A session token of the metadata service.
pub(super) static TOKEN: Route = Route::other(Aws, "token");

/// The listing of a pod's role.
pub(super) static ROLES: Route = Route::other(Aws, "roles");

/// A role's document at the metadata service.
pub(super) static CREDENTIALS: Route = Route::credential(Aws, "credentials");

/// The same at the credentials endpoint of containers.
pub(super) static CONTAINER: Route = Route::credential(Aws, "container");

/// Facts of the node.
pub(super) static FACTS: Route = Route::other(Aws, "facts");

/// A request passed on to the real metadata service.
pub(super) static FORWARD: Route = Route::other(Aws, "forward");

/// All of them.
pub(crate) static ALL: [&Route; 6] = [&TOKEN, &ROLES, &CREDENTIALS, &CONTAINER, &FACTS, &FORWARD];
