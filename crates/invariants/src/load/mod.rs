//! The files and the connections that the load engine reads.

pub mod hdr_logs;
pub mod pod_reports;
pub mod profiles;
pub mod results;
pub mod targets;
pub mod transport;
