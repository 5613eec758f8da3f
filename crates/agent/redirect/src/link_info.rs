//! Reads the kernel's information about links. A link attaches a program to a cgroup as long as a pin or a process holds the link.

use std::fs;
use std::path::Path;

use aya::programs::links::{FdLink, LinkError, PinnedLink};

/// The kernel's information about a pinned link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkInfo {
    /// The id of the link's cgroup; 0 if the cgroup is deleted.
    pub(crate) cgroup_id: u64,
    /// The id of the link's program.
    pub(crate) program_id: u32,
}

impl LinkInfo {
    /// Reads the information of the link at this pin.
    pub(crate) fn at(pin: &Path) -> Result<Self, LinkError> {
        let link: FdLink = PinnedLink::from_pin(pin)?.into();
        let info = link.info()?;
        Ok(Self { cgroup_id: group_of(info.id()).unwrap_or(0), program_id: info.program_id() })
    }
}

/// Returns the cgroup to which a link of this process is attached.
///
/// The library aya reads only a link's id and program. The kernel shows the cgroup in `/proc/self/fdinfo` (`bpf_link_show_fdinfo`).
/// The function searches this directory for the file with the link's id.
fn group_of(link: u32) -> Option<u64> {
    let open = fs::read_dir("/proc/self/fdinfo").ok()?;
    let mut texts = open.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    texts.find_map(|text| group_in(&text, link))
}

fn group_in(text: &str, link: u32) -> Option<u64> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    (field("link_id")?.parse() == Ok(link)).then(|| field("cgroup_id")?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "pos:\t0\nflags:\t02000000\nlink_type:\tcgroup\nlink_id:\t12\nprog_tag:\t90ab\nprog_id:\t34\ncgroup_id:\t177\nattach_type:\t10\n";

    #[test]
    fn a_links_group_is_in_what_the_kernel_says_of_its_file() {
        assert_eq!(group_in(TEXT, 12), Some(177));
        assert_eq!(group_in(TEXT, 13), None);
        assert_eq!(group_in("pos:\t0\nflags:\t02\n", 12), None);
    }
}
