//! Finds out which of several variants of a path to a target is slower, with a controlled error rate for the whole experiment.
//!
//! [`study::Study`] is a procedure without sockets, threads or a clock. It gives the next [`segment::Segment`], takes its results
//! ([`cell`]), and has a [`finding::VariantFinding`] of each variant at any time. Variants are compared with a reference cell by cell
//! rather than request by request, because requests of the same seconds share the noise.
//!
//! - [`wilcoxon`], [`center`] and [`holm`] are the statistical tests.
//! - [`looks`] schedules the interim looks, and [`judge`] evaluates them.
//! - [`power`] forecasts the duration.
//!
//! The crate has no code for HTTP, for the meaning of a variant or for reports' layout. The crate `lab` runs the segments, and the tool
//! shows the findings.

pub mod cell;
pub mod center;
pub mod finding;
pub mod holm;
mod judge;
pub mod looks;
mod normal;
pub mod power;
pub mod segment;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
pub mod study;
pub mod wilcoxon;
