//! Whether what is attached is still what a process opened: asked now and then by an agent, which would else hold maps that no program reads.
//!
//! By the pins' inodes, because that takes no right. Opening what is pinned anew would take CAP_BPF on older kernels and, whatever
//! the kernel, a learning of the node's network that a serving agent has no business with: it is started again instead.

use std::io;
use std::os::unix::fs::MetadataExt;

use crate::error::Error;
use crate::pins::{CONNECTIONS, Pins, TARGET};

/// What is at the pins' places by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentState {
    /// What was there.
    Unchanged,
    /// Nothing: it was removed, or is another layout's now.
    Removed,
    /// Something else: it was removed and attached anew.
    Replaced,
}

/// What was pinned at one moment.
#[derive(Debug)]
pub struct RedirectAttachment {
    pins: Pins,
    maps: [Inode; 2],
}

/// A file system and a number that it gives once (Linux, `bpf_get_inode`: counted on).
type Inode = (u64, u64);

impl RedirectAttachment {
    /// What is pinned now. Call it before opening that: should it be replaced in between, this says so later.
    ///
    /// # Errors
    /// Nothing is attached, or it cannot be looked at.
    pub fn of(pins: &Pins) -> Result<Self, Error> {
        let maps = inodes(pins)?.ok_or_else(|| Error::NotAttached { path: pins.path(TARGET) })?;
        Ok(Self { pins: pins.clone(), maps })
    }

    /// What became of it. Two calls of the system.
    ///
    /// # Errors
    /// The pins cannot be looked at.
    pub fn state(&self) -> Result<AttachmentState, Error> {
        Ok(match inodes(&self.pins)? {
            None => AttachmentState::Removed,
            Some(maps) if maps == self.maps => AttachmentState::Unchanged,
            Some(_) => AttachmentState::Replaced,
        })
    }
}

/// Nothing where one is not there: pins go one by one, and come so.
fn inodes(pins: &Pins) -> Result<Option<[Inode; 2]>, Error> {
    Ok(inode(pins, TARGET)?.zip(inode(pins, CONNECTIONS)?).map(<[Inode; 2]>::from))
}

fn inode(pins: &Pins, name: &str) -> Result<Option<Inode>, Error> {
    let path = pins.path(name);
    match path.metadata() {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::system("look at", path)(error)),
    }
}
