//! The dialects, from the bytes of requests to the bytes of answers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests stop like tests"
)]

mod aws_clients;
mod aws_containers;
mod aws_imds;
mod aws_properties;
mod google_clients;
mod google_conceal;
mod google_federate;
mod google_properties;
mod support;
