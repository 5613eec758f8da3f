//! An API server at a person's hands, before a server on loopback that tests play and before a real one (`real_api_server`, which
//! `scripts/cluster-test` runs); and the frames of its WebSockets.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod attach;
mod calls;
mod frames;
mod real_api_server;
mod support;
