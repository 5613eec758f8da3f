//! A small HTTP server on loopback that breaks at a known rate for a known cause.
//!
//! - [`kind`] lists the faults, and [`fault_syntax`] parses them.
//! - [`expected_find_result()`] computes their limits, and [`draw_faults()`] draws random ones.
//! - `model` decides the fate of each request without sockets, and `server` carries it out.
//!
//! The benchmark of `find` and its tests use this crate, as do users who want to see a fault. The crate does not depend on the diagnosis of
//! causes.

pub mod fault_syntax;
pub mod kind;
mod model;
pub mod random_faults;
mod server;
pub mod truth;

pub use fault_syntax::{FaultSyntaxError, PlantedFault};
pub use kind::FaultKind;
pub use random_faults::draw_faults;
pub use server::{FaultServer, FaultServerOptions, start};
pub use truth::expected_find_result;
