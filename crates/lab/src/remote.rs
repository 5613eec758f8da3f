//! The tasks and results of generators on other machines, as data: [`load`] for a load, [`search`] for a search and an inquiry,
//! and [`segments`] for an experiment that compares variants.
//!
//! The program in a pod writes the results. The coordinator reads them and adds the parts up. This module knows no pods and no line format.

mod in_flight_limit;
pub mod load;
mod packed_json;
mod quota;
pub mod search;
pub mod segments;
mod serde_mirrors;

pub use self::in_flight_limit::most_in_flight;
pub use self::quota::QuotaWatch;
