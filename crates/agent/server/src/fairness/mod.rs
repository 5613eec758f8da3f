//! The resources that clients share on a traffic thread: turns, CPU time and memory.
//!
//! Each client has a share of its own, so a client's load slows only that client. The module knows no sockets. Only the thread uses
//! it.

pub(crate) mod buffer_budget;
pub(crate) mod clients;
pub(crate) mod cpu_pacer;
pub(crate) mod scheduler;
