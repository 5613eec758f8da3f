//! The engine by one name: a [`Plan`] in, a [`Running`] out, an [`Outcome`] of it.

pub use crate::outcome::{Outcome, Tick};
pub use crate::plan::{GRACE, Http2, InFlight, Plan, Results, Travel};
pub use crate::session::{Running, StartError, start};
