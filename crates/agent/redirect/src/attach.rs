//! Attaches the eBPF programs, or replaces the programs of another version without a gap in the capture.
//!
//! [`attach()`] creates the new links before it removes the old links. Between these steps, the kernel runs the programs of both
//! versions. The program that runs second sees a `connect` that already goes to the agent, and does not change it. The pins keep
//! the maps, and with them the records of connections that wait for accept. A second call changes nothing.

use std::fs::File;
use std::io;
use std::path::Path;

use aya::programs::links::FdLink;
use aya::programs::{CgroupAttachMode, CgroupSockAddr, Program, ProgramError, SockOps};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::attach_points::Hook;
use crate::cgroup_tree::PodsParentCgroup;
use crate::error::Error;
use crate::link_info::LinkInfo;
use crate::node_network::{self, HostNetworkPods, LEARN_PROGRAM};
use crate::pins::{LOCK_TIMEOUT, LinkPin, MAP_LAYOUTS, Pins, unpin};
use crate::prerequisites;

/// The eBPF object, built from `ebpf/capture.bpf.c` by `scripts/ebpf`.
static OBJECT: &[u8] = include_bytes_aligned!("../ebpf/capture.bpf.o");

/// The result of [`attach()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachOutcome {
    /// This version's programs were already attached to every hook.
    AlreadyAttached,
    /// This version's programs were attached. No other version's programs were attached before.
    Attached,
    /// This version's programs replaced another version's programs, or moved to another cgroup.
    Replaced,
}

/// Attaches this version's programs to the pods' parent cgroup and removes other versions' programs.
///
/// Until an agent has written its address ([`crate::TargetMap`]), the programs refuse each `connect` of a pod to a metadata address.
/// With [`HostNetworkPods::Node`] they let the pods on the node's network through to the real server, always.
///
/// First the function tests for conflicting programs. For a moment it attaches a program that does nothing to each ancestor of the
/// pods' parent cgroup. The kernel permits this if the ancestor has no program, or only programs that permit others. (The library
/// aya has no call that reads the flags of attached programs.) Without this test, the redirect could silently switch off another
/// program for pods, if that program is attached to an ancestor with `BPF_F_ALLOW_OVERRIDE`.
///
/// # Errors
/// The machine, the process or another program does not permit the attachment. The redirect is then as it was before the call.
pub fn attach(
    pins: &Pins,
    site: &PodsParentCgroup,
    host_network_pods: HostNetworkPods,
) -> Result<AttachOutcome, Error> {
    prerequisites::check()?;
    let _turn = pins.lock(LOCK_TIMEOUT)?;
    pins.create_directory()?;
    pins.check_maps()?;
    let is_first = pins.link_count()? == 0;
    let wanted =
        Hook::ALL.map(|hook| LinkPin { hook, version: programs_version(), cgroup_id: site.kubepods_id() });
    let missing: Vec<_> = wanted.iter().filter(|pin| !is_there(pins, pin)).collect();
    attach_missing(pins, site, host_network_pods, &missing)
        .and_then(|()| if is_first { pins.restart_time() } else { pins.inherit_time() })
        .or_else(|error| pins.remove_unused_maps().and(Err(error)))?;
    let replaced = remove_others(pins, &wanted)?;
    Ok(match (missing.is_empty(), replaced) {
        (_, true) => AttachOutcome::Replaced,
        (true, false) => AttachOutcome::AlreadyAttached,
        (false, false) => AttachOutcome::Attached,
    })
}

/// Returns the version of this build's programs: the 64-bit FNV-1a hash of the object file. The hash distinguishes versions, but
/// does not prove the origin of a program.
pub(crate) fn programs_version() -> String {
    let hash = OBJECT.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// True if the link at this pin exists and is attached to the pin's cgroup. A link that was detached by force has no cgroup.
fn is_there(pins: &Pins, pin: &LinkPin) -> bool {
    LinkInfo::at(&pins.path(&pin.name())).is_ok_and(|attached| attached.cgroup_id == pin.cgroup_id)
}

fn attach_missing(
    pins: &Pins,
    site: &PodsParentCgroup,
    host_network_pods: HostNetworkPods,
    missing: &[&LinkPin],
) -> Result<(), Error> {
    let mut programs = load(pins)?;
    // Before the first program refuses a connection, the programs must know the node's network.
    let groups: Vec<_> = std::iter::once(site.kubepods_directory()).chain(site.ancestors()).collect();
    node_network::apply(host_network_pods, &mut programs, pins, &groups, |programs, path, connect| {
        let group = File::open(path).map_err(Error::for_system_call("open", path))?;
        let _link = LoadedProgram::of(programs, Hook::Connect4, LEARN_PROGRAM)?.attach(&group, path)?;
        connect()
    })?;
    if missing.is_empty() {
        return Ok(());
    }
    ask_around(&mut programs, site)?;
    // All programs are loaded before the first one refuses a connection, so a kernel that lacks a feature cuts off no pod.
    for pin in missing {
        LoadedProgram::of(&mut programs, pin.hook, pin.hook.program_name())?;
    }
    let group = site.open_kubepods()?;
    let mut made = Vec::new();
    for pin in missing {
        let path = pins.path(&pin.name());
        if let Err(error) = attach_one(&mut programs, pin, &group, site, &path) {
            made.iter().try_for_each(|path: &std::path::PathBuf| unpin(path))?;
            return Err(error);
        }
        made.push(path);
    }
    Ok(())
}

/// Loads the programs with the pinned maps. If no maps are pinned, creates and pins new maps.
fn load(pins: &Pins) -> Result<Ebpf, Error> {
    let mut loader = EbpfLoader::new();
    for (map, ..) in MAP_LAYOUTS {
        loader.map_pin_path(map, pins.path(map));
    }
    loader.load(OBJECT).map_err(|error| Error::LoadObjectFile(Box::new(error)))
}

fn ask_around(programs: &mut Ebpf, site: &PodsParentCgroup) -> Result<(), Error> {
    for hook in Hook::ALL {
        let loaded = LoadedProgram::of(programs, hook, hook.probe_program_name())?;
        loaded.ask(site.ancestors())?;
    }
    Ok(())
}

fn attach_one(
    programs: &mut Ebpf,
    pin: &LinkPin,
    group: &File,
    site: &PodsParentCgroup,
    path: &Path,
) -> Result<(), Error> {
    let mut loaded = LoadedProgram::of(programs, pin.hook, pin.hook.program_name())?;
    let link = loaded.attach(group, site.kubepods_directory())?;
    // An old pin can have this name although its link is not attached to the cgroup. That pin is useless.
    unpin(path)?;
    let pinned = link.pin(path).map_err(|error| match error {
        aya::pin::PinError::SyscallError(error) => Error::for_system_call("pin", path)(error.io_error),
        other => Error::for_system_call("pin", path)(io::Error::other(other)),
    })?;
    // Closes this process's own handle of the link. The pin is a separate handle.
    drop(pinned);
    Ok(())
}

/// Unpins all links that are not in `wanted`, and all pins of newer map layouts. Returns true if it found any.
fn remove_others(pins: &Pins, wanted: &[LinkPin]) -> Result<bool, Error> {
    let mut found = false;
    for hook in Hook::ALL {
        for pin in pins.links_of_hook(hook)?.into_iter().filter(|pin| !wanted.contains(pin)) {
            unpin(&pins.path(&pin.name()))?;
            found = true;
        }
    }
    // An older layout stays until this version's agent is the target (`TargetMap::remove_older_layouts`). Its programs run first, because
    // they were attached first, and serve pods with the older agent until then. Both versions' programs refuse what they cannot decide.
    Ok(pins.remove_newer_layouts()? || found)
}

/// A program that the kernel has loaded.
struct LoadedProgram<'a> {
    hook: Hook,
    program: &'a mut Program,
}

impl<'a> LoadedProgram<'a> {
    fn of(programs: &'a mut Ebpf, hook: Hook, name: &str) -> Result<Self, Error> {
        let refused = |source| Error::ProgramRejected { hook, source: Box::new(source) };
        let program =
            programs.program_mut(name).ok_or_else(|| refused(ProgramError::UnexpectedProgramType))?;
        let taken = match program {
            Program::SockOps(program) => program.load(),
            Program::CgroupSockAddr(program) => program.load(),
            _ => Err(ProgramError::UnexpectedProgramType),
        };
        match taken {
            // The learning program is attached to several cgroups in turn.
            Err(ProgramError::AlreadyLoaded) | Ok(()) => {}
            Err(error) => return Err(refused(error)),
        }
        Ok(Self { hook, program })
    }

    /// Attaches the program to a cgroup and returns the link. Links always permit other programs in the cgroup.
    ///
    /// `Single` passes no flags, because the kernel rejects all flags in this call (Linux af6eea57437a, `cgroup_bpf_link_attach`).
    fn link(&mut self, group: &File) -> Result<FdLink, ProgramError> {
        let mode = CgroupAttachMode::Single;
        match self.program {
            Program::SockOps(program) => attach_sockops(program, group, mode),
            Program::CgroupSockAddr(program) => attach_connect(program, group, mode),
            _ => Err(ProgramError::UnexpectedProgramType),
        }
    }

    /// Attaches the program to a cgroup. A program in that cgroup or in an ancestor can forbid the attachment.
    fn attach(&mut self, group: &File, path: &Path) -> Result<FdLink, Error> {
        self.link(group).map_err(|source| match &source {
            ProgramError::SyscallError(error) if error.io_error.kind() == io::ErrorKind::PermissionDenied => {
                Error::ConflictingProgram { group: path.to_owned(), hook: self.hook }
            }
            _ => Error::ProgramRejected { hook: self.hook, source: Box::new(source) },
        })
    }

    /// Checks that the program can be attached to each of these cgroups, and detaches it again.
    fn ask<'p>(mut self, groups: impl Iterator<Item = &'p Path>) -> Result<(), Error> {
        for path in groups {
            let group = File::open(path).map_err(Error::for_system_call("open", path))?;
            drop(self.attach(&group, path)?);
        }
        Ok(())
    }
}

fn attach_sockops(
    program: &mut SockOps,
    group: &File,
    mode: CgroupAttachMode,
) -> Result<FdLink, ProgramError> {
    let link = program.attach(group, mode)?;
    program.take_link(link)?.try_into().map_err(not_a_link)
}

fn attach_connect(
    program: &mut CgroupSockAddr,
    group: &File,
    mode: CgroupAttachMode,
) -> Result<FdLink, ProgramError> {
    let link = program.attach(group, mode)?;
    program.take_link(link)?.try_into().map_err(not_a_link)
}

/// Converts the library's error for an attachment without a link.
///
/// Before Linux 5.7 the library attaches without links; [`prerequisites`] refuses such kernels.
fn not_a_link(error: aya::programs::links::LinkError) -> ProgramError {
    ProgramError::IOError(io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_every_program_and_map_by_name() {
        let text = String::from_utf8_lossy(OBJECT);
        let programs = Hook::ALL.iter().flat_map(|hook| [hook.program_name(), hook.probe_program_name()]);
        for name in programs.chain([LEARN_PROGRAM]).chain(MAP_LAYOUTS.iter().map(|(name, ..)| *name)) {
            assert!(text.contains(name), "{name}");
        }
    }

    #[test]
    fn a_version_is_a_part_of_a_name() {
        let pin = LinkPin { hook: Hook::Sockops, version: programs_version(), cgroup_id: 1 };
        assert_eq!(LinkPin::parse(&pin.name()), Some(pin));
    }
}
