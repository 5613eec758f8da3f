//! A running Google emulator and its only handle.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use seawall_core::Clock;

use super::cloud::GoogleCloud;
use super::endpoint::GoogleEndpoint;
use super::impersonation::ImpersonationPolicy;
use super::options::GoogleEmulatorOptions;
use super::token::EmulatedAccessToken;
use crate::faults::Faults;
use crate::request_counters::EndpointCounts;
use crate::server::EmulatorServer;

/// A running emulator. Dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct GoogleEmulator {
    address: SocketAddr,
    cloud: Arc<GoogleCloud>,
    server: EmulatorServer,
}

/// Binds the listener and serves on the current runtime.
///
/// # Errors
/// The address cannot be bound, or there is no randomness for a key.
pub async fn start(options: GoogleEmulatorOptions, clock: Clock) -> io::Result<GoogleEmulator> {
    let listener = tokio::net::TcpListener::bind(options.listen).await?;
    let address = listener.local_addr()?;
    let cloud = Arc::new(GoogleCloud::new(options, clock).map_err(io::Error::other)?);
    let server = EmulatorServer::start(listener, cloud.clone());
    Ok(GoogleEmulator { address, cloud, server })
}

impl GoogleEmulator {
    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL `http://ADDRESS:PORT`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the faults of the exchange, both kinds of impersonation and the metadata server from the next request on.
    pub fn set_faults(&self, faults: &Faults) {
        for endpoint in GoogleEndpoint::FAULT_INJECTABLE {
            self.set_faults_on(endpoint, faults.clone());
        }
    }

    /// Sets the faults of one endpoint from the next request on.
    pub fn set_faults_on(&self, endpoint: GoogleEndpoint, faults: Faults) {
        self.cloud.set_faults(endpoint, faults);
    }

    /// Changes [`GoogleEmulatorOptions::max_token_lifetime`] for new tokens.
    pub fn set_max_token_lifetime(&self, lifetime: Duration) {
        self.cloud.set_max_token_lifetime(lifetime);
    }

    /// Changes the allowed impersonations.
    pub fn set_impersonation(&self, impersonation: ImpersonationPolicy) {
        self.cloud.set_impersonation(impersonation);
    }

    /// Sets an attribute of the machine, as an operator does. Clients that wait for a change get their response.
    pub fn set_instance_attribute(&self, name: &str, value: &str) {
        self.cloud.set_instance_attribute(name, value);
    }

    /// Returns the request counts of an endpoint.
    pub fn endpoint_request_counts(&self, endpoint: GoogleEndpoint) -> EndpointCounts {
        self.cloud.endpoint_request_counts(endpoint)
    }

    /// Returns the number of successful exchanges per Kubernetes subject.
    pub fn exchange_counts(&self) -> BTreeMap<String, u64> {
        self.cloud.exchange_counts()
    }

    /// Returns the number of issued tokens per Kubernetes subject and impersonated service account.
    pub fn impersonation_counts(&self) -> BTreeMap<(String, String), u64> {
        self.cloud.impersonation_counts()
    }

    /// Returns the claims of an access token, if it is authentic and has not expired.
    pub fn read_access_token(&self, token: &str) -> Option<EmulatedAccessToken> {
        self.cloud.read_access_token(token)
    }

    /// Closes the listener and every connection, and waits for both.
    pub async fn shutdown(self) {
        self.server.shutdown().await;
    }
}
