//! placeholder

pub mod record;

pub mod results;
