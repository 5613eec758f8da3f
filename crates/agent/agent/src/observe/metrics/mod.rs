//! What is counted elsewhere, written for Prometheus at a scrape.

pub(crate) mod redirect;
