//! Refusals to attach, and their error texts.

use std::path::Path;
use std::process::Command;

use rustix::thread::CapabilitySet;
use seawall_redirect::{Error, HostNetworkPods, Pins, PodsParentCgroup, attach};

use crate::support::*;

/// Attaches a program that does nothing to a group for a hook, as long as its pipe is open.
///
/// It uses the old way of attaching with the given flags, which neither our library nor its own library offers any more.
const OTHERS_PROGRAM: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attributes):
    attributes = ctypes.create_string_buffer(attributes.ljust(144, b"\0"))
    got = libc.syscall(321, command, attributes, 144)
    if got < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    return got
group, flags = sys.argv[1], int(sys.argv[2])
# r0 = 1; exit
code = ctypes.create_string_buffer(bytes.fromhex("b700000001000000" "9500000000000000"))
license = ctypes.create_string_buffer(b"GPL")
SOCK_ADDR, CONNECT4, LOAD, ATTACH = 18, 10, 5, 8
load = struct.pack("IIQQIIQII16sII", SOCK_ADDR, 2, ctypes.addressof(code), ctypes.addressof(license), 0, 0, 0, 0, 0, b"others", 0, CONNECT4)
program = bpf(LOAD, load)
bpf(ATTACH, struct.pack("IIII", os.open(group, os.O_RDONLY), program, CONNECT4, flags))
print("attached")
"#;

const ALLOW_OVERRIDE: u32 = 1;
const ALLOW_MULTI: u32 = 2;

fn attach_others(group: &Path, flags: u32) {
    let mut python = Command::new("/usr/bin/python3");
    let said = python.args(["-c", OTHERS_PROGRAM]).arg(group).arg(flags.to_string()).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_program_around_the_pods_that_ours_would_switch_off_or_that_keeps_ours_out_is_named() {
    for flags in [0, ALLOW_OVERRIDE] {
        let lab = Lab::new();
        attach_others(&lab.base, flags);
        let refused = attach(&lab.pins, &lab.site, HostNetworkPods::Seawall).unwrap_err();
        let Error::ConflictingProgram { group, hook } = &refused else { panic!("{refused}") };
        assert_eq!((group, hook.name()), (&lab.base, "connect4"));
        // Nothing was attached, not for another hook either, and nothing is left of the attempt.
        assert!(!lab.pins.directory().parent().unwrap().exists(), "{:?}", lab.pin_names());
        assert_eq!(lab.pod(ONE).fetch_from_server("169.254.169.254"), "real");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn programs_that_permit_others_are_no_obstacle() {
    let lab = Lab::new();
    attach_others(&lab.base, ALLOW_MULTI);
    attach_others(lab.site.kubepods_directory(), ALLOW_MULTI);
    lab.attach();
    assert_eq!(lab.pod(ONE).fetch_from_server("169.254.169.254"), "EPERM");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_program_at_the_pods_own_group_that_permits_no_other_is_named() {
    let lab = Lab::new();
    attach_others(lab.site.kubepods_directory(), 0);
    let refused = attach(&lab.pins, &lab.site, HostNetworkPods::Seawall).unwrap_err();
    assert!(
        matches!(&refused, Error::ConflictingProgram { group, .. } if group == lab.site.kubepods_directory()),
        "{refused}"
    );
    assert!(!lab.pins.directory().parent().unwrap().exists(), "{:?}", lab.pin_names());
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn what_a_process_lacks_is_named() {
    let lab = Lab::new();
    for (dropped, named) in [
        (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::BPF | CapabilitySet::NET_ADMIN, "CAP_BPF and CAP_NET_ADMIN"),
    ] {
        let refused = without(dropped, || attach(&lab.pins, &lab.site, HostNetworkPods::Seawall))
            .unwrap_err()
            .to_string();
        assert!(refused.contains(&format!("lacks {named};")), "{refused}");
    }
    // The two are all it takes.
    let two = CapabilitySet::BPF | CapabilitySet::NET_ADMIN;
    without(CapabilitySet::all().difference(two), || attach(&lab.pins, &lab.site, HostNetworkPods::Seawall))
        .unwrap();
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_place_without_pods_or_with_a_part_of_the_tree_is_refused_by_name() {
    let lab = Lab::new();
    let refused = PodsParentCgroup::find(lab.base.parent().unwrap(), None).unwrap_err();
    assert!(matches!(refused, Error::NotTreeRoot { inode: 2.., .. }), "{refused}");
    let tree = lab.base.parent().unwrap().parent().unwrap();
    let refused = PodsParentCgroup::find(tree, Some(Path::new("seawall-test-nowhere/kubepods"))).unwrap_err();
    assert!(refused.to_string().contains("tried seawall-test-nowhere/kubepods"), "{refused}");
    let refused = Pins::at(&lab.base).unwrap_err();
    assert!(matches!(refused, Error::NoBpffs { .. }), "{refused}");
}

#[test]
#[ignore = "SKIPPED: needs root and bpffs: run scripts/redirect-test"]
fn a_pinned_map_of_another_layout_is_refused() {
    let lab = Lab::attached();
    let directory = lab.pins.directory();
    std::fs::remove_file(directory.join("target")).unwrap();
    std::fs::rename(directory.join("counts"), directory.join("target")).unwrap();
    let refused = attach(&lab.pins, &lab.site, HostNetworkPods::Seawall).unwrap_err();
    assert!(matches!(refused, Error::MapLayoutMismatch { map: "target", .. }), "{refused}");
}
