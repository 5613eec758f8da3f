//! Why a target breaks at the rate at which it does.
//!
//! Knows signs and probabilities, and no socket, thread or clock: what it wants tried it says as an [`experiment::Experiment`], what
//! came of it it is told as [`watched::Watched`], request by request. [`class`] has the causes that it tells apart, [`report`] what
//! it says of them. Called by `lab`, which carries experiments out, and by the tool, which shows the report.

pub mod class;
pub mod experiment;
pub mod inquiry;
pub mod report;
pub mod subject;
pub mod watched;
