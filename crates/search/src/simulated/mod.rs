//! Simulated targets with a known limit and a manual clock.
//!
//! Each request is simulated on its own, without a fluid model. [`servers`] has the models, and [`target_specs`] draws targets of
//! twenty classes from a seed and computes their limits. [`target`] offers them load, and [`scores`] measures how well searches
//! did. Only this crate's tests and benches/find-accuracy use these modules, behind a feature. They are here rather than in the
//! testkit, because a search and its proof change together, and because the testkit would otherwise depend on this crate.

#[cfg(test)]
mod dying;
pub mod scores;
pub mod servers;
pub mod target;
pub mod target_specs;
#[cfg(test)]
mod tests;
