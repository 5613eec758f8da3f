//! Shows the agent's state to operators: the admin port, metrics, and Kubernetes events on pods with credential problems.
//!
//! This crate reads the counters and leases of the other crates and makes no decisions. The `app` module of the `agent` crate
//! starts the tasks of this crate.

pub mod admin;
pub mod excessive_fetch;
pub mod metrics;
pub mod periodic_pod_checks;
pub mod pods_page;
pub mod readiness;
pub mod stale_credentials;
#[cfg(test)]
mod tests;
