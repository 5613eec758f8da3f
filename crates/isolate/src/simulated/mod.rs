//! Simulated paths with realistic noise and a manual clock.
//!
//! The logarithm of a response time is a sum: the path's level (slow and fast drift, stalls), the connection's offset, the request's own
//! noise with a tail, and the effect of its variant. [`path`] draws it from a seed, and [`scores`] measures how well experiments did. Only
//! this crate's tests and the example `isolate-accuracy` use these modules.

pub mod path;
pub mod scores;
#[cfg(test)]
mod tests;
