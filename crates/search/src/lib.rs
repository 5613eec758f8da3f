//! Which rate to offer next, and what the answers say about the rate at which a target breaks.
//!
//! [`search::RateSearch`] is a procedure without sockets, threads and clock: it says which [`offer::TrialSpec`] it wants carried out, is
//! told what was [`seen::TrialObservation`], and has a [`report::SearchReport`] at any moment. [`target::search`] joins it to whatever carries offers
//! out; [`closed`] does the same with clients that wait for their answers in place of a rate. [`evidence`] reduces a trial to what it says about growth, errors and lateness, [`vote`] says which way it points,
//! [`belief`] joins all of them to a bracket; [`compare`] holds two reports beside each other. Knows nothing of HTTP, of the causes
//! of a limit and of pages. Called by the tool.

pub mod belief;
pub mod closed;
pub mod compare;
pub mod evidence;
pub mod goal;
pub mod normal;
pub mod offer;
pub mod profile;
pub mod report;
pub mod search;
pub mod seen;
pub mod shapes;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
pub mod target;
pub mod vote;
