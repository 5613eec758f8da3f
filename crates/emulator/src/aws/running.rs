//! A running emulator: the listener and the cloud behind it, and the only handle to both.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use seawall_core::Clock;

use super::cloud::AwsCloud;
use super::endpoint::AwsEndpoint;
use super::mint::AwsSession;
use super::options::AwsEmulatorOptions;
use super::role::IamRole;
use crate::faults::Faults;
use crate::ledger::EndpointCounts;
use crate::server::EmulatorServer;

/// A running emulator. Dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct AwsEmulator {
    address: SocketAddr,
    cloud: Arc<AwsCloud>,
    server: EmulatorServer,
}

/// Binds and serves on the current runtime.
///
/// # Errors
/// The address cannot be bound, or there is no randomness for a key.
pub async fn start(options: AwsEmulatorOptions, clock: Clock) -> io::Result<AwsEmulator> {
    let listener = tokio::net::TcpListener::bind(options.listen).await?;
    let address = listener.local_addr()?;
    let cloud = Arc::new(AwsCloud::new(options, clock).map_err(io::Error::other)?);
    let server = EmulatorServer::start(listener, cloud.clone());
    Ok(AwsEmulator { address, cloud, server })
}

impl AwsEmulator {
    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS:PORT`, without a slash at the end: STS, EKS Auth and the metadata service alike.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks (or mends) every endpoint of [`AwsEndpoint::FAULTY`] from the next request on.
    pub fn set_faults(&self, faults: &Faults) {
        for endpoint in AwsEndpoint::FAULTY {
            self.set_faults_on(endpoint, faults.clone());
        }
    }

    /// Breaks (or mends) one endpoint from the next request on.
    pub fn set_faults_on(&self, endpoint: AwsEndpoint, faults: Faults) {
        self.cloud.gates.set_faults(endpoint, faults);
    }

    /// Changes [`AwsEmulatorOptions::fractions`].
    pub fn set_fractions(&self, fractions: bool) {
        self.cloud.state.update_settings(|policy| policy.fractions = fractions);
    }

    /// Adds a role, or puts it in the place of the one with its ARN.
    pub fn set_role(&self, role: IamRole) {
        self.cloud.state.update_settings(|policy| {
            policy.roles.retain(|known| known.arn != role.arn);
            policy.roles.push(role);
        });
    }

    /// Associates a subject (`system:serviceaccount:NS:NAME`) with this role at EKS, or with none.
    pub fn set_association(&self, subject: &str, role: Option<&str>) {
        self.cloud.state.update_settings(|policy| match role {
            Some(role) => drop(policy.associations.insert(subject.to_owned(), role.to_owned())),
            None => drop(policy.associations.remove(subject)),
        });
    }

    /// What happened at an endpoint so far.
    pub fn counts(&self, endpoint: AwsEndpoint) -> EndpointCounts {
        self.cloud.state.ledger.counts(endpoint)
    }

    /// Sessions issued, by who took them and the role.
    pub fn sessions(&self) -> BTreeMap<(String, String), u64> {
        self.cloud.state.sessions.all()
    }

    /// What a session token of this emulator says, once its authenticity and its end are checked.
    pub fn session(&self, token: &str) -> Option<AwsSession> {
        self.cloud.state.mint.read(token, self.cloud.state.seconds()).ok()
    }

    /// Closes the listener and every connection, and returns when they are closed.
    pub async fn shutdown(self) {
        self.server.shutdown().await;
    }
}
