//! HTTP/1 for many small clients, fair among them.
//!
//! A traffic thread ([`thread`]) accepts connections, reads requests, has them answered and writes. Who a client is and what its request
//! means is asked of others: of a [`client::ClientResolver`], and of [`handler::MetadataDialect`]s. What clients share, each has shares of
//! ([`fairness`]). Answers of a real metadata server come by [`upstream`]. Knows no Kubernetes and no file, and of clouds the names alone.
//! The program starts it; `clouds` implements the dialects, `identity` the resolver.

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
