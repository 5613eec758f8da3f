//! Reads the state of a machine without changing it: what the kernel reports about CPU, memory, network and limits.
//!
//! There are three layers. Parsers ([`seawall_cgroup`], [`proc`], [`net`], [`sockets`]) are pure: they turn text into values and never
//! panic. A [`MachineSnapshot`] reads the files and keeps each value, or the reason why it is unknown ([`ProbeError`]). Judges
//! ([`generator`]) compare snapshots with thresholds and return [`MachineFinding`]s.
//!
//! The crate does not depend on the load engine or on HTTP: a run's activity comes in as numbers. A value that cannot be read is unknown,
//! never ok.

pub mod file_reader;
pub mod finding;
pub mod generator;
pub mod net;
pub mod proc;
pub mod snapshot;
pub mod sockets;
pub mod threads;

pub use file_reader::{HostFiles, LocalFiles, ProbeError, ProbeResult};
pub use finding::{FindingGrade, MachineFinding};
pub use generator::{GeneratorMonitor, RunActivity, judge};
pub use snapshot::MachineSnapshot;
pub use sockets::TcpSockets;
