//! What is found out with the load engine: whether a trial can be believed, and what it shows.
//!
//! [`probe`] reads the machine beside it. Called by the tool.

pub mod probe;
