//! Which pod is at the other end of a connection.
//!
//! One strategy per configuration, named in it, and no fallback from one to another: a strategy that does not know an
//! address says so, and the caller is refused. Called by the agent once per connection.

mod static_identity;
mod token_file;

use std::sync::Arc;

use seawall_core::pod::SubjectTokens;
use seawall_core::{Facts, Pod};

pub use static_identity::{FileKey, IdentityError, StaticIdentity};
pub use token_file::TokenFile;

/// A pod whose identity is established, and what it may prove it with.
#[derive(Debug)]
pub struct Attested {
    /// The pod.
    pub pod: Pod,
    /// What is told of it, as if its objects were in a cluster.
    pub facts: Facts,
    /// Gives this pod's Kubernetes token and no other's.
    pub subject: Arc<dyn SubjectTokens>,
}
