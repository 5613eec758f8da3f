//! Writes the other crates' counters for Prometheus at each scrape.

pub mod broker;
pub mod cluster;
pub mod floor_achievable;
pub mod redirect;
pub mod requests;
pub mod write;
