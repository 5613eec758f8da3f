//! One Kubernetes API server: how it is reached, a call, a stream of lines.
//!
//! It knows no kind of object and decides nothing: what is asked, how often, and what becomes of a [`KubeError`] is for whoever calls.
//! Nothing here names a provider of cryptography: whoever asks hands one in, so that each program keeps the one that it has.
//!
//! By a [`Connector`] and its [`KubeClient`], `cluster` asks what the agent must know of its node: unattended, so what would run a program or believe
//! anybody is refused. `seawall-kubectl` has more of its own, for the tool, and takes from here how requests look, how failures read, and how
//! files are kept fresh.

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
