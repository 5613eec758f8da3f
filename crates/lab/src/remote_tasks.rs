//! The tasks and results of generators on other machines, as data: [`load`] for a load, [`find_tasks`] for a search and an inquiry,
//! and [`isolate_tasks`] for an experiment that compares variants.
//!
//! The program in a pod writes the results. The coordinator reads them and adds the parts up. This module knows no pods and no line format.

mod cpu_quota_stops;
pub mod find_tasks;
mod in_flight_limit;
pub mod isolate_tasks;
pub mod load;
mod packed_json;
mod serde_mirrors;

pub use self::cpu_quota_stops::QuotaWatch;
pub use self::in_flight_limit::max_in_flight_for_memory;
