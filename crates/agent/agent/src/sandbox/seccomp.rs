//! Compiles the lists of the module `syscalls` to BPF programs, and installs the programs in the kernel.
//!
//! Only the sandbox uses this module. The module itself names only one system call, `clone3`. A program gives one result to all calls on its list and
//! another result to all other calls. The agent needs four results, so it installs three programs, and the kernel applies the strictest result
//! (seccomp(2)). Since Linux 5.11, the kernel keeps a bitmap of calls that are allowed with any arguments, and runs no program
//! for these calls.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

use super::syscalls::{ArgFilter, ArgFilters, FATAL_CALLS, SyscallProfile, SyscallRule};

type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// Makes the kernel refuse calls that are not on the list, for every current and future thread. The process cannot undo this
/// change.
///
/// # Errors
/// The kernel does not support seccomp filters, or a thread already has a different filter.
pub(super) fn install_enforcing_filter(needs: SyscallProfile) -> anyhow::Result<()> {
    enforced(needs, std::env::consts::ARCH)?.iter().try_for_each(start)
}

/// Returns the programs in the order of installation. The program with the list of allowed calls is last, because it refuses the call that installs
/// further programs.
fn enforced(needs: SyscallProfile, architecture: &str) -> anyhow::Result<[BpfProgram; 3]> {
    let program = |calls: Vec<SyscallRule>, other, named| program(calls, other, named, architecture);
    let unknown = program(vec![(libc::SYS_clone3, &[])], SeccompAction::Allow, refusal(libc::ENOSYS))?;
    let never = program(FATAL_CALLS.to_vec(), SeccompAction::Allow, SeccompAction::KillProcess)?;
    let list = program(needs.allowed_syscalls().collect(), refusal(libc::EPERM), SeccompAction::Allow)?;
    Ok([unknown, never, list])
}

/// Makes the kernel log and allow the calls that are not on the list.
///
/// # Errors
/// The kernel does not support seccomp filters, or a thread already has a different filter.
pub(super) fn install_logging_filter(needs: SyscallProfile) -> anyhow::Result<()> {
    let calls = needs.allowed_syscalls().collect();
    start(&program(calls, SeccompAction::Log, SeccompAction::Allow, std::env::consts::ARCH)?)
}

fn refusal(errno: libc::c_int) -> SeccompAction {
    SeccompAction::Errno(errno.unsigned_abs())
}

fn start(program: &BpfProgram) -> anyhow::Result<()> {
    apply_filter_all_threads(program)
        .context("the kernel does not accept a seccomp filter; set `seccomp: none` to run without a filter")
}

/// Returns a program with the result `named` for these calls and the result `other` for all other calls. Calls of another
/// architecture (such as 32-bit calls on a 64-bit machine) end the process.
fn program(
    calls: Vec<SyscallRule>,
    other: SeccompAction,
    named: SeccompAction,
    architecture: &str,
) -> anyhow::Result<BpfProgram> {
    let target = architecture
        .try_into()
        .map_err(|_| anyhow!("there is no seccomp filter for the architecture {architecture}"))?;
    let mut rules = Rules::new();
    for (number, ways) in calls {
        let rule = rules.entry(number).or_default();
        for way in ways {
            rule.push(condition(way)?);
        }
    }
    Ok(SeccompFilter::new(rules, other, named, target)?.try_into()?)
}

fn condition(arguments: ArgFilters) -> anyhow::Result<SeccompRule> {
    let mut all = Vec::new();
    for (place, is) in arguments {
        all.append(&mut compared(*place, *is)?);
    }
    Ok(SeccompRule::new(all)?)
}

fn compared(place: u8, is: ArgFilter) -> anyhow::Result<Vec<SeccompCondition>> {
    // For most arguments, the kernel reads only the low 32 bits. If the kernel reads 64 bits of an argument, the filter checks
    // all 64 bits.
    let word = |op, value| SeccompCondition::new(place, SeccompCmpArgLen::Dword, op, value);
    let long = |op, value| SeccompCondition::new(place, SeccompCmpArgLen::Qword, op, value);
    let conditions: Result<Vec<_>, _> = match is {
        ArgFilter::Equal(value) => word(SeccompCmpOp::Eq, value).map(|one| vec![one]),
        ArgFilter::NoneOf(values) => values.iter().map(|value| word(SeccompCmpOp::Ne, *value)).collect(),
        ArgFilter::MaskedEqual(mask, value) => long(SeccompCmpOp::MaskedEq(mask), value).map(|one| vec![one]),
    };
    Ok(conditions?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The return values of a filter (Linux, `include/uapi/linux/seccomp.h`: SECCOMP_RET_*).
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    const KILL: u32 = 0x8000_0000;

    /// The architectures by their Rust names (Linux, `include/uapi/linux/audit.h`: AUDIT_ARCH_*).
    const MACHINES: [(&str, u32); 2] = [("x86_64", 0xc000_003e), ("aarch64", 0xc000_00b7)];

    /// Returns a program's result. It runs the program as the kernel does, on `struct seccomp_data` in the kernel's byte order.
    fn run(program: &BpfProgram, machine: u32, call: libc::c_long, arguments: &[u64]) -> u32 {
        let mut data = Vec::new();
        data.extend(u32::try_from(call).unwrap().to_le_bytes());
        data.extend(machine.to_le_bytes());
        data.extend(0_u64.to_le_bytes());
        (0..6).for_each(|n| data.extend(arguments.get(n).unwrap_or(&0).to_le_bytes()));
        let (mut at, mut held) = (0_usize, 0_u32);
        loop {
            let step = &program[at];
            at += 1;
            let jump = |is: bool| usize::from(if is { step.jt } else { step.jf });
            match step.code {
                0x20 => {
                    let place = step.k as usize;
                    held = u32::from_le_bytes(data[place..place + 4].try_into().unwrap());
                }
                0x05 => at += step.k as usize,
                0x15 => at += jump(held == step.k),
                0x25 => at += jump(held > step.k),
                0x35 => at += jump(held >= step.k),
                0x54 => held &= step.k,
                0x06 => return step.k,
                other => panic!("{other:#x}"),
            }
        }
    }

    /// Returns the result of all three programs. The kernel runs the last installed program first. It applies the strictest
    /// result, and among equal results the first one.
    fn answer(
        needs: SyscallProfile,
        (name, machine): (&str, u32),
        call: libc::c_long,
        arguments: &[u64],
    ) -> u32 {
        let programs = enforced(needs, name).unwrap();
        let answers = programs.iter().rev().map(|program| run(program, machine, call, arguments));
        let strictness = |answer: u32| (answer & 0xffff_0000).cast_signed();
        answers.reduce(|best, next| if strictness(next) < strictness(best) { next } else { best }).unwrap()
    }

    const ALL: SyscallProfile =
        SyscallProfile { uses_bpf_maps: true, writes_files: true, removes_pins: true };
    const EPERM: u32 = ERRNO | libc::EPERM.unsigned_abs();

    #[track_caller]
    fn check(needs: SyscallProfile, call: libc::c_long, arguments: &[i64], expected: u32) {
        let arguments: Vec<u64> = arguments.iter().map(|argument| argument.cast_unsigned()).collect();
        for machine in MACHINES {
            assert_eq!(
                answer(needs, machine, call, &arguments),
                expected,
                "{machine:?} {call} {arguments:x?}"
            );
        }
    }

    #[test]
    fn what_serving_takes_is_let_pass() {
        for call in
            [libc::SYS_read, libc::SYS_epoll_pwait, libc::SYS_accept4, libc::SYS_futex, libc::SYS_exit_group]
        {
            check(SyscallProfile::default(), call, &[], ALLOW);
        }
        check(SyscallProfile::default(), libc::SYS_openat, &[-100, 0, libc::O_CLOEXEC.into()], ALLOW);
    }

    #[test]
    fn calls_on_no_list_are_refused_and_the_agent_goes_on() {
        for call in [
            libc::SYS_mkdirat,
            libc::SYS_symlinkat,
            libc::SYS_kill,
            libc::SYS_seccomp,
            libc::SYS_mq_open,
            9999,
        ] {
            check(ALL, call, &[], EPERM);
        }
    }

    #[test]
    fn what_a_configuration_does_not_take_is_refused() {
        let anew = [-100, 0, (libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC).into()];
        check(ALL, libc::SYS_openat, &anew, ALLOW);
        check(SyscallProfile::default(), libc::SYS_openat, &anew, EPERM);
        check(ALL, libc::SYS_fsync, &[], ALLOW);
        check(SyscallProfile::default(), libc::SYS_fsync, &[], EPERM);
        for command in 1..=4 {
            check(ALL, libc::SYS_bpf, &[command], ALLOW);
            check(SyscallProfile::default(), libc::SYS_bpf, &[command], EPERM);
        }
    }

    #[test]
    fn no_file_that_is_there_is_written() {
        let flags =
            [libc::O_WRONLY, libc::O_RDWR, libc::O_WRONLY | libc::O_TRUNC, libc::O_WRONLY | libc::O_CREAT];
        for flags in flags.into_iter().chain([libc::O_TRUNC, libc::O_RDWR | libc::O_TMPFILE]) {
            check(ALL, libc::SYS_openat, &[-100, 0, flags.into()], EPERM);
        }
    }

    #[test]
    fn no_memory_becomes_executable() {
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            check(ALL, call, &[0, 4096, (libc::PROT_READ | libc::PROT_WRITE).into()], ALLOW);
            check(ALL, call, &[0, 4096, (libc::PROT_READ | libc::PROT_EXEC).into()], EPERM);
        }
        check(ALL, libc::SYS_pkey_mprotect, &[0, 4096, 4, -1], EPERM);
    }

    #[test]
    fn threads_are_made_and_nothing_else() {
        let thread =
            libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
        check(ALL, libc::SYS_clone, &[thread.into()], ALLOW);
        check(ALL, libc::SYS_clone, &[(thread | libc::CLONE_NEWNET).into()], EPERM);
        for process in
            [libc::SIGCHLD, libc::CLONE_NEWUSER | libc::SIGCHLD, libc::CLONE_VM | libc::CLONE_VFORK]
        {
            check(ALL, libc::SYS_clone, &[process.into()], KILL);
        }
        check(ALL, libc::SYS_clone3, &[], ERRNO | libc::ENOSYS.unsigned_abs());
    }

    #[test]
    fn only_internet_sockets_and_the_resolvers_are_made() {
        let stream: i64 = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK).into();
        let (datagram, raw): (i64, i64) =
            (libc::SOCK_DGRAM.into(), (libc::SOCK_RAW | libc::SOCK_CLOEXEC).into());
        for (family, kind, protocol, expected) in [
            (libc::AF_INET, stream, 6, ALLOW),
            (libc::AF_INET6, datagram, 0, ALLOW),
            (libc::AF_NETLINK, raw, libc::NETLINK_ROUTE, ALLOW),
            (libc::AF_NETLINK, raw, libc::NETLINK_NETFILTER, EPERM),
            (libc::AF_INET, raw, 6, EPERM),
            (libc::AF_UNIX, stream, 0, EPERM),
            (libc::AF_PACKET, raw, 0, EPERM),
            (libc::AF_VSOCK, stream, 0, EPERM),
            (libc::AF_ALG, datagram, 0, EPERM),
        ] {
            check(ALL, libc::SYS_socket, &[family.into(), kind, protocol.into()], expected);
        }
    }

    #[test]
    fn what_only_a_stranger_does_ends_the_process() {
        for call in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_kexec_load,
            libc::SYS_finit_module,
            libc::SYS_io_uring_setup,
        ] {
            check(ALL, call, &[], KILL);
        }
        // BPF_MAP_CREATE, BPF_PROG_LOAD, BPF_OBJ_GET, BPF_LINK_CREATE (Linux, `include/uapi/linux/bpf.h`).
        for command in [0, 5, 7, 28] {
            check(ALL, libc::SYS_bpf, &[command], KILL);
            check(SyscallProfile::default(), libc::SYS_bpf, &[command], KILL);
        }
    }

    #[test]
    fn calls_of_another_kind_of_machine_end_the_process() {
        let [program, ..] = enforced(ALL, "x86_64").unwrap();
        // On AUDIT_ARCH_I386, the same numbers mean other calls.
        assert_eq!(run(&program, 0x4000_0003, libc::SYS_read, &[]), KILL);
        // The list contains no numbers of x32.
        assert_eq!(answer(ALL, MACHINES[0], libc::SYS_read | 0x4000_0000, &[]), EPERM);
    }

    #[test]
    fn no_call_is_on_the_list_both_in_any_way_and_in_some() {
        let mut seen: BTreeMap<_, usize> = BTreeMap::new();
        for (number, ways) in ALL.allowed_syscalls() {
            let before = seen.insert(number, ways.len());
            assert!(before.is_none_or(|before| before > 0 && !ways.is_empty()), "{number}");
        }
    }
}
