//! Why a target breaks at the rate at which it does.
//!
//! Knows signs and probabilities, and no socket, thread or clock: what it wants tried it says as an [`experiment::Experiment`], what
//! came of it it is told as [`watched::ExperimentObservation`], request by request. [`inquiry::Inquiry`] is the procedure, [`battery`] the
//! experiments that there are, [`view`] figures of one, [`signs`] what they show, [`odds`] what that comes to, [`sizes`] how large a
//! cause is and [`words`] what is said of it. [`class`] has the causes that it tells apart, [`report`] what it says of them. Called
//! by `lab`, which carries experiments out, and by the tool, which shows the report.

pub mod battery;
pub mod case;
pub mod class;
pub mod experiment;
pub mod inquiry;
pub mod odds;
pub mod report;
pub mod signs;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
pub mod sizes;
pub mod subject;
pub mod view;
pub mod watched;
pub mod words;
