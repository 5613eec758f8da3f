//! Ways to a target: what is sent, and how it travels.

use seawall_load::plan::TransportOptions;
use seawall_load::request::PreparedRequest;
use seawall_load::supply::{RequestList, RequestListError};
use seawall_load::target::Weight;

/// What a way is called, for those who read of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantLabel {
    /// Its name, of which there is no other.
    pub name: String,
    /// What it has different, in words.
    pub description: String,
}

/// A way, ready to be gone.
#[derive(Debug, Clone)]
pub struct VariantSetup {
    /// Sent in turn. Those that share a session with other ways have a variant each, so that they share no connection.
    pub requests: Vec<PreparedRequest>,
    /// How they travel, if that takes a session of their own: such a way has the target alone while it is measured.
    pub separate_transport: Option<TransportOptions>,
}

impl VariantSetup {
    /// How its requests travel, where those of the others travel like this.
    #[must_use]
    pub fn travel<'a>(&'a self, shared: &'a TransportOptions) -> &'a TransportOptions {
        self.separate_transport.as_ref().unwrap_or(shared)
    }

    /// Its requests alone, in turn.
    pub(super) fn list(&self) -> Result<RequestList, RequestListError> {
        RequestList::new(self.requests.iter().map(|request| (request.clone(), Weight::default())).collect())
    }
}
