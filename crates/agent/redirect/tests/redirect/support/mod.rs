//! A node, two pods and the cloud's real server, each a network namespace without a route to the outside.
//!
//! The control groups are laid out as a kubelet lays them out, below a group that `scripts/redirect-test` makes and removes.

pub(crate) mod agent;
pub(crate) mod filler_records;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, capabilities, move_into_link_name_space, set_capabilities,
};
use seawall_redirect::{Error, HostNetworkPods, Pins, PodsParentCgroup, attach, detach};

pub(crate) use agent::Agent;
pub(crate) use seawall_testkit::pod_process::PodProcess;

pub(crate) const NODE: &str = "10.44.0.1";
pub(crate) const NODE6: &str = "fd44::1";
pub(crate) const ONE: &str = "11111111-aaaa-bbbb-cccc-000000000001";
pub(crate) const TWO: &str = "22222222-aaaa-bbbb-cccc-000000000002";
pub(crate) const HOST: &str = "33333333-aaaa-bbbb-cccc-000000000003";
pub(crate) const AGENT: &str = "99999999-aaaa-bbbb-cccc-000000000009";

/// The metadata addresses at which the real server answers, too.
const REAL: [&str; 5] =
    ["169.254.169.254", "169.254.170.23", "fd20:ce::254", "fd00:ec2::254", "fd00:ec2::23"];

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Lab {
    /// The group around all of this lab's groups.
    pub(crate) base: PathBuf,
    pub(crate) pins: Pins,
    pub(crate) site: PodsParentCgroup,
    place: PathBuf,
    home: PathBuf,
}

fn given(name: &str) -> PathBuf {
    std::env::var_os(name).unwrap_or_else(|| panic!("SKIPPED: run scripts/redirect-test")).into()
}

impl Lab {
    /// Creates a lab with the group names of the cgroupfs driver.
    pub(crate) fn new() -> Self {
        Self::named("kubepods", |uid, class| format!("{class}pod{uid}"))
    }

    /// Creates a lab with the group names of the systemd driver.
    pub(crate) fn systemds() -> Self {
        Self::named("kubepods.slice", |uid, class| {
            let uid = uid.replace('-', "_");
            match class.trim_end_matches('/') {
                "" => format!("kubepods-pod{uid}.slice"),
                class => format!("kubepods-{class}.slice/kubepods-{class}-pod{uid}.slice"),
            }
        })
    }

    fn named(kubepods: &str, name: impl Fn(&str, &str) -> String) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let all = given("SEAWALL_REDIRECT_GROUPS");
        let base = all.join(number.to_string());
        for (uid, class) in [(ONE, "burstable/"), (TWO, ""), (HOST, "burstable/"), (AGENT, "besteffort/")] {
            fs::create_dir_all(base.join(kubepods).join(name(uid, class)).join("c")).unwrap();
        }
        fs::create_dir_all(base.join("outside")).unwrap();
        let place = given("SEAWALL_REDIRECT_BPFFS").join(format!("lab{number}"));
        fs::create_dir(&place).unwrap();
        networks();
        real_server();
        let tree = all.parent().unwrap();
        let below = base.join(kubepods).strip_prefix(tree).unwrap().to_owned();
        // The machine's own groups are nobody's to touch in a test.
        let site = PodsParentCgroup::find(tree, Some(&below)).unwrap().limit_conflict_check_to(&base);
        Self { pins: Pins::at(&place).unwrap(), site, place, home: all.join("home"), base }
    }

    pub(crate) fn attached() -> Self {
        let lab = Self::new();
        lab.attach();
        lab
    }

    pub(crate) fn attach(&self) -> attach::AttachOutcome {
        attach(&self.pins, &self.site, HostNetworkPods::Seawall).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Attaches from the agent's pod on the node's network, whose other pods then keep the real server.
    pub(crate) fn attach_for_pods_with_networks(&self, node: &str) -> Result<attach::AttachOutcome, Error> {
        self.join_agents_pod();
        within("node", || attach(&self.pins, &self.site, HostNetworkPods::Node(address(node))))
    }

    /// The directory of a pod's group.
    pub(crate) fn group(&self, uid: &str) -> PathBuf {
        let groups = walk(self.site.kubepods_directory());
        let names = [format!("pod{uid}"), format!("pod{}.slice", uid.replace('-', "_"))];
        let is_it = |path: &PathBuf| names.iter().any(|name| path.display().to_string().ends_with(name));
        groups.into_iter().find(is_it).unwrap()
    }

    pub(crate) fn id(&self, uid: &str) -> u64 {
        fs::metadata(self.group(uid)).unwrap().ino()
    }

    /// Starts a process in a container of a pod, in the pod's network.
    pub(crate) fn pod(&self, uid: &str) -> PodProcess {
        let network = match uid {
            ONE => "pod1",
            TWO => "pod2",
            _ => "node",
        };
        PodProcess::start(Some(network), &self.group(uid).join("c"))
    }

    /// Starts a process of the node itself.
    pub(crate) fn outside(&self) -> PodProcess {
        PodProcess::start(Some("node"), &self.base.join("outside"))
    }

    /// Moves this process into the agent's pod, where the agent runs.
    pub(crate) fn join_agents_pod(&self) {
        fs::write(self.group(AGENT).join("c/cgroup.procs"), "0").unwrap();
    }

    pub(crate) fn pin_names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.pins.directory()).into_iter().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::write(self.home.join("cgroup.procs"), "0");
        if let Err(error) = detach(&self.pins) {
            eprintln!("not removed: {error}");
        }
        let _ = fs::remove_dir(&self.place);
        for name in NETWORKS {
            ip(&format!("netns delete {name}"));
        }
        for group in walk(&self.base).iter().rev() {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Lists a directory and all directories below it, outer before inner.
pub(crate) fn walk(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(walk(&entry.path()));
        }
    }
    found
}

pub(crate) fn ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments.split_whitespace()).stderr(Stdio::null());
    command.status().unwrap().success()
}

const NETWORKS: [&str; 4] = ["node", "pod1", "pod2", "cloud"];

/// Creates the networks. The node forwards between its bridge of pods and the cloud, as nodes do.
fn networks() {
    // As on every node: without it, what one pod sends to another over the bridge passes no translation, neither there nor back.
    let _ = Command::new("modprobe").arg("br_netfilter").stderr(Stdio::null()).status();
    for name in NETWORKS {
        ip(&format!("netns delete {name}"));
        assert!(ip(&format!("netns add {name}")), "cannot make a network namespace");
        assert!(ip(&format!("-n {name} link set lo up")));
    }
    let mut lines = vec![
        "node link add cni0 type bridge".to_owned(),
        "node address add 10.44.0.1/24 dev cni0".to_owned(),
        "node address add fd44::1/64 dev cni0 nodad".to_owned(),
        "node link set cni0 up".to_owned(),
        "node link add up0 type veth peer name eth0 netns cloud".to_owned(),
        "node address add 10.45.0.1/24 dev up0".to_owned(),
        "node address add fd45::1/64 dev up0 nodad".to_owned(),
        "node link set up0 up".to_owned(),
        "cloud address add 10.45.0.2/24 dev eth0".to_owned(),
        "cloud address add fd45::2/64 dev eth0 nodad".to_owned(),
        "cloud link set eth0 up".to_owned(),
        "cloud route add default via 10.45.0.1".to_owned(),
        "cloud -6 route add default via fd45::1".to_owned(),
    ];
    for number in 1..=2 {
        lines.extend([
            format!("node link add v{number} type veth peer name eth0 netns pod{number}"),
            format!("node link set v{number} master cni0 up"),
            format!("pod{number} address add 10.44.0.1{number}/24 dev eth0"),
            format!("pod{number} address add fd44::1{number}/64 dev eth0 nodad"),
            format!("pod{number} link set eth0 up"),
            format!("pod{number} route add default via 10.44.0.1"),
            format!("pod{number} -6 route add default via fd44::1"),
        ]);
    }
    for address in REAL {
        let (family, bits, via) =
            if address.contains(':') { ("-6 ", 128, "fd45::2") } else { ("", 32, "10.45.0.2") };
        let nodad = if family.is_empty() { "" } else { "nodad" };
        lines.push(format!("cloud {family}address add {address}/{bits} dev lo {nodad}"));
        lines.push(format!("node {family}route add {address}/{bits} via {via}"));
    }
    for line in lines {
        assert!(ip(&format!("-n {line}")), "ip -n {line}");
    }
    for pod in ["pod1", "pod2"] {
        // A closed connection that the agent has not accepted can stay so long; 60 s are usual.
        within(pod, || fs::write("/proc/sys/net/ipv4/tcp_fin_timeout", "1").unwrap());
    }
    within("node", || {
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        // TCP fast open for clients, servers, and every listener: from the second connection on, data is in the SYN.
        fs::write("/proc/sys/net/ipv4/tcp_fastopen", "1027").unwrap();
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    });
}

/// Runs a function in a network namespace. Sockets created there stay there.
pub(crate) fn within<T: Send>(network: &str, what: impl FnOnce() -> T + Send) -> T {
    let namespace = fs::File::open(format!("/run/netns/{network}")).unwrap();
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            what()
        });
        inside.join().unwrap()
    })
}

/// Runs a function on a thread without these capabilities and without CAP_SYS_ADMIN, which can replace them.
pub(crate) fn without<T: Send>(dropped: CapabilitySet, what: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(dropped | CapabilitySet::SYS_ADMIN);
            set_capabilities(None, sets).unwrap();
            what()
        });
        inside.join().unwrap()
    })
}

/// Waits until the condition holds: the kernel ends sockets, and links without a pin, with a delay.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let begun = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
    while !done() {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
        assert!(now < begun + 30, "it did not come about");
        thread::yield_now();
    }
}

/// Answers `real` to every client at ports 80, 443 and 53 (DNS). It ends with the test's process.
fn real_server() {
    for port in [80, 443, 53] {
        let listener = within("cloud", || TcpListener::bind(("::", port)).unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(b"real");
            }
        });
    }
    // At each address, so that answers come from the one that was asked.
    let ports = REAL.iter().flat_map(|at| [(*at, 53), (*at, 80)]).chain([("10.45.0.2", 5353)]);
    for (at, port) in ports {
        let socket = within("cloud", || UdpSocket::bind((at, port)).unwrap());
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((_, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(b"real", from);
            }
        });
    }
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}
