//! Runs the programs and rules in a real kernel, with network namespaces for a node, its pods and the cloud.
//!
//! `scripts/redirect-test` runs these tests. A plain `cargo test` lists them as skipped, because they need root and groups to attach to.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "what cannot be cleaned up is said")]

mod attaching;
mod capture;
mod closed;
mod heartbeat;
mod host_network;
mod identity;
mod pod_links;
mod record_shares;
mod refusals;
mod rules;
mod support;
