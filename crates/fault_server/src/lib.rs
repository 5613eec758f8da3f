//! A small HTTP server on loopback that breaks at a rate that is known, for a cause that is known.
//!
//! [`kind`] lists what can be planted, [`text`] reads it, [`truth()`] says what it comes to, [`draw()`] draws it by chance. What becomes
//! of a request and when is `model`'s, without sockets; `server` carries it out. For the bench of `find`, for its tests, and for who
//! wants to see what a limiter looks like. Nothing here knows how causes are found.

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
