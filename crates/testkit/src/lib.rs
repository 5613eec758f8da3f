//! Helpers for tests only: servers that do exactly what a test tells them, well or badly.

pub mod server;
pub mod tls;
