//! The load engine: HTTP at an exact rate, measured from the instant each request was due.
//!
//! Knows HTTP and no cloud. [`session`] runs a [`plan::RunPlan`]: one thread per core, each with its own sockets, its own
//! share of the [`schedule`] and its own histograms; [`results`] reads and writes what vegeta reads and writes;
//! [`timeline`] sums records for reports. Called by the tool and by the search methods on top of it.

mod accounting;
pub mod by_variant;
pub mod clock;
pub mod collector;
pub mod completed_request;
pub mod configuration;
pub mod control;
pub mod dns;
pub mod duration_json;
pub mod engine;
pub mod expectation;
mod failed_clients;
mod in_flight;
pub mod input_files;
pub mod interval;
pub mod interval_row;
pub mod latency_distribution;
pub mod load_profile;
pub mod plan;
mod poller;
pub mod proxy;
pub mod rate;
pub mod recorder;
pub mod request;
pub mod request_fault;
mod request_lifecycle;
pub mod request_source;
pub mod resolve;
pub mod response_samples;
pub mod run_outcome;
pub mod schedule;
pub mod sender;
mod sender_threads;
pub mod session;
pub mod stats;
pub mod summary;
pub mod target;
pub mod target_outcomes;
pub mod template;
mod thread_shares;
pub mod tls;
mod transport;
pub mod trial;
pub mod variant;

#[cfg(feature = "rehearsal")]
pub use transport::simulated_network;

pub mod record;

pub mod results;

pub mod timeline;
