//! What is found out with the load engine: whether a trial can be believed, and what it shows.
//!
//! [`machine`] watches this machine during one trial, [`selfcheck`] looks at the trial's own figures, and
//! [`judgement`] makes one verdict of them, with the [`objective`]s that the trial was held to; [`carry`] does all of it for a load,
//! with the [`means`] that this machine has, and [`rig`] for all loads of a search. [`find`] makes many trials, on a [`ground`], and
//! says where a target breaks and why, [`isolate`] which of several ways to it is slower; [`server_side`] asks the target itself, where it can be
//! asked. What was done by generators elsewhere comes as [`remote`] has it. Knows nothing of commands, exit codes and pages. Called by the tool.

pub mod carry;
pub mod find;
pub mod ground;
pub mod isolate;
pub mod judgement;
pub mod machine;
pub mod means;
pub mod objective;
pub mod remote;
pub mod rig;
pub mod selfcheck;
pub mod server_side;
pub mod verdict;
