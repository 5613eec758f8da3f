//! A client for one Kubernetes API server: the connection, calls, and streams of lines.
//!
//! The crate knows no kind of object and decides nothing: the code that uses it chooses the requests, their rate, and the reaction to
//! a [`KubeError`]. It names no provider of cryptography: each program passes in its own.
//!
//! `cluster` uses a [`Connector`] and its [`KubeClient`] to read what the agent must know of its node. The agent runs unattended, so
//! settings that run a program or skip the check of the server are refused. `seawall-kubectl`, for the tool, also accepts credential
//! plugins, proxies and impersonation. It takes from here the form of requests, the reading of errors, and the refresh of files.

pub mod access;
pub mod client;
mod failure;
mod line_reader;
pub mod request;
mod timeouts;
pub mod transport;

pub use access::{KubeAccess, KubeAccessError};
pub use client::{Connector, KubeClient, TimedKubeClient};
pub use failure::{KubeError, KubeStatus, KubeStatusDetails, RetryBackoff};
pub use line_reader::{LineReader, MAX_RESPONSE_BYTES};
pub use timeouts::KubeTimeouts;
pub use transport::{ApiServerTransport, ResponseBody, ResponseFuture};
