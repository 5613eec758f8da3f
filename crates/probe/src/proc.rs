//! Threads, limits and pressure, as `/proc` has them (Linux `proc(5)`, `Documentation/accounting/psi.rst`).
