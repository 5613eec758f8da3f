//! Implements Google's dialect: the metadata server of Compute Engine and of GKE.
//!
//! The dialect has two modes. Both modes convert request paths to the canonical form of [`seawall_http::path`]. [`conceal`]
//! forwards requests to the real server, except requests for data that pods must not read. [`federate`] answers from a metadata
//! tree of the workload. [`respond`] writes the responses of both modes.

pub mod conceal;
pub mod etag;
pub mod federate;
mod forwarded_response;
pub mod node_metadata;
pub mod query;
pub mod request_head_rules;
pub mod respond;
pub mod scopes;
pub mod server_detection;
pub mod tree;

pub use conceal::{AdmittedRequest, admit_request};
pub use etag::ETag;
pub use federate::{
    CredentialFreeBody, CredentialQuery, DirectoryRedirect, LongPollTarget, MetadataTree, TreeRequest,
    TreeResource, TreeResponse,
};
pub use node_metadata::{AccountScopes, GoogleIdentity, NodeMetadata};
pub use query::{ResponseFormat, WaitForChange};
pub use respond::{AccessTokenBody, MetadataServerKind};
pub use scopes::Scopes;
pub use server_detection::DetectionResponder;
