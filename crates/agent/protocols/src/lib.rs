//! The clouds' metadata dialects as pure functions.
//!
//! They turn a request head into a query or a refusal, and a result into response bytes.
//!
//! This crate has no sockets, clock, tasks or pod names. The agent calls it once per request, between the HTTP parser and the broker's
//! lease. The crate decides which requests are allowed at all. The agent identifies the client before, and selects the credential after.

pub mod aws;
pub mod google;
pub mod head;
mod hex;
mod json;
