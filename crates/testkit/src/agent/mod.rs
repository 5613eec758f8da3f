//! The agent from outside, for its tests on loopback and those on a real cluster: its program as a process, a client that
//! sees bytes, and the client libraries that pods use.
//!
//! Knows paths and answers of metadata servers, not the agent's code: it does not depend on it.

pub mod client;
pub mod client_library;
pub mod process;
