//! What the process gives up before it serves the first byte.
//!
//! Tokens live in this memory. A core dump or a debugger of the same user would copy them out, so the process is not
//! dumpable (`prctl(2)`, PR_SET_DUMPABLE; this also makes `/proc/PID/mem` root's alone), and it can never
//! gain privileges through a set-user-ID program (PR_SET_NO_NEW_PRIVS). What it was given to start with (binding port 80, opening maps
//! of the kernel's) nothing needs after the start, so all capabilities go, too, but for what a caller names.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// Applies all of it, to this thread and those that it starts from now on.
///
/// # Errors
/// The kernel refused one; serving without it would break a promise of THREAT-MODEL.md.
pub(crate) fn enter(kept: CapabilitySet) -> io::Result<()> {
    give_up(kept)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Gives up what each thread has of its own: all capabilities but these, if it has them, and gaining any again.
///
/// # Errors
/// The kernel refused.
pub(crate) fn give_up(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    let kept = capabilities(None)?.permitted & kept;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}
