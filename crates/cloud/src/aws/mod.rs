//! AWS's dialects.

pub mod pattern;
pub mod role;
pub mod time;

pub use pattern::{Pattern, PatternError};
pub use role::RoleName;
pub use time::{Stamp, UnixTime};
