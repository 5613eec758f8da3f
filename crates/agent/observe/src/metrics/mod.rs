//! What is counted elsewhere, written for Prometheus at a scrape.

pub mod broker;
pub mod cluster;
pub mod min_lifetime;
pub mod redirect;
pub mod requests;
pub mod write;
