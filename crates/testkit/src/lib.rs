//! Helpers for tests only: servers that do exactly what a test tells them, well or badly, and a real Kubernetes control plane
//! with the objects that tests make in it.

pub mod control_plane;
pub mod objects;
pub mod server;
pub mod tls;
