//! Emulates clouds on loopback, closely enough for real client libraries.
//!
//! [`google`] is one listener for Google's security token service, IAM Credentials and a virtual machine's metadata server. [`aws`] is one
//! for AWS's security token service, EKS Auth and an instance's metadata service. [`service_account_tokens`] issues ServiceAccount tokens in the API
//! server's format. [`faults`] describes injected faults, which may change while the emulator runs.
//!
//! The demo, the agent's tests and the command `seawall emulate` use these emulators. This crate does not depend on the agent. All times in
//! responses come from the caller's [`seawall_core::Clock`].

pub mod aws;
pub mod faults;
pub mod google;
mod jwt;
pub mod keys;
mod reply;
mod request_counters;
mod server;
pub mod service_account_tokens;
