//! What to run: everything that the emulator is told before it starts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::impersonation::Impersonation;
use super::metadata::GceMachine;
use super::provider::WorkloadIdentityProvider;
use crate::faults::Faults;
use crate::keys::SigningKey;

/// What to run.
#[derive(Clone, Debug)]
pub struct GoogleEmulatorOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The workload identity providers whose Kubernetes tokens are exchanged.
    pub providers: Vec<WorkloadIdentityProvider>,
    /// Who may become which service account.
    pub impersonation: Impersonation,
    /// The virtual machine of the metadata server, and its project.
    pub machine: GceMachine,
    /// What goes wrong from the start; see [`set_faults`](super::GoogleEmulator::set_faults).
    pub faults: Faults,
    /// The longest life of any token issued, however long a one is asked for. Google's is one hour.
    pub token_lifetime: Duration,
    /// Whether an access token may be asked for above one hour, up to twelve
    /// (the organisation policy `iam.allowServiceAccountCredentialLifetimeExtension`).
    pub long_lifetimes: bool,
    /// The RSA key that signs identity tokens. `None`: one is made when the first is asked for, which takes some tenths
    /// of a second; tests that want none do not pay for it.
    pub identity_key: Option<Arc<SigningKey>>,
}

impl Default for GoogleEmulatorOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            providers: Vec::new(),
            impersonation: Impersonation::default(),
            machine: GceMachine::default(),
            faults: Faults::default(),
            token_lifetime: Duration::from_secs(3600),
            long_lifetimes: false,
            identity_key: None,
        }
    }
}
