//! A network namespace for the length of one test: loopback and nothing else, so that no packet can leave.
//!
//! A test that needs one starts its own program again, inside. Nothing of the machine's network is touched.

use std::process::{Command, Stdio};

/// Set inside.
const INSIDE: &str = "SEAWALL_TEST_NAMESPACE";

/// Where the test finds itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// Inside a namespace of its own, where 169.254.169.254 is an address of loopback and connections to it come from
    /// 127.0.0.1, as those to 127.0.0.1 do.
    Sealed,
    /// The test has run, inside, and passed.
    Passed,
    /// This machine lets nobody make a namespace (a container without CAP_SYS_ADMIN).
    Refused,
}

/// Runs the test of this full name inside a namespace, if it is not there already.
pub(crate) fn enter(test: &str) -> Ground {
    if std::env::var_os(INSIDE).is_some() {
        prepare();
        return Ground::Sealed;
    }
    // As root at once; as anybody else through a user namespace.
    for kind in [&["--net"][..], &["--user", "--map-root-user", "--net"]] {
        let may =
            unshare(kind).arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        if may {
            return run_inside(kind, test);
        }
    }
    eprintln!("{test}: no network namespace can be made here (unshare --net is refused)");
    Ground::Refused
}

fn unshare(kind: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(kind).arg("--");
    command
}

fn run_inside(kind: &[&str], test: &str) -> Ground {
    let program = std::env::current_exe().unwrap();
    let inside =
        unshare(kind).arg(program).args([test, "--exact", "--nocapture"]).env(INSIDE, "1").output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&inside.stdout), String::from_utf8_lossy(&inside.stderr));
    assert!(
        inside.status.success() && said.contains("1 passed"),
        "inside its namespace:\n{said}\n{complained}"
    );
    Ground::Passed
}

fn prepare() {
    ip("link set lo up");
    ip("address add 169.254.169.254/32 dev lo");
    ip("route change local 169.254.169.254 dev lo table local src 127.0.0.1");
}

/// Runs `ip` with these words.
pub(crate) fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output();
    let done = done.unwrap_or_else(|error| panic!("ip: {error}; run: scripts/setup test-parts"));
    assert!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
}
