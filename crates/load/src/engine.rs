//! The engine by one name: a [`Plan`] in, a [`Trial`] out, an [`Outcome`] of it.

pub use crate::collector::Heard;
pub use crate::outcome::{Boundary, Outcome};
pub use crate::plan::{FINEST, GRACE, Http2, InFlight, Load, Plan, Results, Setup, Travel};
pub use crate::session::{Session, StartError, start};
pub use crate::trial::Trial;
