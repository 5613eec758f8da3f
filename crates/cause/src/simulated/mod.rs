//! Simulated targets with a known cause and a manual clock. The simulation follows each request from its DNS lookup to its response.
//!
//! - [`client`] is the load engine.
//! - [`servers`] has the models that serve requests.
//! - [`network_parts`] has listeners, handshakes, resolvers, links and stalls.
//! - [`planted_targets`] draws targets of each class from a seed.
//! - [`scores`] measures how well inquiries did.
//!
//! Only this crate's tests and its example use these modules, behind a feature.

pub mod client;
pub mod network_parts;
pub mod planted_targets;
pub mod scores;
pub mod servers;
#[cfg(test)]
mod tests;
