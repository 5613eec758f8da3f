//! Diagnoses a node or a pod before any load is sent.
//!
//! Each check is one file. It reads the machine through [`seawall_probe::HostFiles`] and judges by pure functions that return
//! [`DoctorFinding`]s. A threshold stands next to the code that uses it, with its source. Anything that a check cannot see is
//! unknown, never ok. Checks change nothing. They send requests only to name servers and, over [`http_client`], to an Envoy
//! sidecar and to metadata servers. [`check::ALL`] is the list of checks. The crate has no flags, pages or clock;
//! [`CheckContext`] provides the clock. The tool calls this crate.

pub mod check;
mod cpu;
mod dns;
pub mod finding;
pub mod http_client;
mod identity;
mod ports;
mod sidecar;
mod sockets;

pub use check::{ALL, CheckContext, DoctorCheck};
pub use dns::validated as checked_name;
pub use finding::{DoctorFinding, DoctorStatus};
pub use http_client::{HttpFetcher, HttpUrl, NetworkFetcher};
