//! The tool's image on a real node: a real kubelet runs the pods, containerd the containers, and whoever orders them is outside, as a person
//! is who has a kubeconfig file.
//!
//! `scripts/e2e` runs these, each in namespaces of its own; a plain `cargo test` names them and says so.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what a test measured")]

mod pods;

mod fleet;
mod node;
mod streams;
