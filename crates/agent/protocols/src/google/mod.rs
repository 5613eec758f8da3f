//! Google's dialect: the metadata server of Compute Engine and of GKE.
//!
//! Two modes share one canonical path. [`conceal`] lets requests through to the real server, minus what pods must
//! not see; [`federate`] answers from a tree of the workload's own. [`respond`] writes either mode's bytes.

pub mod conceal;
pub mod detection;
pub mod etag;
pub mod facts;
pub mod federate;
pub mod head;
pub mod query;
mod real_server_response;
pub mod respond;
pub mod scopes;
pub mod tree;

pub use conceal::{Forward, admit};
pub use detection::Detection;
pub use etag::ETag;
pub use facts::{Account, AccountScopes, Node};
pub use federate::{Credential, Known, Look, Query, Redirect, Text, Tree, What};
pub use query::{Alt, Hold};
pub use respond::{AccessToken, Server};
pub use scopes::Scopes;
