//! AWS's dialects: the metadata service of EC2 ([`imds`]) and the credentials endpoint of containers ([`containers`]).
//!
//! Both are answered from one identity of the pod, so that a client that changes from one to the other (Java's and JavaScript's
//! second generation do, at any error) finds the same credentials. They share no address and no way of proof: the first is
//! guarded by session tokens of our own ([`session`]), the second by a Kubernetes token that somebody else must check.
//!
//! Why the statuses and the order of the refusals are as they are was measured with nineteen clients; the reason stands at each.

pub mod containers;
pub mod credentials;
mod headers;
pub mod imds;
pub mod instance_metadata;
pub mod pattern;
mod refuse;
pub mod role;
pub mod session;
pub mod time;

pub use containers::ContainerEndpoint;
pub use credentials::{CredentialsDocument, DocumentFormat};
pub use imds::{Imds, ImdsQuery, ImdsRequest, ImdsResource, TokenRequirement, TokenRules};
pub use instance_metadata::InstanceMetadata;
pub use pattern::{Pattern, PatternError};
pub use role::RoleName;
pub use session::{GrantedToken, TokenClient, TokenKeysError, TokenSigningKeys, TokenSubject, TtlLimit};
pub use time::{Iso8601Time, UnixTime};

use seawall_http::Refusal;
use seawall_http::path::PathCharset;

/// What AWS's paths hold: beside the plain characters those of role names (IAM user guide, "IAM and AWS STS quotas").
pub static ALPHABET: PathCharset = PathCharset::with(b"+=,");

/// The refusal of a path that leads nowhere, or to what pods may not read. One status for both: for every client 404 is final, and
/// says nothing of what the node has.
pub const NOT_FOUND: Refusal = Refusal::new(404, "not_found", "There is no such metadata here.");
/// The refusal of a header that decides something and comes twice: two readers would differ on which one counts.
pub const REPEATED_HEADER: Refusal =
    Refusal::new(400, "repeated_header", "A header that may come once came more than once.");
