//! Writes the other crates' counters for Prometheus at each scrape.

pub mod broker;
pub mod cluster;
pub mod min_lifetime;
pub mod redirect;
pub mod requests;
pub mod write;
