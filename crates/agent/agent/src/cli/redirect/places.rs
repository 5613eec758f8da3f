//! Where the control groups and the BPF file system of this node are, as the command line says.

use std::path::PathBuf;

use seawall_redirect::{self as redirect, Pins, Site};

use crate::cli::flags::Flags;

/// Where things are on this node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub(super) bpffs: PathBuf,
    pub(super) cgroup: PathBuf,
    pub(super) kubepods: Option<PathBuf>,
}

/// The flags that name [`Places`].
pub(super) const PLACES: [&str; 3] = ["bpffs=", "cgroup=", "kubepods="];

impl Places {
    pub(super) fn of(flags: &Flags) -> Self {
        let kubepods = flags.path("kubepods");
        Self {
            bpffs: flags.path("bpffs").unwrap_or_else(|| "/sys/fs/bpf".into()),
            cgroup: flags.path("cgroup").unwrap_or_else(|| "/sys/fs/cgroup".into()),
            kubepods: kubepods.map(|path| path.strip_prefix("/").map(Into::into).unwrap_or(path)),
        }
    }

    pub(super) fn pins(&self) -> Result<Pins, redirect::Error> {
        Pins::at(&self.bpffs)
    }

    pub(super) fn site(&self) -> Result<Site, redirect::Error> {
        Site::find(&self.cgroup, self.kubepods.as_deref())
    }
}
