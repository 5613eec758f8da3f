//! Divides the resources of a traffic thread among its clients: turns, CPU time and memory.
//!
//! In a turn, the thread reads once from a connection and answers the requests. Each client has a separate share, so a client's
//! load slows only that client. This module does not use sockets. Each thread has separate data, so the module needs no lock.

pub(crate) mod buffer_budget;
pub(crate) mod cpu_pacer;
pub(crate) mod scheduler;
pub(crate) mod tenants;
