//! What operators see: the admin port, metrics, and events on pods whose credentials are in trouble.
//!
//! Reads what the others count and hold, and decides nothing. `app` starts it.

pub(crate) mod admin;
pub(crate) mod excessive_fetch;
pub(crate) mod metrics;
pub(crate) mod pod_scan;
pub(crate) mod pods_page;
pub(crate) mod readiness;
pub(crate) mod stale_credentials;
#[cfg(test)]
mod tests;
