//! Finds the reason why a target breaks at its limit.
//!
//! This crate works with signs and probabilities and has no sockets, threads or clocks. It describes each test as an
//! [`experiment::Experiment`] and reads the result as [`observed_requests::ExperimentObservation`], request by request.
//!
//! - [`inquiry::Inquiry`] chooses the experiments of [`experiment_plans`].
//! - [`experiment_stats`] computes statistics of one experiment, and [`signs`] interprets them.
//! - [`odds`] turns signs into probabilities of the causes in [`class`].
//! - [`cause_size`] estimates how large a cause is, and [`words`] writes the texts of the [`report`].
//!
//! The crate `lab` runs the experiments, and the tool shows the report.

pub mod case;
pub mod cause_size;
pub mod class;
pub mod experiment;
pub mod experiment_plans;
pub mod experiment_stats;
pub mod inquiry;
pub mod observed_requests;
pub mod odds;
pub mod report;
pub mod signs;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
pub mod subject;
pub mod words;
