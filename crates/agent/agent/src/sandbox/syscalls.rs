//! Lists the system calls that the serving agent makes, by name. The kernel refuses all other system calls.
//!
//! Most of the list comes from runs of the whole test suite under `strace`, once with glibc and once with musl. The source code
//! of both C libraries showed more calls, for name lookups, a panic and the exit. The numbers of calls differ between
//! architectures, but the names are the same. On x86-64, both C libraries still make some old calls that newer architectures do
//! not have. The module `seccomp` compiles the list to programs for the kernel.

use nix::libc::{self, c_int, c_long};

/// A condition on an argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum ArgFilter {
    /// The low 32 bits of the argument equal this value.
    Equal(u64),
    /// The argument has none of these values.
    NoneOf(&'static [u64]),
    /// The argument, masked with the first value, equals the second value.
    MaskedEqual(u64, u64),
}

/// The conditions on a call's arguments, each with the argument's position (from 0). The call must meet all conditions.
pub(super) type ArgFilters = &'static [(u8, ArgFilter)];

/// A call, and the alternatives for its arguments. One matching alternative is enough. Without alternatives, all arguments are
/// allowed.
pub(super) type SyscallRule = (c_long, &'static [ArgFilters]);

/// The optional parts of the list, which depend on the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SyscallProfile {
    /// True if the agent uses the redirect's BPF maps.
    pub(crate) uses_bpf_maps: bool,
    /// True if the agent writes a file.
    pub(crate) writes_files: bool,
    /// True if the agent removes the redirect's pins of an older layout.
    pub(crate) removes_pins: bool,
}

impl SyscallProfile {
    /// Returns all allowed calls.
    pub(super) fn allowed_syscalls(self) -> impl Iterator<Item = SyscallRule> {
        let plain = ALWAYS.iter().chain(OLDER).map(|number| (*number, &[][..]));
        let maps = self.uses_bpf_maps.then_some(MAPS).into_iter().flatten();
        let writing = self.writes_files.then_some(WRITING).into_iter().flatten();
        let removing = (self.writes_files || self.removes_pins).then_some(REMOVING).into_iter().flatten();
        let directories = self.removes_pins.then_some(REMOVING_DIRECTORIES).into_iter().flatten();
        let removing = removing.chain(directories);
        plain
            .chain(IN_A_WAY.iter().copied())
            .chain(maps.copied())
            .chain(writing.copied())
            .chain(removing.copied())
    }
}

/// The calls that are allowed with any arguments. The process's open descriptors and its few capabilities (none, or CAP_BPF for the
/// redirect) limit the effect of these calls.
const ALWAYS: &[c_long] = &[
    // These calls serve connections, name lookups, and the admin port. The agent can open the admin port after the start.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_fcntl,
    // These calls wait for events and time.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_restart_syscall,
    // These calls read files and list cgroups.
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_pread64,
    // These calls manage memory. A list below restricts the calls that could make memory executable.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // These calls manage threads, signals and the exit. Threads can drop capabilities but cannot gain capabilities.
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // These calls return information about the machine, and random numbers.
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    // A separate filter answers `clone3` with ENOSYS. The arguments of `clone3` are in memory, and a filter cannot read memory. C
    // libraries then use `clone` instead.
    libc::SYS_clone3,
];

/// The calls that exist only on x86-64.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] =
    &[libc::SYS_poll, libc::SYS_epoll_wait, libc::SYS_stat, libc::SYS_lstat, libc::SYS_readlink];

#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// The flags to open a file for reading only. These flags exclude writing and creating.
/// They also exclude O_TMPFILE, because O_TMPFILE needs O_WRONLY or O_RDWR.
const FOR_READING: ArgFilter =
    ArgFilter::MaskedEqual((libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64, libc::O_RDONLY as u64);

/// The flags to create a file that does not exist yet.
const MADE_ANEW: ArgFilter = ArgFilter::MaskedEqual(
    (libc::O_ACCMODE | libc::O_CREAT | libc::O_EXCL) as u64,
    (libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL) as u64,
);

/// The protection of memory that is not executable. The agent loads no code after the start.
const NOT_EXECUTABLE: ArgFilter = ArgFilter::MaskedEqual(libc::PROT_EXEC as u64, 0);

/// The flags to create a thread of this process in the same namespaces.
const A_THREAD: ArgFilter =
    ArgFilter::MaskedEqual((libc::CLONE_THREAD | NAMESPACES) as u64, libc::CLONE_THREAD as u64);

const NAMESPACES: c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// The mask of a socket's type without its flags (Linux, `SOCK_TYPE_MASK` in `include/linux/net.h`).
const SOCK_TYPE: u64 = 0xf;
const STREAM: ArgFilter = ArgFilter::MaskedEqual(SOCK_TYPE, libc::SOCK_STREAM as u64);
const DATAGRAM: ArgFilter = ArgFilter::MaskedEqual(SOCK_TYPE, libc::SOCK_DGRAM as u64);
const RAW: ArgFilter = ArgFilter::MaskedEqual(SOCK_TYPE, libc::SOCK_RAW as u64);
const IPV4: ArgFilter = ArgFilter::Equal(libc::AF_INET as u64);
const IPV6: ArgFilter = ArgFilter::Equal(libc::AF_INET6 as u64);

/// The `ioctl` requests (Linux, `include/uapi/asm-generic/ioctls.h`). The C libraries define these constants with different
/// types.
const FIONREAD: u64 = 0x541b;
const FIONBIO: u64 = 0x5421;
const FIOCLEX: u64 = 0x5451;

/// A `prctl` option (Linux, `include/uapi/linux/prctl.h`) that the crate `libc` does not define.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// The calls that are allowed only with certain arguments.
/// Unix sockets are not allowed. glibc uses a Unix socket to query a name cache, but also works without this cache.
const IN_A_WAY: &[SyscallRule] = &[
    (libc::SYS_openat, &[&[(2, FOR_READING)]]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, &[&[(1, FOR_READING)]]),
    (libc::SYS_mmap, &[&[(2, NOT_EXECUTABLE)]]),
    (libc::SYS_mprotect, &[&[(2, NOT_EXECUTABLE)]]),
    (libc::SYS_clone, &[&[(0, A_THREAD)]]),
    (
        libc::SYS_socket,
        &[
            &[(0, IPV4), (1, STREAM)],
            &[(0, IPV6), (1, STREAM)],
            // The C library uses UDP sockets for DNS queries, and to check which addresses are reachable.
            &[(0, IPV4), (1, DATAGRAM)],
            &[(0, IPV6), (1, DATAGRAM)],
            &[
                (0, ArgFilter::Equal(libc::AF_NETLINK as u64)),
                (1, RAW),
                (2, ArgFilter::Equal(libc::NETLINK_ROUTE as u64)),
            ],
        ],
    ),
    // Each Tokio runtime receives signals over a socket pair.
    (libc::SYS_socketpair, &[&[(0, ArgFilter::Equal(libc::AF_UNIX as u64)), (1, STREAM)]]),
    (
        libc::SYS_ioctl,
        &[
            &[(1, ArgFilter::Equal(FIONBIO))],
            &[(1, ArgFilter::Equal(FIOCLEX))],
            &[(1, ArgFilter::Equal(FIONREAD))],
        ],
    ),
    // These options set the thread's name, drop privileges, and read the auxiliary vector.
    (
        libc::SYS_prctl,
        &[
            &[(0, ArgFilter::Equal(libc::PR_SET_NAME as u64))],
            &[(0, ArgFilter::Equal(libc::PR_SET_NO_NEW_PRIVS as u64))],
            &[(0, ArgFilter::Equal(PR_GET_AUXV))],
        ],
    ),
    // The C libraries abort the process with these calls.
    (libc::SYS_tgkill, &[&[(2, ArgFilter::Equal(libc::SIGABRT as u64))]]),
    (libc::SYS_tkill, &[&[(1, ArgFilter::Equal(libc::SIGABRT as u64))]]),
    // This rule allows reading resource limits but not setting them.
    (libc::SYS_prlimit64, &[&[(2, ArgFilter::MaskedEqual(u64::MAX, 0))]]),
];

/// The `bpf` commands on open maps (Linux, `enum bpf_cmd` in `include/uapi/linux/bpf.h`): BPF_MAP_LOOKUP_ELEM,
/// BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM and BPF_MAP_GET_NEXT_KEY. While the agent serves, it does not create or open maps,
/// and it does not load or attach programs.
const MAP_COMMANDS: [u64; 4] = [1, 2, 3, 4];

const MAPS: &[SyscallRule] = &[
    (
        libc::SYS_bpf,
        &[
            &[(0, ArgFilter::Equal(MAP_COMMANDS[0]))],
            &[(0, ArgFilter::Equal(MAP_COMMANDS[1]))],
            &[(0, ArgFilter::Equal(MAP_COMMANDS[2]))],
            &[(0, ArgFilter::Equal(MAP_COMMANDS[3]))],
        ],
    ),
    // A file lock makes the agents of a node write the maps one after the other.
    (libc::SYS_flock, &[]),
];

/// The number of `renameat` (Linux, `include/uapi/asm-generic/unistd.h`). For glibc on aarch64, the crate `libc` does not define
/// this number.
#[cfg(target_arch = "aarch64")]
const RENAMEAT: c_long = 38;
#[cfg(not(target_arch = "aarch64"))]
const RENAMEAT: c_long = libc::SYS_renameat;

/// The calls that the agent needs to replace a whole file.
const WRITING: &[SyscallRule] = &[
    (libc::SYS_openat, &[&[(2, MADE_ANEW)]]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, &[&[(1, MADE_ANEW)]]),
    (libc::SYS_fsync, &[]),
    (libc::SYS_renameat2, &[]),
    (RENAMEAT, &[]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, &[]),
];

/// The calls that remove files.
const REMOVING: &[SyscallRule] = &[
    (libc::SYS_unlinkat, &[]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, &[]),
];

/// The call that removes a directory. On aarch64 it is `unlinkat`.
const REMOVING_DIRECTORIES: &[SyscallRule] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, &[]),
];

/// The calls that the agent never makes, but that an attacker would make first.
/// Such a call ends the process, because it shows that an attacker controls the process. Other calls that are not on the list
/// only fail, because a C library may make them in a case that the tests do not cover.
pub(super) const FATAL_CALLS: &[SyscallRule] = &[
    // These calls start another program or another process.
    (libc::SYS_execve, &[]),
    (libc::SYS_execveat, &[]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_fork, &[]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_vfork, &[]),
    (libc::SYS_clone, &[&[(0, ArgFilter::MaskedEqual(libc::CLONE_THREAD as u64, 0))]]),
    // These calls access the memory and the files of another process.
    (libc::SYS_ptrace, &[]),
    (libc::SYS_process_vm_readv, &[]),
    (libc::SYS_process_vm_writev, &[]),
    (libc::SYS_pidfd_getfd, &[]),
    (libc::SYS_kcmp, &[]),
    // These calls change namespaces, mounts and root directories.
    (libc::SYS_unshare, &[]),
    (libc::SYS_setns, &[]),
    (libc::SYS_chroot, &[]),
    (libc::SYS_pivot_root, &[]),
    (libc::SYS_mount, &[]),
    (libc::SYS_umount2, &[]),
    (libc::SYS_move_mount, &[]),
    (libc::SYS_open_tree, &[]),
    (libc::SYS_mount_setattr, &[]),
    (libc::SYS_fsopen, &[]),
    (libc::SYS_fspick, &[]),
    (libc::SYS_fsconfig, &[]),
    (libc::SYS_fsmount, &[]),
    (libc::SYS_name_to_handle_at, &[]),
    (libc::SYS_open_by_handle_at, &[]),
    // These calls load code into the kernel, or open large parts of the kernel's interface.
    (libc::SYS_bpf, &[&[(0, ArgFilter::NoneOf(&MAP_COMMANDS))]]),
    (libc::SYS_init_module, &[]),
    (libc::SYS_finit_module, &[]),
    (libc::SYS_delete_module, &[]),
    (libc::SYS_kexec_load, &[]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_kexec_file_load, &[]),
    (libc::SYS_perf_event_open, &[]),
    (libc::SYS_userfaultfd, &[]),
    (libc::SYS_io_uring_setup, &[]),
    (libc::SYS_io_uring_enter, &[]),
    (libc::SYS_io_uring_register, &[]),
    (libc::SYS_add_key, &[]),
    (libc::SYS_request_key, &[]),
    (libc::SYS_keyctl, &[]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_iopl, &[]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_ioperm, &[]),
    // These calls change the user, or affect the whole machine.
    (libc::SYS_setuid, &[]),
    (libc::SYS_setgid, &[]),
    (libc::SYS_setresuid, &[]),
    (libc::SYS_setresgid, &[]),
    (libc::SYS_setgroups, &[]),
    (libc::SYS_reboot, &[]),
    (libc::SYS_sethostname, &[]),
    (libc::SYS_settimeofday, &[]),
    (libc::SYS_clock_settime, &[]),
    (libc::SYS_swapon, &[]),
    (libc::SYS_swapoff, &[]),
];
