//! Reads the paths of this node's cgroups and BPF file system from the command line.

use std::path::PathBuf;

use seawall_redirect::{self as redirect, Pins, PodsParentCgroup};

use crate::cli::flag_parser::Flags;

/// The paths on this node that `redirect` uses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodePaths {
    pub(super) bpffs: PathBuf,
    pub(super) cgroup_root: PathBuf,
    pub(super) kubepods_cgroup: Option<PathBuf>,
}

/// The flags that set [`NodePaths`].
pub(super) const PATH_FLAGS: [&str; 3] = ["bpffs=", "cgroup-root=", "kubepods-cgroup="];

impl NodePaths {
    pub(super) fn from_flags(flags: &Flags) -> Self {
        let kubepods_cgroup = flags.path("kubepods-cgroup");
        Self {
            bpffs: flags.path("bpffs").unwrap_or_else(|| "/sys/fs/bpf".into()),
            cgroup_root: flags.path("cgroup-root").unwrap_or_else(|| "/sys/fs/cgroup".into()),
            kubepods_cgroup: kubepods_cgroup
                .map(|path| path.strip_prefix("/").map(Into::into).unwrap_or(path)),
        }
    }

    pub(super) fn pins(&self) -> Result<Pins, redirect::Error> {
        Pins::at(&self.bpffs)
    }

    pub(super) fn find_pods_parent_cgroup(&self) -> Result<PodsParentCgroup, redirect::Error> {
        PodsParentCgroup::find(&self.cgroup_root, self.kubepods_cgroup.as_deref())
    }
}
