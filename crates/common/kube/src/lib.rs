//! Provides a client for one Kubernetes API server: the connection, calls, and streams of lines.
//!
//! The crate works with any kind of object and makes no decisions. The code that uses the crate chooses the requests, their
//! rate, and the reaction to a [`KubeError`]. Each program passes in its own TLS provider.
//!
//! The agent's crate `cluster` uses a [`KubeConnector`] and its [`KubeClient`] to read the pods of the agent's node. No user
//! watches the running agent, so this crate refuses kubeconfig settings that run a program or skip the check of the server's
//! certificate. `seawall-kubectl`, the tool's client, also accepts credential plugins, proxies and impersonation. That crate
//! reuses this crate's requests, error parsing and file refresh.

pub mod client;
pub mod client_config;
mod failure;
mod line_reader;
pub mod request;
mod timeouts;
pub mod transport;

pub use client::{KubeClient, KubeConnector, TimedKubeClient};
pub use client_config::{ClientConfigError, ClientConfigSource};
pub use failure::{KubeError, KubeStatus, KubeStatusDetails, RetryBackoff};
pub use line_reader::{LineReader, MAX_RESPONSE_BYTES};
pub use timeouts::KubeTimeouts;
pub use transport::{ApiServerTransport, ResponseBody, ResponseFuture};
