//! An API server at a person's hands, before a server on loopback that tests play.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod attach;
mod calls;
mod support;
