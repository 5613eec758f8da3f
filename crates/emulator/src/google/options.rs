//! The options of the Google emulator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::impersonation::ImpersonationPolicy;
use super::metadata::GceMachine;
use super::provider::WorkloadIdentityProvider;
use crate::faults::Faults;
use crate::keys::SigningKey;

/// The options of the Google emulator.
#[derive(Clone, Debug)]
pub struct GoogleEmulatorOptions {
    /// The address to listen on; port 0 takes a free port.
    pub listen: SocketAddr,
    /// The workload identity providers whose Kubernetes tokens are accepted.
    pub providers: Vec<WorkloadIdentityProvider>,
    /// The allowed impersonations.
    pub impersonation: ImpersonationPolicy,
    /// The virtual machine of the metadata server, and its project.
    pub machine: GceMachine,
    /// The initial faults; see [`set_faults`](super::GoogleEmulator::set_faults).
    pub faults: Faults,
    /// The longest lifetime of a token, whatever lifetime is requested. Google's is one hour.
    pub max_token_lifetime: Duration,
    /// True if access tokens may have a lifetime of up to twelve hours instead of one (the organisation policy
    /// `iam.allowServiceAccountCredentialLifetimeExtension`).
    pub allows_long_token_lifetimes: bool,
    /// The RSA key that signs identity tokens. With `None`, the first request creates the key, which takes some tenths of a second; tests
    /// without identity tokens save that time.
    pub identity_key: Option<Arc<SigningKey>>,
}

impl Default for GoogleEmulatorOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            providers: Vec::new(),
            impersonation: ImpersonationPolicy::default(),
            machine: GceMachine::default(),
            faults: Faults::default(),
            max_token_lifetime: Duration::from_secs(3600),
            allows_long_token_lifetimes: false,
            identity_key: None,
        }
    }
}
