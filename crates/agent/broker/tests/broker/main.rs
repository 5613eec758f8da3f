//! The broker: its promises with a clock moved by hand, and each cloud's module against test servers.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod aws;
mod aws_answers;
mod aws_logs;
mod aws_moto;
mod aws_world;
mod broker;
mod captured_log;
mod google;
mod identity_tokens;
mod logs;
mod second_cloud;
mod tenants;
mod world;
