//! What is counted elsewhere, written for Prometheus at a scrape.

pub mod broker;
pub mod cluster;
pub mod lifetime_floors;
pub mod redirect;
pub mod requests;
pub mod write;
