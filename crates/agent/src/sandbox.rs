//! What the process gives up before it serves the first byte.
//!
//! Tokens live in this memory. A core dump or a debugger of the same user would copy them out, so the process is not
//! dumpable (`prctl(2)`, PR_SET_DUMPABLE; this also makes `/proc/PID/mem` root's alone), and it can never
//! gain privileges through a set-user-ID program (PR_SET_NO_NEW_PRIVS).

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::set_no_new_privs;

/// Applies all of it.
///
/// # Errors
/// The kernel refused one; serving without it would break a promise of THREAT-MODEL.md.
pub(crate) fn enter() -> io::Result<()> {
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
