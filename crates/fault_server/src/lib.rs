//! A small HTTP server on loopback that breaks at a known rate for a known cause.
//!
//! - [`kind`] lists the faults, and [`text`] parses them.
//! - [`truth()`] computes their limits, and [`draw()`] draws random ones.
//! - `model` decides the fate of each request without sockets, and `server` carries it out.
//!
//! The benchmark of `find` and its tests use this crate, as do users who want to see a fault. The crate does not depend on the diagnosis of
//! causes.

pub mod draw;
pub mod kind;
mod model;
mod server;
pub mod text;
pub mod truth;

pub use draw::draw;
pub use kind::FaultKind;
pub use server::{FaultServer, FaultServerOptions, start};
pub use text::{FaultSyntaxError, PlantedFault};
pub use truth::truth;
