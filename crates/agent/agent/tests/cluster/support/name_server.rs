//! The cluster's name server: a real CoreDNS on the node, with the lines of the page or without them.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use seawall_testkit::control_plane::ServiceProcess;
use seawall_testkit::installed_test_parts::cached_test_part_path;

use super::network::GATEWAY;
use super::wait_until_true;

const INSTALL: &str = include_str!("../../../../../../docs/install.md");

/// What a cluster knows beside. Every other name does not exist, as behind a resolver of the internet.
const ZONE: &str = ". 60 IN SOA ns. root. 1 7200 3600 86400 60\n. 60 IN NS ns.\nns. 60 IN A 10.90.0.10\n";

/// A running one; ends when dropped.
pub(crate) struct NameServer {
    _process: ServiceProcess,
}

impl NameServer {
    /// Starts CoreDNS with these lines in its server block, and waits until it listens at [`GATEWAY`].
    pub(crate) fn start(folder: &Path, lines: &str) -> Self {
        let at = |name: &str| folder.join(name).display().to_string();
        std::fs::write(at("zone"), ZONE).unwrap();
        let block = format!(".:53 {{\n    bind {GATEWAY}\n{lines}    file {} .\n}}\n", at("zone"));
        std::fs::write(at("Corefile"), block).unwrap();
        let mut command = Command::new(cached_test_part_path("bin/coredns"));
        command.args(["-conf", &at("Corefile")]);
        let process = ServiceProcess::start(&mut command, &folder.join("coredns.log"));
        wait_until_true("CoreDNS to listen", || TcpStream::connect((GATEWAY, 53)).is_ok());
        Self { _process: process }
    }
}

/// The lines for CoreDNS, word for word as docs/install.md has them.
pub(crate) fn lines_of_the_page() -> String {
    let mut blocks = INSTALL.split("```").filter(|block| block.trim_start().starts_with("hosts {"));
    let lines = blocks.next().expect("the lines for CoreDNS").trim();
    assert!(blocks.next().is_none(), "docs/install.md has the lines for CoreDNS twice");
    format!("  {lines}\n")
}
