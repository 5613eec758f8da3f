//! What must hold for what `lab` reads: a target's page of metrics, and the file of a run.

pub mod exposition;
pub mod find;
