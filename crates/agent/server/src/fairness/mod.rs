//! What clients share on a traffic thread, and how: turns, CPU time, memory. Each has a share of its own, so what one does costs
//! itself and nobody else.
//!
//! Knows no sockets. Used by the thread alone.

pub(crate) mod buffer_budget;
pub(crate) mod clients;
pub(crate) mod cpu_pacer;
pub(crate) mod scheduler;
