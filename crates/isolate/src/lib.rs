//! Which of several ways to a target is slower, told with the confidence of a statement that is made once.
//!
//! [`study::Study`] is a procedure without sockets, threads and clock: it says which [`segment::Segment`] it wants carried out, is told
//! what was seen in it ([`slot`]), and has a [`finding::VariantFinding`] of each variant at any moment. Variants are compared with a reference cell by
//! cell, never request by request: noise is shared by what is sent in the same seconds, and correlated over more of them. [`wilcoxon`],
//! [`center`] and [`holm`] are the tests, [`looks`] says when they are asked, [`judge`] what they come to, [`power`] what they could tell and how long that would take.
//! Knows nothing of HTTP, of what a variant is, and of pages. Carried out by `lab`, shown by the tool.

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
pub mod slot;
pub mod study;
pub mod wilcoxon;
