//! The load engine: HTTP at an exact rate, measured from the instant each request was due.
//!
//! Knows HTTP and no cloud. [`load_session`] runs a [`plan::RunPlan`]: one thread per core, each with its own sockets, its own
//! share of the [`schedule`] and its own histograms; [`results`] reads and writes what vegeta reads and writes;
//! [`charted_timeline`] sums records for reports. Called by the tool and by the search methods on top of it.

pub mod by_variant;
pub mod clock;
pub mod completed_request;
pub mod configuration;
pub mod control;
pub mod dns_client;
pub mod duration_json;
pub mod engine;
pub mod expectation;
mod in_flight;
pub mod input_files;
pub mod interval;
pub mod interval_row;
pub mod latency_distribution;
pub mod load_profile;
pub mod load_session;
pub mod origin_resolution;
mod paused_clients;
pub mod plan;
mod poller;
pub mod proxy;
pub mod rate;
pub mod record_output;
pub mod request;
mod request_accounting;
pub mod request_failure_reason;
mod request_lifecycle;
pub mod request_source;
pub mod response_samples;
pub mod run_outcome;
pub mod schedule;
pub mod sender;
mod sender_threads;
pub mod stats;
pub mod stats_collector;
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
pub use transport::transport_harness;

pub mod record;

pub mod results;

pub mod charted_timeline;
