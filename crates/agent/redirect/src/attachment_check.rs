//! Checks that the pinned maps are still the maps that a process opened, and that each hook still has a pinned link. Otherwise an agent would
//! use maps that no eBPF program reads, or the kernel would no longer run the program of a hook. A link that was detached by force keeps its pin
//! (BPF_LINK_DETACH), so this check does not see it.
//!
//! The check compares the pins' inodes, which needs no capability. If they differ, the agent restarts instead of reopening the
//! pins. Reopening would need CAP_BPF on older kernels. It would also require the agent to detect the node's network namespace
//! again, which a serving agent must not do.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use crate::attach_points::Hook;
use crate::error::Error;
use crate::pins::{CONNECTIONS_MAP, Pins, TARGET_MAP};

/// The change of the pins since [`AttachmentSnapshot::from_pins`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentState {
    /// The same objects are pinned.
    Unchanged,
    /// The pins do not exist any more: a process removed them, or replaced them by another layout's pins. Or a hook has no link any more:
    /// without a link for `connect`, connects of pods go to the real server, and without one for `sockops`, the agent refuses them.
    Removed,
    /// Other objects are pinned: the redirect was removed and attached again.
    Replaced,
}

/// The inodes of the pinned maps and the hooks with links at one moment.
#[derive(Debug)]
pub struct AttachmentSnapshot {
    pins: Pins,
    maps: [Inode; 2],
    hooks: Vec<Hook>,
    attached_since: SystemTime,
}

/// A file system's device number and an inode number. The file system never reuses inode numbers (Linux, `bpf_get_inode` counts
/// up).
type Inode = (u64, u64);

impl AttachmentSnapshot {
    /// Records the current pins. Call this function before you open the pins, so that [`Self::check_pins`] detects a replacement between
    /// these two steps.
    ///
    /// # Errors
    /// The redirect is not attached, or the pins cannot be read.
    pub fn from_pins(pins: &Pins) -> Result<Self, Error> {
        let maps = inodes(pins)?.ok_or_else(|| Error::NotAttached { path: pins.path(TARGET_MAP) })?;
        let attached_since =
            pins.oldest_map()?.ok_or_else(|| Error::NotAttached { path: pins.path(TARGET_MAP) })?;
        Ok(Self { pins: pins.clone(), maps, hooks: pins.hooks_with_links()?, attached_since })
    }

    /// Returns the time since which the redirect is attached to this node without a gap, by the node's wall clock. An upgrade keeps it,
    /// also one that changes the layout of the pins.
    #[must_use]
    pub fn attached_since(&self) -> SystemTime {
        self.attached_since
    }

    /// Returns the current state of the pins. Costs six system calls.
    ///
    /// An upgrade attaches a new link before it removes the one before, so a hook has a link at every moment. The check sees no link that was
    /// lost before [`Self::from_pins`]: `attach` has attached all of them a moment earlier, and `redirect status` compares them with the site.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn check_pins(&self) -> Result<AttachmentState, Error> {
        Ok(match inodes(&self.pins)? {
            None => AttachmentState::Removed,
            Some(maps) if maps != self.maps => AttachmentState::Replaced,
            Some(_) => {
                let linked = self.pins.hooks_with_links()?;
                let is_complete = self.hooks.iter().all(|hook| linked.contains(hook));
                if is_complete { AttachmentState::Unchanged } else { AttachmentState::Removed }
            }
        })
    }
}

/// Returns the inodes of the pinned maps; `None` if a pin is missing. Pins are created and removed one by one, so for a moment one
/// of the two can be missing.
fn inodes(pins: &Pins) -> Result<Option<[Inode; 2]>, Error> {
    Ok(inode(pins, TARGET_MAP)?.zip(inode(pins, CONNECTIONS_MAP)?).map(<[Inode; 2]>::from))
}

fn inode(pins: &Pins, name: &str) -> Result<Option<Inode>, Error> {
    let path = pins.path(name);
    match path.metadata() {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::for_system_call("inspect", path)(error)),
    }
}
