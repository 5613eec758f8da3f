//! What operators see: the admin port, metrics, and events on pods whose credentials are in trouble.
//!
//! Reads what the others count and hold, and decides nothing. `app` starts it.

pub mod admin;
pub mod excessive_fetch;
pub mod metrics;
pub mod pod_scan;
pub mod pods_page;
pub mod readiness;
pub mod stale_credentials;
#[cfg(test)]
mod tests;
