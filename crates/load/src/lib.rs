//! placeholder

pub mod record;

pub mod results;

pub mod timeline;
