//! Properties of the two inputs that `lab` reads: a metrics page of a target, and the file of a run.

pub mod exposition;
pub mod find_reports;
