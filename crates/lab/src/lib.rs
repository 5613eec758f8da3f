//! The methods of the load tool: they decide whether a trial is valid and what it shows.
//!
//! For one trial: [`generator_machine`] watches this machine, [`selfcheck`] judges the trial's own figures, and [`trial_judgement`] makes one
//! verdict of both and of the [`objective`]s. [`running_trial`] runs one trial with the [`generator_resources`] of this machine;
//! [`rig`] runs all loads of a search.
//!
//! [`find`] runs many trials on a [`target_driver`] and reports where and why a target breaks. [`isolate`] reports which of
//! several variants is slower. [`server_side`] reads the target's own metrics. [`remote_tasks`] has the tasks and results of generators
//! on other machines. This crate knows no commands, exit codes or pages. The tool calls it.

pub mod find;
pub mod generator_machine;
pub mod generator_resources;
pub mod generator_verdict;
pub mod isolate;
pub mod objective;
pub mod remote_tasks;
pub mod rig;
pub mod running_trial;
pub mod selfcheck;
pub mod server_side;
pub mod target_driver;
pub mod trial_judgement;
