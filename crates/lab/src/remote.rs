//! What generators elsewhere are asked to do, and what they say of it, as data: [`load`] what came of a part of a load, [`search`] works
//! of a search and of an inquiry, [`segments`] those of an experiment that compares ways, and what was seen of each.
//!
//! Knows nothing of pods and lines. Written by the program in a pod, read by whoever orders and adds the parts up.

mod compact;
pub mod load;
mod memory;
mod mirrors;
mod quota;
pub mod search;
pub mod segments;

pub use self::memory::most_in_flight;
pub use self::quota::QuotaWatch;
