//! Which pod a group is, both ways: by listing three directories.
//!
//! A pod's own groups below its own are never looked at: a directory called `pod<another's UID>` inside a container is nobody.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirEntryExt;
use std::path::Path;

use seawall_core::PodUid;

use crate::error::Error;
use crate::site::Site;

/// The pods that have groups at one moment. Their number is the kubelet's (110 by default), and no pod can make another.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    by_group: HashMap<u64, PodUid>,
    by_uid: HashMap<PodUid, u64>,
}

impl Pods {
    /// Lists them; about 60 µs for 110.
    ///
    /// # Errors
    /// The pods' group cannot be listed. Groups of classes of service may be absent.
    pub fn list(site: &Site) -> Result<Self, Error> {
        let mut pods = Self::default();
        for (directory, prefix) in site.classes() {
            let listed = pods.add(&directory, &prefix, site.is_systemds());
            match listed {
                Err(error) if error.kind() == io::ErrorKind::NotFound && directory != site.directory() => {}
                listed => listed.map_err(Error::system("list", directory))?,
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

    /// The pod that a group is.
    #[must_use]
    pub fn pod(&self, group: u64) -> Option<&PodUid> {
        self.by_group.get(&group)
    }

    /// The group that a pod has.
    #[must_use]
    pub fn group(&self, pod: &PodUid) -> Option<u64> {
        self.by_uid.get(pod).copied()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_group.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_group.is_empty()
    }
}

/// The UID in a group's name. systemd reads `-` as a step in its tree of slices, so kubelets write `_` there.
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
