//! What is wrong with a node or a pod before any load is sent.
//!
//! Each check is a file: it looks at the machine through [`seawall_probe::HostFiles`], and judges what it saw by pure functions that answer with
//! [`DoctorFinding`]s. A threshold stands at its judge, with its source. What cannot be seen is said to be unknown, never to be fine;
//! nothing is changed, and nobody asked but name servers and, over [`web`], an Envoy beside the program and metadata servers. [`check::ALL`] is the list. Knows no flags, no pages and no clock of its own ([`CheckContext`] lends it one). Called by
//! the tool.

pub mod check;
mod cpu;
mod dns;
pub mod finding;
mod identity;
mod ports;
mod sidecar;
mod sockets;
pub mod web;

pub use check::{ALL, CheckContext, DoctorCheck};
pub use dns::validated as checked_name;
pub use finding::{DoctorFinding, DoctorStatus};
pub use web::{HttpFetcher, HttpUrl, NetworkFetcher};
