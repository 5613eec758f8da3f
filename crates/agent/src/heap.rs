//! One heap for all threads.
//!
//! glibc gives each thread a heap of its own, and what is freed in one no other uses. The agent's threads hand to one another
//! nearly all that they keep (a pod's record is the cluster thread's, its token the control thread's), and bursts leave holes
//! in every heap: 1,110 pods weighed 0.6 to 1.4 MiB more, and never the same. A warm answer on a kept connection allocates nothing,
//! so hardly anybody waits for the one lock.
//!
//! glibc reads how many heaps it may have before `main`, from the environment, and has no call for it that safe Rust can
//! make. So the program starts itself anew with the variable, once.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How many heaps there may be. Source: glibc manual, "Memory Allocation Tunables", `glibc.malloc.arena_max`.
const HEAPS: &str = "MALLOC_ARENA_MAX";

/// Starts the program anew with one heap, unless somebody has chosen how many; with the same number, arguments and files. Returns
/// where that cannot be done: then it takes a little more memory.
pub(crate) fn share() {
    let Ok(program) = env::current_exe() else { return };
    if env::var_os(HEAPS).is_none() {
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_else(|| program.clone().into_os_string());
        let _ = Command::new(program).arg0(name).args(arguments).env(HEAPS, "1").exec();
    }
}
