//! Implements AWS's dialects: the EC2 metadata service ([`imds`]) and the container credentials endpoint ([`containers`]).
//!
//! Both endpoints return the credentials of the same role to a pod. So a client that switches from one endpoint to the other
//! gets the same credentials. The second generations of the Java and JavaScript SDKs switch after any error. The endpoints have
//! different addresses and different checks. The metadata service requires session tokens that the agent has issued
//! ([`session_token`]). The container endpoint requires a Kubernetes token, whose claims the `clouds` crate checks.
//!
//! The statuses and the order of the refusals are based on measurements with nineteen clients.

pub mod containers;
pub mod credentials;
pub mod full_match_regex;
mod header_checks;
pub mod imds;
pub mod node_metadata;
mod refuse;
pub mod role;
pub mod session_token;
pub mod time;

pub use containers::ContainerCredentialsEndpoint;
pub use credentials::{CredentialsDocument, DocumentFormat};
pub use full_match_regex::{Pattern, PatternError};
pub use header_checks::require_not_proxied;
pub use imds::{Imds, ImdsQuery, ImdsRequest, ImdsResource, TokenRequirement, TokenRules};
pub use node_metadata::InstanceMetadata;
pub use role::{OwnRole, RequestedRole, RoleName};
pub use session_token::{
    GrantedToken, InvalidStoredTokenKeys, TokenClient, TokenSigningKeys, TokenSubject, TtlLimit,
};
pub use time::{Iso8601Time, UnixTime};

use seawall_http::Refusal;
use seawall_http::path::PathCharset;

/// The characters that AWS's paths may contain. They are the characters of [`PLAIN_CHARSET`](seawall_http::path::PLAIN_CHARSET)
/// and the characters of role names (IAM user guide, "IAM and AWS STS quotas").
pub static REQUEST_PATH_CHARSET: PathCharset = PathCharset::with_extra(b"+=,");

/// The characters of the metadata service's paths. Clients can encode the slashes of a role's ARN, so this charset decodes
/// slashes. The service takes an encoded slash nowhere else.
pub static IMDS_PATH_CHARSET: PathCharset = PathCharset::with_extra(b"+=,").decoding_slashes();

/// The refusal for a path that does not exist or that pods are not allowed to read.
///
/// Both cases get 404. Clients treat 404 as final. Because both cases have the same status, a response does not reveal which
/// paths the node has.
pub const NOT_FOUND: Refusal = Refusal::new(404, "not_found", "The agent has no metadata at this path.");
/// The refusal for a repeated header on which the decision about a request depends. Two servers could read different values
/// from such a head.
pub const REPEATED_HEADER: Refusal =
    Refusal::new(400, "repeated_header", "A header that may occur only once occurs more than once.");
