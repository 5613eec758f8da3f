//! Finds the pods' parent cgroup in the cgroup tree.
//!
//! A cgroup's id is the inode number of its directory (kernfs: 64 bits, never reused while the machine runs). The eBPF programs
//! report such ids. The agent lists directories to find the cgroup of an id, which needs only read permission.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;

use crate::error::Error;
use crate::target::RedirectTarget;

/// The magic number of the cgroup v2 file system: `CGROUP2_SUPER_MAGIC` in Linux's `include/uapi/linux/magic.h`.
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// The usual paths of the pods' parent cgroup with the drivers cgroupfs and systemd. The last two are the paths in kind clusters,
/// because kind sets the kubelet's `--cgroup-root`.
const USUAL: [&str; 4] =
    ["kubepods", "kubepods.slice", "kubelet/kubepods", "kubelet.slice/kubelet-kubepods.slice"];

/// The directory in which systemd mounts the cgroup v2 tree on a node that also has cgroup v1.
const BESIDE_VERSION_ONE: &str = "unified";

/// The inode number of a hierarchy's root (Linux, kernfs). The root of a container's view has another inode number.
const ROOT_INODE: u64 = 1;

/// The location of the pods' parent cgroup.
#[derive(Clone, Debug)]
pub struct PodsParentCgroup {
    tree: PathBuf,
    kubepods: PathBuf,
    level: u32,
    id: u64,
    outermost: PathBuf,
}

impl PodsParentCgroup {
    /// Finds the pods' parent cgroup in a cgroup tree: at the path `kubepods` below the tree's root, or at the usual paths of kubelets.
    ///
    /// `mount` is the mount point of `/sys/fs/cgroup`. If cgroup v1 is mounted there, the function uses the v2 tree in `unified`.
    ///
    /// # Errors
    /// The tree does not exist, it is a container's view, or it has no parent cgroup of pods.
    pub fn find(mount: &Path, kubepods: Option<&Path>) -> Result<Self, Error> {
        let tree = version_two(mount)?;
        let inode = inode(&tree)?;
        if inode != ROOT_INODE {
            return Err(Error::NotTreeRoot { path: tree, inode });
        }
        let tried = kubepods.map_or_else(|| USUAL.map(PathBuf::from).to_vec(), |path| vec![path.to_owned()]);
        match tried.iter().find(|path| tree.join(path).is_dir()) {
            Some(found) => Self::at(tree, found),
            None => Err(Error::NoKubepods { tried: list(&tried), tree }),
        }
    }

    fn at(tree: PathBuf, below: &Path) -> Result<Self, Error> {
        let kubepods = tree.join(below);
        let level = u32::try_from(below.components().count()).unwrap_or(u32::MAX);
        Ok(Self { id: inode(&kubepods)?, level, outermost: tree.clone(), tree, kubepods })
    }

    /// Limits the test for conflicting programs (see [`crate::attach()`]) to this cgroup and the cgroups inside it.
    ///
    /// Use this limit if the process must not attach anything to the outer cgroups, not even a program that does nothing.
    #[must_use]
    pub fn limit_conflict_check_to(mut self, outermost: &Path) -> Self {
        self.outermost = outermost.to_owned();
        self
    }

    /// Returns the directory of the pods' parent cgroup.
    #[must_use]
    pub fn kubepods_directory(&self) -> &Path {
        &self.kubepods
    }

    /// Returns the id of the pods' parent cgroup.
    #[must_use]
    pub const fn kubepods_id(&self) -> u64 {
        self.id
    }

    /// Returns a cgroup's depth below the tree's root and its path from the root, as netfilter's `socket cgroupv2` needs them.
    pub(crate) fn cgroup_depth_and_path<'a>(&self, group: &'a Path) -> (u32, &'a Path) {
        let path = group.strip_prefix(&self.tree).unwrap_or(group);
        (u32::try_from(path.components().count()).unwrap_or(u32::MAX), path)
    }

    pub(crate) fn open_kubepods(&self) -> Result<File, Error> {
        File::open(&self.kubepods).map_err(Error::for_system_call("open", &self.kubepods))
    }

    /// Returns the ancestors of the pods' parent cgroup that may be tested for conflicting programs, innermost first.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = &Path> {
        self.kubepods.ancestors().skip(1).take_while(|group| group.starts_with(&self.outermost))
    }

    /// Returns the three directories that contain pods' cgroups, each with the prefix of a pod's cgroup name there.
    ///
    /// The first directory is the pods' parent cgroup itself. It contains the pods of the QoS class `guaranteed`, because this
    /// class has no cgroup of its own. The other two directories are the cgroups of the classes `burstable` and `besteffort`.
    pub(crate) fn pod_cgroup_parents(&self) -> [(PathBuf, String); 3] {
        let stem = self.kubepods.file_stem().unwrap_or_default().to_string_lossy();
        ["", "burstable", "besteffort"].map(|class| match (self.is_systemd(), class) {
            (false, class) => (self.kubepods.join(class), "pod".to_owned()),
            (true, "") => (self.kubepods.clone(), format!("{stem}-pod")),
            (true, class) => {
                (self.kubepods.join(format!("{stem}-{class}.slice")), format!("{stem}-{class}-pod"))
            }
        })
    }

    /// True if the kubelet uses the systemd driver, whose cgroup names end in `.slice`.
    pub(crate) fn is_systemd(&self) -> bool {
        self.kubepods.extension().is_some_and(|extension| extension == "slice")
    }

    /// True if this is a cgroup v2 tree on a node that also has cgroup v1.
    pub(crate) fn has_cgroup_v1(&self) -> bool {
        self.tree.ends_with(BESIDE_VERSION_ONE)
    }

    /// Returns `target` with the ids and the depth of this tree's cgroups. The other fields of `target` stay.
    pub(crate) fn fill_cgroup_ids(&self, target: RedirectTarget) -> RedirectTarget {
        let [_, burstable, besteffort] =
            self.pod_cgroup_parents().map(|(directory, _)| inode(&directory).unwrap_or(0));
        RedirectTarget {
            kubepods_depth: self.level,
            kubepods_cgroup_id: self.id,
            qos_cgroup_ids: [burstable, besteffort],
            ..target
        }
    }
}

fn version_two(mount: &Path) -> Result<PathBuf, Error> {
    let beside_version_one = mount.join(BESIDE_VERSION_ONE);
    let is_version_two = |path: &Path| magic(path).is_ok_and(|magic| magic == CGROUP2_MAGIC);
    if is_version_two(mount) {
        return Ok(mount.to_owned());
    }
    if is_version_two(&beside_version_one) {
        return Ok(beside_version_one);
    }
    Err(Error::NotCgroup2 { path: mount.to_owned() })
}

fn magic(path: &Path) -> io::Result<u64> {
    Ok(u64::try_from(statfs(path)?.f_type).unwrap_or_default() & 0xffff_ffff)
}

fn inode(path: &Path) -> Result<u64, Error> {
    Ok(path.metadata().map_err(Error::for_system_call("inspect", path))?.ino())
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(below: &str) -> PodsParentCgroup {
        let (tree, kubepods) = (PathBuf::from("/tree"), PathBuf::from("/tree").join(below));
        let level = u32::try_from(Path::new(below).components().count()).unwrap();
        PodsParentCgroup { outermost: tree.clone(), tree, kubepods, level, id: 5 }
    }

    #[test]
    fn classes_of_the_driver_cgroupfs() {
        let classes =
            site("kubepods").pod_cgroup_parents().map(|(path, prefix)| (path.display().to_string(), prefix));
        assert_eq!(classes[0], ("/tree/kubepods/".to_owned(), "pod".to_owned()));
        assert_eq!(classes[1], ("/tree/kubepods/burstable".to_owned(), "pod".to_owned()));
        assert_eq!(classes[2], ("/tree/kubepods/besteffort".to_owned(), "pod".to_owned()));
    }

    #[test]
    fn classes_of_the_driver_systemd_carry_their_parents_names() {
        let site = site("kubelet.slice/kubelet-kubepods.slice");
        let classes = site.pod_cgroup_parents().map(|(path, prefix)| (path.display().to_string(), prefix));
        let directory = "/tree/kubelet.slice/kubelet-kubepods.slice".to_owned();
        assert_eq!(classes[0], (directory.clone(), "kubelet-kubepods-pod".to_owned()));
        assert_eq!(
            classes[1],
            (
                format!("{directory}/kubelet-kubepods-burstable.slice"),
                "kubelet-kubepods-burstable-pod".to_owned()
            )
        );
    }

    #[test]
    fn the_groups_around_end_where_asking_ends() {
        let around = |site: &PodsParentCgroup| {
            site.ancestors().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(around(&site("a/b/kubepods")), ["/tree/a/b", "/tree/a", "/tree"]);
        assert_eq!(
            around(&site("a/b/kubepods").limit_conflict_check_to(Path::new("/tree/a"))),
            ["/tree/a/b", "/tree/a"]
        );
    }

    #[test]
    fn version_one_alone_is_refused_with_the_mode_that_works() {
        let empty = tempfile::tempdir().unwrap();
        let error = PodsParentCgroup::find(empty.path(), None).unwrap_err();
        assert!(matches!(error, Error::NotCgroup2 { .. }), "{error}");
    }
}
