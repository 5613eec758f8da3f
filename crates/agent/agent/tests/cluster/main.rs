//! The agent on a real Kubernetes API: etcd and kube-apiserver, the RBAC that is shipped, pods that are API objects and
//! whose containers are processes in network namespaces with the pods' addresses, and an emulated cloud that verifies their
//! tokens by the keys that the API server publishes.
//!
//! `scripts/cluster-test` runs these; a plain `cargo test` names them and says so, because they need root, programs that
//! take minutes to build and a network of their own.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what a test measured, and the log of an agent that failed")]

mod support;

mod aws;
mod aws_libraries;
mod bad_input;
mod captured;
mod chart;
mod churn;
mod crowd;
mod libraries;
mod memory;
mod outage;
mod pod_lifecycle;
mod reload;
mod shipped_manifests;
mod upstream;
