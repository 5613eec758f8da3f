//! Implements the clouds' metadata dialects as pure functions.
//!
//! A dialect is one cloud's metadata API. This crate parses a request head into a query or a refusal, and writes a result as
//! response bytes.
//!
//! This crate has no sockets, no clock, no tasks and no pod names. The agent calls this crate after the HTTP parser and before
//! the broker, which provides the credentials. The crate decides only whether a request is allowed. The agent itself identifies
//! the client and selects the credential.

pub mod aws;
pub mod google;
mod json;
pub mod request_head_rules;
