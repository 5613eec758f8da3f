//! Paths with noise as real ones have it, on a clock that is moved by hand.
//!
//! The logarithm of a time is the path's level (slow and fast drift, stalls), the connection's offset, the request's own noise with a
//! tail, and the effect of its variant. [`path`] draws it from a seed, [`scores`] says how well experiments did on it. For this crate's
//! tests and the example `isolate-accuracy` alone.

pub mod path;
pub mod scores;
#[cfg(test)]
mod tests;
