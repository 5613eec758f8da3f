//! AWS's dialects: the EC2 metadata service ([`imds`]) and the container credentials endpoint ([`containers`]).
//!
//! Both answer for one identity of the pod. So a client that changes from one to the other finds the same credentials (the second
//! generations of Java and JavaScript do so at any error). They share neither an address nor a kind of proof. Our own session tokens guard
//! the first ([`session`]); a Kubernetes token guards the second, and another component checks it.
//!
//! The statuses and the order of the refusals follow measurements with nineteen clients. The reason stands at each refusal.

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

/// The characters of AWS's paths: the plain ones and those of role names (IAM user guide, "IAM and AWS STS quotas").
pub static ALPHABET: PathCharset = PathCharset::with(b"+=,");

/// The refusal of a path that does not exist or that pods may not read.
///
/// Both get the same status: 404 is final for every client and does not reveal what the node has.
pub const NOT_FOUND: Refusal = Refusal::new(404, "not_found", "The agent has no metadata at this path.");
/// The refusal of a decisive header that comes twice: two readers would differ on which one counts.
pub const REPEATED_HEADER: Refusal =
    Refusal::new(400, "repeated_header", "A header that may occur only once occurs more than once.");
