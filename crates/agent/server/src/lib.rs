//! HTTP/1 for many small clients, with fair shares for each.
//!
//! A traffic thread ([`thread`]) accepts connections, reads requests, obtains answers and writes them. A [`client::ClientResolver`]
//! identifies the client, and a [`handler::MetadataDialect`] interprets the request. Each client has its own share of the common
//! resources ([`fairness`]). [`upstream`] fetches answers from a real metadata server. The crate does not know Kubernetes or files,
//! and it knows only the names of clouds. The agent's program starts the server, `clouds` implements the dialects, and `identity`
//! implements the resolver.

pub mod client;
pub mod connection_permits;
pub mod connection_table;
mod date_header;
mod epoll;
mod fairness;
pub mod handler;
pub mod listen;
pub mod repeated_request_cache;
pub mod response;
pub mod route;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod thread;
pub mod thread_metrics;
pub mod upstream;
