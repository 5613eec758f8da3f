//! Emulates Google Cloud on loopback: one listener for the security token service, IAM Credentials and a metadata server.
//!
//! [`start`] binds and serves; the returned [`GoogleEmulator`] is the only handle: it has the counts, sets faults and ends the emulator.
//! The path chooses the service: `/v1/token` (sts.googleapis.com), `/v1/identitybindingtoken` (securetoken.googleapis.com),
//! `/v1/projects/-/serviceAccounts/…` (iamcredentials.googleapis.com), `/oauth2/v3/certs` (www.googleapis.com), `/tokeninfo`
//! (oauth2.googleapis.com). Every other path is the metadata server, except `/emulator/counts` with the request counts.
//!
//! Formats: google-auth-library-python `google/oauth2/sts.py`, `google/auth/iam.py`, `google/auth/impersonated_credentials.py`;
//! cloud.google.com/iam/docs/reference/sts/rest.

mod cloud;
mod endpoint;
mod exchange_request;
mod fault_replies;
mod iam_credentials;
mod impersonation;
mod metadata;
mod options;
mod provider;
mod reply;
mod routing;
mod running;
mod services;
mod state;
mod sts;
mod token;

pub use crate::request_counters::EndpointCounts;
pub use endpoint::GoogleEndpoint;
pub use impersonation::ImpersonationPolicy;
pub use metadata::{GceMachine, SECRET_VALUE_MARKER};
pub use options::GoogleEmulatorOptions;
pub use provider::WorkloadIdentityProvider;
pub use running::{GoogleEmulator, start};
pub use token::EmulatedAccessToken;
