//! Targets whose cause is known, on a clock that is moved by hand: each request is followed from its lookup to its answer.
//!
//! [`client`] is the load engine as experiments see it (a connection for each request that finds none idle, bound to it);
//! [`servers`] is what serves requests, [`parts`] what lies before: doors, handshakes, names, links, stalls; [`plants`] draws
//! targets of each class from a seed; [`scores`] says how well inquiries did. For this crate's tests and its example alone, behind
//! a feature, in this crate because an inquiry and its proof change together.

pub mod client;
pub mod parts;
pub mod plants;
pub mod scores;
pub mod servers;
#[cfg(test)]
mod tests;
