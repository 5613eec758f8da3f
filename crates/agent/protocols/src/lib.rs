//! The clouds' metadata dialects as pure functions.
//!
//! They turn a request head into a query or a refusal, and a result into response bytes.
//!
//! This crate has no sockets, clock, tasks or pod names. The agent calls it once per request, after the HTTP parser and before the
//! broker. The crate decides which requests are allowed. Before that, the agent identifies the client; afterwards it selects the
//! credential.

pub mod aws;
pub mod google;
mod hex;
mod json;
pub mod request_head_rules;
