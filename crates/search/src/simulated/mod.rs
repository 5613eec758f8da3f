//! Targets that break at a rate that is known, on a clock that is moved by hand.
//!
//! Each request is followed through its target ([`servers`]); nothing is a fluid. [`plants`] draws targets of twenty classes from a
//! seed and says where each breaks, [`target`] offers them load as a search asks for it, [`scores`] says how well searches did. For
//! this crate's tests and benches/find-accuracy alone, behind a feature, so that nobody who searches carries it along; in this crate
//! rather than in the testkit, because a search and its proof change together, and the testkit would have to depend on what it tests.

#[cfg(test)]
mod dying;
pub mod plants;
pub mod scores;
pub mod servers;
pub mod target;
#[cfg(test)]
mod tests;
