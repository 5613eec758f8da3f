//! The files and the connections that the load engine reads.

pub mod logs;
pub mod profiles;
pub mod results;
pub mod targets;
pub mod transport;
