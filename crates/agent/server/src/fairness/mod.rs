//! Divides the resources of a traffic thread among its clients: turns, CPU time and memory.
//!
//! A turn is one read of a connection and the answers to it. Each client has a separate share, so a client's load slows only that client.
//! The module knows no sockets. Each thread has its own data, so the module needs no lock.

pub(crate) mod buffer_budget;
pub(crate) mod cpu_pacer;
pub(crate) mod scheduler;
pub(crate) mod tenants;
