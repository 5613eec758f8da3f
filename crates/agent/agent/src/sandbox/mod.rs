//! Drops privileges before the process serves the first byte.
//!
//! The process keeps tokens in memory, and a core dump or a debugger of the same user could copy these tokens. The process
//! therefore makes itself not dumpable (`prctl(2)`, PR_SET_DUMPABLE), which also restricts `/proc/PID/mem` to root. The process
//! can never gain privileges through a set-user-ID program (PR_SET_NO_NEW_PRIVS). It needs its initial privileges only at the
//! start, to bind port 80 and to open BPF maps. After the start, the process drops all capabilities except the capabilities that
//! the redirect needs.
//!
//! Last, the process installs a seccomp filter ([`seccomp`]). The filter lists the system calls that the process needs, and their
//! permitted arguments ([`syscalls`]). Code that an attacker injects into this process can make no other calls. Such code cannot
//! start a program, write to an existing file, create a namespace, attach a debugger, load anything into the kernel, or make
//! memory executable. Such code can create a file only if the configuration requires that the agent writes a file
//! (`aws.imds.tokenKeyFile`).
//! - Some calls can come only from an attacker's code. If the process makes such a call, the kernel ends the process at once. An
//!   operator then sees that SIGSYS ended the container (exit code 159), and finds the call's number in the kernel's log.
//! - Every other call that is not on the list fails with EPERM, and the agent continues. A C library may need such a call in a
//!   case that the tests do not cover. If such a call ended the agent, the agents of all nodes could end at once. This would harm
//!   pods more than it would hinder an attacker. The code that made the call reports an ordinary failure ("os error 1"). With
//!   `seccomp: log`, the kernel's log names each such call.

mod seccomp;
mod syscalls;

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};
use serde::Serialize;

pub(crate) use syscalls::SyscallProfile;

/// The treatment of system calls that are not on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Seccomp {
    /// The kernel refuses these calls.
    Enforce,
    /// The kernel logs these calls and allows them. This setting finds calls that only some machines need.
    Log,
    /// The process installs no filter. This setting is for kernels without seccomp filters.
    None,
}

impl Seccomp {
    /// Parses the name in the configuration.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Enforce, Self::Log, Self::None].into_iter().find(|one| one.as_str() == text)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Log => "log",
            Self::None => "none",
        }
    }

    /// Installs the filter for all current and future threads. Call this function after [`harden_process`].
    ///
    /// # Errors
    /// The kernel refused the filter. The agent must not serve without the filter, because THREAT-MODEL.md promises the filter.
    pub(crate) fn install(self, needs: SyscallProfile) -> anyhow::Result<()> {
        match self {
            Self::Enforce => seccomp::install_enforcing_filter(needs),
            Self::Log => seccomp::install_logging_filter(needs),
            Self::None => Ok(()),
        }
    }

    /// Returns a warning for the operator if the kernel does not refuse calls.
    pub(crate) fn warning(self) -> Option<String> {
        (self != Self::Enforce).then(|| {
            format!("seccomp is {}: the kernel also allows system calls that the agent never needs. Set seccomp: enforce", self.as_str())
        })
    }
}

/// Drops privileges and makes the process not dumpable. This change applies to the calling thread and to the threads that it
/// starts later.
///
/// # Errors
/// The kernel refused a step. The agent must not serve without this step, because THREAT-MODEL.md promises it.
pub(crate) fn harden_process(kept: CapabilitySet) -> io::Result<()> {
    drop_privileges(kept)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Drops the privileges of the calling thread: all capabilities except `kept`, and the right to gain new capabilities.
///
/// # Errors
/// The kernel refused a step.
pub(crate) fn drop_privileges(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    let kept = capabilities(None)?.permitted & kept;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, Output};

    use nix::libc::SIGSYS;
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    const LET: &str = "sandbox::tests::child_that_does_what_agents_do";
    const REFUSED: &str = "sandbox::tests::child_that_does_what_is_refused";
    const STARTS: &str = "sandbox::tests::child_that_starts_a_program";
    const BECOMES: &str = "sandbox::tests::child_that_becomes_a_program";
    const MOVES: &str = "sandbox::tests::child_that_takes_another_root";

    /// Runs a test in a process of its own, because a filter cannot be removed.
    fn child(test: &str) -> Output {
        let words = [test, "--exact", "--ignored", "--nocapture", "--test-threads=1"];
        Command::new(std::env::current_exe().unwrap()).args(words).output().unwrap()
    }

    fn enforced(needs: SyscallProfile) {
        Seccomp::Enforce.install(needs).unwrap();
    }

    #[test]
    fn what_agents_do_goes_on_and_what_they_do_not_is_refused() {
        for test in [LET, REFUSED] {
            let output = child(test);
            assert!(output.status.success(), "{test}: {output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        }
    }

    #[test]
    fn what_only_a_stranger_does_ends_the_process() {
        for test in [STARTS, BECOMES, MOVES] {
            let output = child(test);
            assert_eq!(output.status.signal(), Some(SIGSYS), "{test}: {output:?}");
        }
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn child_that_does_what_agents_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        enforced(SyscallProfile { writes_files: true, ..SyscallProfile::default() });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let asks = std::thread::Builder::new().name("asks".into()).spawn(move || {
            let mut bytes = String::new();
            TcpStream::connect(at).unwrap().read_to_string(&mut bytes).unwrap();
            bytes
        });
        listener.accept().unwrap().0.write_all(b"answer").unwrap();
        assert_eq!(asks.unwrap().join().unwrap(), "answer");
        assert!(("localhost", 80).to_socket_addrs().unwrap().count() > 0);
        assert!(std::fs::read_to_string("/proc/self/status").unwrap().contains("Seccomp:\t2"));
        OpenOptions::new().write(true).create_new(true).open(&file).unwrap().sync_all().unwrap();
        std::fs::rename(&file, folder.path().join("kept")).unwrap();
        std::fs::remove_file(folder.path().join("kept")).unwrap();
        // This simulates a thread that began before the filter and drops its privileges late.
        drop_privileges(CapabilitySet::empty()).unwrap();
        assert!(std::panic::catch_unwind(|| panic!("on purpose")).is_err());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::task::spawn_blocking(|| ()).await }).unwrap();
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn child_that_does_what_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let older = std::sync::Arc::new(std::sync::Barrier::new(2));
        let waits = older.clone();
        let path = file.path().to_owned();
        // One thread is older than the filter, another one is younger.
        let thread = std::thread::spawn(move || {
            waits.wait();
            waits.wait();
            OpenOptions::new().append(true).open(path).map(drop).unwrap_err().kind()
        });
        older.wait();
        enforced(SyscallProfile::default());
        older.wait();
        assert_eq!(thread.join().unwrap(), ErrorKind::PermissionDenied);
        let written =
            std::thread::scope(|scope| scope.spawn(|| std::fs::write(file.path(), "x")).join().unwrap());
        for (what, refused) in [
            ("to write", written),
            ("to make a file", std::fs::File::create_new(file.path().with_extension("new")).map(drop)),
            ("to remove a file", std::fs::remove_file(file.path())),
            ("a Unix socket", UnixStream::connect("/no/such/socket").map(drop)),
            (
                "another protocol",
                socket(AddressFamily::PACKET, SocketType::RAW, None).map(drop).map_err(Into::into),
            ),
            ("packets", socket(AddressFamily::INET, SocketType::RAW, None).map(drop).map_err(Into::into)),
            ("to be dumped", set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(Into::into)),
        ] {
            assert_eq!(refused.map_err(|error| error.raw_os_error()), Err(Some(nix::libc::EPERM)), "{what}");
        }
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(
            Seccomp::Enforce.install(SyscallProfile::default()).is_err(),
            "a second filter must be refused"
        );
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn child_that_starts_a_program() {
        enforced(SyscallProfile::default());
        let _ = Command::new("/bin/true").status();
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn child_that_becomes_a_program() {
        enforced(SyscallProfile::default());
        let _ = Command::new("/bin/true").exec();
    }

    #[test]
    #[ignore = "run in a process of its own"]
    fn child_that_takes_another_root() {
        enforced(SyscallProfile::default());
        let _ = rustix::process::chroot("/");
    }
}
