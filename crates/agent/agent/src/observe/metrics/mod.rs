//! What is counted elsewhere, written for Prometheus at a scrape.

pub(crate) mod broker;
pub(crate) mod cluster;
pub(crate) mod floors;
pub(crate) mod redirect;
pub(crate) mod requests;
pub(crate) mod write;
