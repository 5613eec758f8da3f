//! A node's network: a bridge, and for each pod a network namespace with the pod's address behind a veth pair.
//!
//! A pod's "container" is a process ([`Sandbox::command`]) or a thread ([`Sandbox::run`]) in there; the kernel knows no
//! difference. The link-local addresses are the node's own, on loopback, and the agent listens there: pods reach them by their
//! default route, with no rewriting in between.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where pods' libraries look for the metadata server.
pub(crate) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Where AWS's look for the endpoint of containers.
pub(crate) const CONTAINERS: Ipv4Addr = Ipv4Addr::new(169, 254, 170, 23);

/// The node, as pods see it.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);

/// The node's IPv6 address, once it has one ([`Network::have_ipv6`]).
pub(crate) const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x244, 0, 0, 0, 0, 0, 1);

const BRIDGE: &str = "seawall0";

/// The node's end of the pairs for connections to elsewhere. The VPC CNI has it at the first address of its range.
const EGRESS_GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 172, 1);

/// The node's side. Removed with everything on it when dropped.
pub(crate) struct Network {
    sandboxes: Vec<String>,
}

/// One pod's network.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
}

impl Network {
    pub(crate) fn new() -> Self {
        // An address of its own: otherwise it takes the lowest of its ports', and with each new pod the others would send to
        // an address that is no longer the gateway's.
        ip(
            &[],
            &format!(
                "link add {BRIDGE} address 02:00:00:00:00:01 type bridge\naddress add {GATEWAY}/16 dev {BRIDGE}\nlink set {BRIDGE} up\n"
            ),
        );
        Self { sandboxes: Vec::new() }
    }

    /// The node itself has the addresses at which credentials are asked for, until the last test ends.
    pub(crate) fn have_metadata_address(&self) {
        for address in [METADATA, CONTAINERS] {
            // May be there from a test before.
            let _ = change("add", address);
        }
    }

    /// Nobody has them.
    pub(crate) fn lack_metadata_address(&self) {
        for address in [METADATA, CONTAINERS] {
            let _ = change("delete", address);
        }
    }

    /// The node has an IPv6 address, too.
    pub(crate) fn have_ipv6(&self) {
        ip(&[], &format!("address replace {GATEWAY6}/64 dev {BRIDGE} nodad\n"));
    }

    /// Gives a pod an IPv6 address beside its IPv4 address. The node must have one.
    pub(crate) fn give_ipv6(&self, sandbox: &Sandbox) -> Ipv6Addr {
        let [_, _, _, number] = sandbox.address.octets();
        let address = Ipv6Addr::new(0xfd00, 0x244, 0, 0, 0, 0, 1, number.into());
        ip(
            &["-n", &sandbox.name],
            &format!("address add {address}/64 dev eth0 nodad\nroute add default via {GATEWAY6}\n"),
        );
        address
    }

    /// The node sends to the metadata address from its IPv4 address, as it does where a cloud answers there.
    pub(crate) fn have_route_to_metadata(&self) {
        ip(&[], &format!("route replace {METADATA}/32 dev {BRIDGE}\n"));
    }

    /// The network of one more pod on a node of an IPv6 cluster: two pairs of devices, not on the bridge. The pod has an IPv6 address, which
    /// this returns, and one of IPv4 for connections to elsewhere, with which the plugin tells nobody. The node must have an IPv6 address.
    pub(crate) fn egress_sandbox(&mut self) -> (Sandbox, Ipv6Addr) {
        let number = u8::try_from(self.sandboxes.len()).unwrap();
        let made = Self::make_egress_sandbox(number);
        self.sandboxes.push(made.0.name.clone());
        made
    }

    /// Ends the network of a pod, and makes that of the next one with the same addresses.
    pub(crate) fn renew_egress_sandbox(&mut self, sandbox: &Sandbox) -> (Sandbox, Ipv6Addr) {
        ip(&[], &format!("netns delete {}\n", sandbox.name));
        let number = self.sandboxes.iter().position(|name| *name == sandbox.name).unwrap();
        // The kernel ends a namespace later than this returns, and the pairs with it.
        let is_gone = || {
            let output = Command::new("ip").args(["-brief", "link"]).output().unwrap();
            let devices = String::from_utf8(output.stdout).unwrap();
            !["v", "e"].iter().any(|kind| devices.contains(&format!("\n{kind}{number}@")))
        };
        super::wait_until_true("the devices to be gone", is_gone);
        Self::make_egress_sandbox(number.try_into().unwrap())
    }

    fn make_egress_sandbox(number: u8) -> (Sandbox, Ipv6Addr) {
        let name = format!("pod{number}");
        let (own, egress) = (
            Ipv6Addr::new(0xfd00, 0x244, 0, 1, 0, 0, 0, u16::from(number) + 2),
            Ipv4Addr::new(169, 254, 172, number + 2),
        );
        ip(&[], &format!("netns add {name}\n"));
        // The VPC CNI makes both pairs in the pod and moves one end to the node, so devices have numbers that earlier pods' had.
        ip(
            &["-n", &name],
            &format!(
                "link add eth0 type veth peer name v{number}\nlink set v{number} netns {node}\n\
                 link add v4if0 type veth peer name e{number}\nlink set e{number} netns {node}\n",
                node = std::process::id()
            ),
        );
        ip(
            &[],
            &format!(
                "address add {GATEWAY6}/128 dev v{number} nodad\naddress add {EGRESS_GATEWAY}/32 dev e{number}\n\
                 link set v{number} up\nlink set e{number} up\n\
                 route add {own}/128 dev v{number}\nroute add {egress}/32 dev e{number}\n"
            ),
        );
        ip(
            &["-n", &name],
            &format!(
                "link set lo up\naddress add {own}/128 dev eth0 nodad\naddress add {egress}/32 dev v4if0\n\
                 link set eth0 up\nlink set v4if0 up\n\
                 route add {GATEWAY6} dev eth0\nroute add default via {GATEWAY6} dev eth0\n\
                 route add {EGRESS_GATEWAY} dev v4if0\nroute add default via {EGRESS_GATEWAY} dev v4if0\n"
            ),
        );
        (Sandbox { name, address: egress }, own)
    }

    /// The network of one more pod.
    pub(crate) fn sandbox(&mut self) -> Sandbox {
        let number = u8::try_from(self.sandboxes.len()).unwrap();
        let (name, address) = (format!("pod{number}"), Ipv4Addr::new(10, 244, 1, number + 1));
        ip(
            &[],
            &format!(
                "netns add {name}\nlink add v{number} type veth peer name eth0 netns {name}\n\
                 link set v{number} master {BRIDGE}\nlink set v{number} up\n"
            ),
        );
        ip(
            &["-n", &name],
            &format!(
                "link set lo up\naddress add {address}/16 dev eth0\nlink set eth0 up\n\
                 route add default via {GATEWAY}\n"
            ),
        );
        self.sandboxes.push(name.clone());
        Sandbox { name, address }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The other ends of the pairs go with the namespaces.
        for name in &self.sandboxes {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
        let _ = Command::new("ip").args(["link", "delete", BRIDGE]).output();
    }
}

impl Sandbox {
    /// A program that will run inside.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program);
        command
    }

    /// Runs something on a thread inside and waits for it.
    pub(crate) fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                what()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread inside, for good.
    pub(crate) fn enter(&self) {
        let namespace = File::open(self.path()).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }
}

/// Adds or deletes an address of the node.
fn change(what: &str, address: Ipv4Addr) -> std::io::Result<std::process::Output> {
    Command::new("ip").args(["address", what, &format!("{address}/32"), "dev", "lo"]).output()
}

fn ip(arguments: &[&str], batch: &str) {
    let mut command = Command::new("ip");
    command.args(arguments).args(["-batch", "-"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(batch.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "ip {arguments:?} {batch}: {}", String::from_utf8_lossy(&done.stderr));
}
