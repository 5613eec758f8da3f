//! What is found out with the load engine: whether a trial can be believed, and what it shows.
//!
//! [`probe`] reads this machine, [`machine`] watches it during one trial, [`selfcheck`] looks at the trial's own figures, and
//! [`judgement`] makes one verdict of them, with the [`objective`]s that the trial was held to. [`server_side`] asks the target itself, where
//! it can be asked. Knows nothing of commands, exit codes and pages. Called by the tool.

pub mod ground;
pub mod judgement;
pub mod machine;
pub mod objective;
pub mod probe;
pub mod selfcheck;
pub mod server_side;
pub mod verdict;
