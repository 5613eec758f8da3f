//! HTTP/1 for many small clients, fair among them.
//!
//! Who a client is and what its request means is asked of others: of whoever resolves clients, and of the dialects. Knows no cloud, no
//! Kubernetes and no file. `app` starts it.

pub(crate) mod client;
pub(crate) mod connection_table;
pub(crate) mod date_header;
pub(crate) mod epoll;
pub(crate) mod fairness;
pub(crate) mod handler;
pub(crate) mod listen;
pub(crate) mod replay_cache;
pub(crate) mod response;
pub(crate) mod route;
pub(crate) mod thread;
pub(crate) mod thread_metrics;
pub(crate) mod upstream;
