//! The files that the load engine reads.

pub mod logs;
pub mod profiles;
pub mod results;
pub mod targets;
