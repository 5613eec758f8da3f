//! The agent on a real node: a real kubelet runs the pods, containerd the containers, and helm installs the chart as it is shipped, with
//! the image as it is built. Beside it an emulated cloud, which verifies pods' tokens by the keys that the API server publishes, and a
//! stand-in for the real metadata server, which no pod may ever reach.
//!
//! `scripts/e2e` runs these, each in namespaces of its own; a plain `cargo test` names them and says so.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what a test measured")]

#[path = "../cluster/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "it is of the tests beside these, which play the kubelet; this is a part of it"
)]
mod support;

mod chart;
mod node;
mod pod_answers;
mod pods;
mod real_metadata_server;

mod agent_ends;
mod churn;
mod gke;
mod host_network;
mod install;
mod libraries;
mod upgrade;
