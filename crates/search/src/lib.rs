//! Finds the rate at which a target breaks: this crate chooses the next rate and evaluates the results.
//!
//! [`search::RateSearch`] is a procedure without sockets, threads or a clock. It gives the next [`trial_spec::TrialSpec`], takes
//! a [`observation::TrialObservation`], and has a [`report::SearchReport`] at any time. [`target::search`] connects it to a
//! target. [`closed_loop`] does the same for clients that wait for their responses.
//!
//! - [`evidence`] reduces a trial to its evidence about growth, errors and lateness.
//! - [`trial_verdict`] judges a single trial.
//! - [`limit_posterior`] combines all trials into a bracket.
//! - [`compare`] compares two reports.
//!
//! The crate has no code for HTTP, for the causes of a limit or for reports' layout. The tool calls it.

pub mod closed_loop;
pub mod compare;
pub mod evidence;
pub mod failure_curves;
pub mod goal;
pub mod limit_posterior;
pub mod normal;
pub mod observation;
pub mod report;
pub mod search;
pub mod search_profile;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
pub mod target;
pub mod trial_spec;
pub mod trial_verdict;
