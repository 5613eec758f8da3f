//! Maps cgroups to pods and pods to cgroups. The module lists only the directories that directly contain the pods' cgroups.
//!
//! Therefore a pod cannot imitate another pod's cgroup with a nested cgroup. A directory `pod<UID of another pod>` inside a
//! container's cgroup is never listed, so it belongs to no pod.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use seawall_core::PodUid;

use crate::cgroup_tree::PodsParentCgroup;
use crate::error::Error;

/// The pods that have cgroups at one moment. The kubelet limits the number of pods (110 by default), and pods cannot add entries.
#[derive(Clone, Debug, Default)]
pub struct PodCgroups {
    by_group: HashMap<u64, PodUid>,
    by_uid: HashMap<PodUid, u64>,
}

impl PodCgroups {
    /// Lists the pods' cgroups. Takes about 60 µs for 110 pods.
    ///
    /// # Errors
    /// The pods' parent cgroup cannot be listed. A missing cgroup of a QoS class is not an error.
    pub fn list(site: &PodsParentCgroup) -> Result<Self, Error> {
        let mut pods = Self::default();
        for (directory, prefix) in site.pod_cgroup_parents() {
            let listed = pods.add(&directory, &prefix, site.is_systemd());
            match listed {
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && directory != site.kubepods_directory() => {}
                listed => listed.map_err(Error::for_system_call("list", directory))?,
            }
        }
        Ok(pods)
    }

    fn add(&mut self, directory: &Path, prefix: &str, systemds: bool) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(uid) = name.to_str().and_then(|name| uid(name, prefix, systemds)) else { continue };
            self.by_group.insert(entry.ino(), uid.clone());
            self.by_uid.insert(uid, entry.ino());
        }
        Ok(())
    }

    /// Returns the pod of a cgroup.
    #[must_use]
    pub fn pod_of_cgroup(&self, group: u64) -> Option<&PodUid> {
        self.by_group.get(&group)
    }

    /// Returns the cgroup of a pod.
    #[must_use]
    pub fn cgroup_of_pod(&self, pod: &PodUid) -> Option<u64> {
        self.by_uid.get(pod).copied()
    }

    /// Returns the number of pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_group.len()
    }

    /// True if there are no pods.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_group.is_empty()
    }
}

/// Returns the directory and the id of a pod's own cgroup; `None` for a pod without a cgroup.
pub(crate) fn find_pod_cgroup(
    site: &PodsParentCgroup,
    pod: &PodUid,
) -> Result<Option<(PathBuf, u64)>, Error> {
    for (directory, prefix) in site.pod_cgroup_parents() {
        let directory = directory.join(name(pod, &prefix, site.is_systemd()));
        match directory.metadata() {
            Ok(found) => return Ok(Some((directory, found.ino()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::for_system_call("inspect", directory)(error)),
        }
    }
    Ok(None)
}

fn name(pod: &PodUid, prefix: &str, systemds: bool) -> String {
    if systemds { format!("{prefix}{}.slice", pod.0.replace('-', "_")) } else { format!("{prefix}{}", pod.0) }
}

/// Returns the UID in a cgroup's name. With systemd, kubelets write `_` instead of `-`, because systemd separates the levels of
/// slices with `-`.
fn uid(name: &str, prefix: &str, systemds: bool) -> Option<PodUid> {
    let uid = name.strip_prefix(prefix)?;
    let uid = if systemds { uid.strip_suffix(".slice")?.replace('_', "-") } else { uid.to_owned() };
    (!uid.is_empty()).then(|| PodUid(uid.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

    fn read(name: &str, prefix: &str, systemds: bool) -> Option<String> {
        uid(name, prefix, systemds).map(|uid| uid.0.to_string())
    }

    #[test]
    fn a_uid_is_read_from_both_drivers_names() {
        assert_eq!(read(&format!("pod{UID}"), "pod", false).as_deref(), Some(UID));
        let name = format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
        assert_eq!(read(&name, "kubepods-burstable-pod", true).as_deref(), Some(UID));
    }

    #[test]
    fn a_pods_name_is_read_as_it_is_written() {
        let pod = PodUid(UID.into());
        for (prefix, systemds) in [("pod", false), ("kubepods-burstable-pod", true)] {
            assert_eq!(read(&name(&pod, prefix, systemds), prefix, systemds).as_deref(), Some(UID));
        }
    }

    #[test]
    fn other_groups_are_no_pods() {
        for (name, prefix, systemds) in [
            ("burstable", "pod", false),
            ("pod", "pod", false),
            ("kubepods-burstable.slice", "kubepods-pod", true),
            ("kubepods-podx.scope", "kubepods-pod", true),
            ("kubepods-burstable-podx.slice", "kubepods-pod", true),
        ] {
            assert_eq!(read(name, prefix, systemds), None, "{name}");
        }
    }
}
