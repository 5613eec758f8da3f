//! Ways to a target: what is sent, and how it travels.

use seawall_load::plan::TransportOptions;
use seawall_load::request::PreparedRequest;
use seawall_load::request_source::{RequestList, RequestListError};
use seawall_load::target::Weight;

/// The name of a variant, as readers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantLabel {
    /// Its name, of which there is no other.
    pub name: String,
    /// The difference from the reference, in words.
    pub description: String,
}

/// A way, ready to be gone.
#[derive(Debug, Clone)]
pub struct VariantSetup {
    /// Sent in turn. Those that share a session with other ways have a variant each, so that they share no connection.
    pub requests: Vec<PreparedRequest>,
    /// The transport options, if the variant needs a session of its own.
    pub separate_transport: Option<TransportOptions>,
}

impl VariantSetup {
    /// Returns the transport options of the variant; `shared` are those of the other variants.
    #[must_use]
    pub fn transport<'a>(&'a self, shared: &'a TransportOptions) -> &'a TransportOptions {
        self.separate_transport.as_ref().unwrap_or(shared)
    }

    /// Its requests alone, in turn.
    pub(super) fn request_list(&self) -> Result<RequestList, RequestListError> {
        RequestList::new(self.requests.iter().map(|request| (request.clone(), Weight::default())).collect())
    }
}
