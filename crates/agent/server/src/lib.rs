//! HTTP/1 for many small clients, with fair shares for each.
//!
//! A traffic thread ([`thread`]) accepts connections, reads requests, gets answers and writes them. A [`client::ClientResolver`]
//! identifies the client, and a [`handler::MetadataDialect`] interprets the request. Each client has its own share of what all
//! clients use ([`fairness`]). [`upstream`] fetches answers of a real metadata server. The crate knows no Kubernetes and no files,
//! and only the names of clouds. The program starts it; `clouds` implements the dialects, `identity` the resolver.

pub mod client;
pub mod connection_table;
mod date_header;
mod epoll;
mod fairness;
pub mod handler;
pub mod listen;
pub mod permit_counter;
pub mod replay_cache;
pub mod response;
pub mod route;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod thread;
pub mod thread_metrics;
pub mod upstream;
