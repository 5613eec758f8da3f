//! Reads a machine and changes nothing: what the kernel says about CPU, memory, network and limits.
//!
//! Three layers. Parsers ([`seawall_cgroup`], [`proc`], [`net`], [`sockets`]) are pure: text in, values out, nothing panics on any text.
//! A [`MachineSnapshot`] reads the files and keeps what each said, or why it could not be read ([`ProbeError`]). Judges
//! ([`generator`]) compare snapshots with thresholds whose source is named, and answer with [`MachineFinding`]s.
//!
//! Knows neither the load engine nor HTTP: what a run did comes in as plain numbers. What cannot be read is
//! reported as unknown, never as ok.

pub mod files;
pub mod finding;
pub mod generator;
pub mod net;
pub mod proc;
pub mod snapshot;
pub mod sockets;
pub mod threads;

pub use files::{HostFiles, LocalFiles, ProbeError, ProbeResult};
pub use finding::{FindingGrade, MachineFinding};
pub use generator::{GeneratorMonitor, RunActivity, judge};
pub use snapshot::MachineSnapshot;
pub use sockets::TcpSockets;
