//! The tasks and results of generators on other machines, as data: [`load`] for a load, [`search`] for a search and an inquiry, and [`segments`] for
//! an experiment that compares variants.
//!
//! The program in a pod writes the results. The coordinator reads them and adds the parts up. This module knows no pods and no line format.

mod compact;
pub mod load;
mod memory;
mod mirrors;
mod quota;
pub mod search;
pub mod segments;

pub use self::memory::most_in_flight;
pub use self::quota::QuotaWatch;
