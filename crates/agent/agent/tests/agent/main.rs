//! The agent as its pods, its operator and its enemies meet it: the real program as a process, an emulated cloud
//! upstream, loopback between them.
//!
//! One program and not one per topic: it is linked once, and its tests wait side by side.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a failed test shows what the agent said")]

mod support;

mod admin;
mod aws;
mod aws_refused;
mod bad_input;
mod chart;
mod conceal;
mod configuration;
mod connections;
mod identity;
mod import;
mod libraries;
mod lifecycle;
mod long_polls;
mod pages;
mod refresh;
mod reload;
mod scale;
mod tenants;
mod upstream;
