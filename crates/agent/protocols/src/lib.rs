//! The clouds' metadata dialects as pure functions: a request head becomes a query or a refusal, an answer
//! becomes response bytes.
//!
//! No sockets, no clock, no tasks, no names of pods. The agent calls it once per request, between the wire's parser
//! and the broker's lease. What is decided here is what a caller may ask at all; *who* asks is decided before, and
//! *which credential* answers is decided after.

pub mod aws;
pub mod google;
pub mod head;
mod hex;
mod json;
