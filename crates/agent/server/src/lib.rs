//! Serves HTTP/1 to many small clients and gives each client a fair share.
//!
//! A traffic thread ([`thread`]) accepts connections, reads requests and writes answers. A [`connection_client::ClientResolver`]
//! identifies the client, and a [`handler::MetadataDialect`] interprets the request. Each client has its own share of the common
//! resources ([`fairness`]). [`upstream`] fetches answers from a real metadata server. The crate does not depend on Kubernetes
//! and does not read files. It uses only the names of the clouds. The agent's program starts the server, the crate `clouds`
//! implements the dialects, and the crate `identity` implements the resolver.

mod admission;
pub mod connection_client;
pub mod connection_permits;
pub mod connection_table;
mod date_header;
mod epoll;
mod fairness;
pub mod handler;
pub mod listen;
pub mod memory_levels;
pub mod repeated_request_cache;
pub mod response;
pub mod route;
mod tcp_info;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod thread;
pub mod thread_metrics;
pub mod time_at_limits;
pub mod upstream;
pub mod watchdog;
