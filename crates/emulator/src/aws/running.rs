//! A running AWS emulator and its only handle.

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
use crate::request_counters::EndpointCounts;
use crate::server::EmulatorServer;

/// A running emulator. Dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct AwsEmulator {
    address: SocketAddr,
    cloud: Arc<AwsCloud>,
    server: EmulatorServer,
}

/// Binds the listener and serves on the current runtime.
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
    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL `http://ADDRESS:PORT`, without a slash at the end, for all three services.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the faults of every endpoint in [`AwsEndpoint::FAULT_INJECTABLE`] from the next request on.
    pub fn set_faults(&self, faults: &Faults) {
        for endpoint in AwsEndpoint::FAULT_INJECTABLE {
            self.set_faults_on(endpoint, faults.clone());
        }
    }

    /// Sets the faults of one endpoint from the next request on.
    pub fn set_faults_on(&self, endpoint: AwsEndpoint, faults: Faults) {
        self.cloud.fault_injector.set_faults(endpoint, faults);
    }

    /// Changes [`AwsEmulatorOptions::fractional_expiry`].
    pub fn set_fractional_expiry(&self, fractions: bool) {
        self.cloud.state.update_settings(|policy| policy.fractional_expiry = fractions);
    }

    /// Adds a role, or replaces the one with its ARN.
    pub fn add_or_replace_role(&self, role: IamRole) {
        self.cloud.state.update_settings(|policy| {
            policy.roles.retain(|known| known.arn != role.arn);
            policy.roles.push(role);
        });
    }

    /// Associates a subject (`system:serviceaccount:NS:NAME`) with a role at EKS, or removes its association.
    pub fn set_association(&self, subject: &str, role: Option<&str>) {
        self.cloud.state.update_settings(|policy| match role {
            Some(role) => drop(policy.associations.insert(subject.to_owned(), role.to_owned())),
            None => drop(policy.associations.remove(subject)),
        });
    }

    /// Returns the request counts of an endpoint.
    pub fn endpoint_request_counts(&self, endpoint: AwsEndpoint) -> EndpointCounts {
        self.cloud.state.request_counters.counts(endpoint)
    }

    /// Returns the number of issued sessions, by caller and role.
    pub fn session_counts(&self) -> BTreeMap<(String, String), u64> {
        self.cloud.state.session_counts.all()
    }

    /// Returns the claims of a session token, if it is authentic and the session has not ended.
    pub fn session_of_token(&self, token: &str) -> Option<AwsSession> {
        self.cloud.state.mint.read(token, self.cloud.state.unix_seconds()).ok()
    }

    /// Closes the listener and every connection, and waits for both.
    pub async fn shutdown(self) {
        self.server.shutdown().await;
    }
}
