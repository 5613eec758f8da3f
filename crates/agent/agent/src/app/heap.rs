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

/// What is larger has pages of its own, which go when it goes (`glibc.malloc.mmap_threshold`): the lists of all pods, which are made
/// anew with each change. In the heap they leave holes as they grow: 0.3 to 0.8 MiB, the more the busier the machine. A window of an
/// answer on its way (8 KiB) stays in the heap.
const LARGE: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "17408");

/// Starts the program anew with one heap, unless somebody has chosen how many; with the same number, arguments and files. Returns
/// where that cannot be done: then it takes a little more memory.
pub(crate) fn share() {
    let Ok(program) = env::current_exe() else { return };
    if env::var_os(HEAPS).is_none() {
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_else(|| program.clone().into_os_string());
        let mut anew = Command::new(program);
        let _ = anew.arg0(name).args(arguments).env(HEAPS, "1").env(LARGE.0, LARGE.1).exec();
    }
}
