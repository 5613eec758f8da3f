//! Checks the machine and the process before any change, so that operators do not have to guess the cause of an EPERM.

use std::{fs, io};

use aya::util::KernelVersion;
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::Error;

/// The oldest kernel with links to cgroups (af6eea57437a).
///
/// The version tells little more than that: distributions add features of newer kernels to older ones. RHEL 9 has 5.14 by number. So
/// whether the kernel has what the programs need is tried by loading them, before anything is attached.
const MIN_KERNEL_VERSION: KernelVersion = KernelVersion::new(5, 7, 0);

/// The version since which the kernel reports the correct cgroup of a socket although cgroup v1's `net_cls` or `net_prio` is in use
/// (8520e224f547).
///
/// Before, once one of them has been used, each new socket counts as one of the root cgroup until the next boot, and the programs do not run
/// for it. The kernel does not report this, so the version decides, with what is mounted now. A controller that was used and unmounted
/// since boot is not noticed.
const SOCKET_CGROUP_FIX: KernelVersion = KernelVersion::new(5, 15, 0);

/// The controllers of cgroup v1 that share a field of the socket with the cgroup of version 2 (Linux, `struct sock_cgroup_data`).
const SOCKET_CONTROLLERS: [&str; 2] = ["net_cls", "net_prio"];

/// The version since which a process needs no capability to use an open map (c8644cd0efe7 is in 5.19; 6.0 is the safe choice).
const FREE_MAPS: KernelVersion = KernelVersion::new(6, 0, 0);

/// True if this kernel requires CAP_BPF for each use of a map, or if its version is unknown. Newer kernels require it at most to
/// open a map.
#[must_use]
pub fn every_map_use_needs_capability() -> bool {
    !KernelVersion::current().is_ok_and(|have| have >= FREE_MAPS)
}

pub(crate) fn check() -> Result<(), Error> {
    let kernel = KernelVersion::current()
        .map_err(|error| Error::KernelTooOld { have: format!("unknown ({error})") })?;
    check_kernel(kernel, fs::read_to_string("/proc/cgroups"))?;
    let held = capabilities(None).map_err(io::Error::from);
    let held = held.map_err(Error::for_system_call("read the capabilities of", "/proc/self"))?;
    match missing(held.effective) {
        missing if missing.is_empty() => Ok(()),
        missing => Err(Error::MissingCapability { missing: missing.join(" and ") }),
    }
}

/// Checks what loading the programs does not show. `controllers` is the content of `/proc/cgroups`. If it is unknown, a kernel before
/// [`SOCKET_CGROUP_FIX`] is refused.
fn check_kernel(kernel: KernelVersion, controllers: io::Result<String>) -> Result<(), Error> {
    if kernel < MIN_KERNEL_VERSION {
        return Err(Error::KernelTooOld { have: readable(kernel) });
    }
    let hides_pods = || controllers.map_or(true, |table| has_socket_controllers(&table));
    if kernel < SOCKET_CGROUP_FIX && hides_pods() {
        return Err(Error::CgroupV1HidesPods { have: readable(kernel) });
    }
    Ok(())
}

/// True if one of [`SOCKET_CONTROLLERS`] is in a hierarchy of cgroup v1. Each line of the table is `name hierarchy cgroups enabled`, and the
/// hierarchy of a controller that is unused or in cgroup v2 is 0 (cgroups(7)).
fn has_socket_controllers(table: &str) -> bool {
    table.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        words.next().is_some_and(|name| SOCKET_CONTROLLERS.contains(&name)) && words.next() != Some("0")
    })
}

/// Formats a version as `MAJOR.MINOR` (Linux, `KERNEL_VERSION`: one byte each after the major version).
fn readable(version: KernelVersion) -> String {
    let code = version.code();
    format!("{}.{}", code >> 16, (code >> 8) & 0xff)
}

/// Returns the missing capabilities.
///
/// A network program needs both CAP_BPF and CAP_NET_ADMIN; CAP_SYS_ADMIN can replace either (Linux, `bpf_prog_load` and
/// `cgroup_bpf_link_attach`).
fn missing(held: CapabilitySet) -> Vec<&'static str> {
    if held.contains(CapabilitySet::SYS_ADMIN) {
        return Vec::new();
    }
    let needed = [("CAP_BPF", CapabilitySet::BPF), ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN)];
    needed.into_iter().filter(|(_, one)| !held.contains(*one)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_told_as_people_call_it() {
        assert_eq!(readable(SOCKET_CGROUP_FIX), "5.15");
        assert_eq!(readable(KernelVersion::new(4, 19, 300)), "4.19");
    }

    #[test]
    fn a_kernel_before_5_15_will_do_unless_cgroup_v1_hides_pods_from_it() {
        const UNUSED: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t4\t43\t1\nnet_cls\t0\t1\t1\nnet_prio\t0\t1\t1\n";
        let rhel_9 = KernelVersion::new(5, 14, 0);
        let check = |kernel, table: &str| check_kernel(kernel, Ok(table.to_owned()));
        assert!(check(rhel_9, UNUSED).is_ok());
        for used in
            ["net_cls\t0", "net_prio\t0"].map(|unused| UNUSED.replace(unused, &unused.replace('0', "9")))
        {
            let refused = check(rhel_9, &used);
            assert!(
                matches!(&refused, Err(Error::CgroupV1HidesPods { have }) if have == "5.14"),
                "{refused:?}"
            );
            assert!(check(SOCKET_CGROUP_FIX, &used).is_ok());
        }
        assert!(check_kernel(rhel_9, Err(io::ErrorKind::NotFound.into())).is_err(), "unknown is not unused");
        assert!(matches!(check(KernelVersion::new(5, 4, 0), UNUSED), Err(Error::KernelTooOld { .. })));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing(CapabilitySet::empty()), ["CAP_BPF", "CAP_NET_ADMIN"]);
        assert_eq!(missing(CapabilitySet::BPF), ["CAP_NET_ADMIN"]);
        assert!(missing(CapabilitySet::BPF | CapabilitySet::NET_ADMIN).is_empty());
        assert!(missing(CapabilitySet::SYS_ADMIN).is_empty());
    }
}
