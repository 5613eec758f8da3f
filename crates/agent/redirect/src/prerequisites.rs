//! Checks the machine and the process before any change, so that operators do not have to guess the cause of an EPERM.

use std::io;

use aya::util::KernelVersion;
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::Error;

/// The oldest supported kernel.
///
/// Since this version, the kernel reports the correct cgroup of a socket even if cgroup v1's `net_cls` and `net_prio` are in use
/// (8520e224f547). The other features that the programs need are older: links to cgroups came with 5.7, storage on sockets with
/// 5.8.
const MIN_KERNEL_VERSION: KernelVersion = KernelVersion::new(5, 15, 0);

/// The version since which a process needs no capability to use an open map (c8644cd0efe7 is in 5.19; 6.0 is the safe choice).
const FREE_MAPS: KernelVersion = KernelVersion::new(6, 0, 0);

/// True if this kernel requires CAP_BPF for each use of a map, or if its version is unknown. Newer kernels require it at most to
/// open a map.
#[must_use]
pub fn every_map_use_needs_capability() -> bool {
    !KernelVersion::current().is_ok_and(|have| have >= FREE_MAPS)
}

pub(crate) fn check() -> Result<(), Error> {
    check_kernel_version()?;
    let held = capabilities(None).map_err(io::Error::from);
    let held = held.map_err(Error::for_system_call("read the capabilities of", "/proc/self"))?;
    match missing(held.effective) {
        missing if missing.is_empty() => Ok(()),
        missing => Err(Error::MissingCapability { missing: missing.join(" and ") }),
    }
}

/// Checks that the kernel's version is at least [`MIN_KERNEL_VERSION`].
pub(crate) fn check_kernel_version() -> Result<(), Error> {
    let have = KernelVersion::current()
        .map_err(|error| Error::KernelTooOld { have: format!("unknown ({error})") })?;
    if have < MIN_KERNEL_VERSION { Err(Error::KernelTooOld { have: readable(have) }) } else { Ok(()) }
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
        assert_eq!(readable(MIN_KERNEL_VERSION), "5.15");
        assert_eq!(readable(KernelVersion::new(4, 19, 300)), "4.19");
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing(CapabilitySet::empty()), ["CAP_BPF", "CAP_NET_ADMIN"]);
        assert_eq!(missing(CapabilitySet::BPF), ["CAP_NET_ADMIN"]);
        assert!(missing(CapabilitySet::BPF | CapabilitySet::NET_ADMIN).is_empty());
        assert!(missing(CapabilitySet::SYS_ADMIN).is_empty());
    }
}
