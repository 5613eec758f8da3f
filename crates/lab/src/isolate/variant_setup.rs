//! The variants of an experiment: their requests and the transport of these.

use seawall_load::plan::TransportOptions;
use seawall_load::request::PreparedRequest;
use seawall_load::request_source::{RequestList, RequestListError};
use seawall_load::target::Weight;

/// The name and the description of a variant, for readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantLabel {
    /// The unique name of the variant.
    pub name: String,
    /// The difference from the reference, in words.
    pub description: String,
}

/// The requests of a variant and their transport.
#[derive(Debug, Clone)]
pub struct VariantRequests {
    /// The requests, sent in turn. If variants share a session, each has its own `Origin::variant`, so that variants share no
    /// connection.
    pub requests: Vec<PreparedRequest>,
    /// The transport options, if the variant needs a session of its own.
    pub separate_transport: Option<TransportOptions>,
}

impl VariantRequests {
    /// Returns the transport options of the variant; `shared` are those of the other variants.
    #[must_use]
    pub fn transport<'a>(&'a self, shared: &'a TransportOptions) -> &'a TransportOptions {
        self.separate_transport.as_ref().unwrap_or(shared)
    }

    /// Returns the requests of this variant alone, in turn.
    pub(super) fn request_list(&self) -> Result<RequestList, RequestListError> {
        RequestList::new(self.requests.iter().map(|request| (request.clone(), Weight::default())).collect())
    }
}
