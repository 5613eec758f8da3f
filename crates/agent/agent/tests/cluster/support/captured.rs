//! A node whose pods are captured by programs in the kernel: the same API server, cloud and network, and groups as a kubelet makes them,
//! below a group that `scripts/cluster-test` made and removes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use seawall_redirect::{HostNetworkPods, Pins, PodsParentCgroup, attach, detach, nft_rules};
use seawall_testkit::objects::NODE_NAME;
use seawall_testkit::pod_process::{PodProcess, command_in_cgroup};
use serde_json::{Value, json};

use super::network::{GATEWAY6, METADATA, Sandbox};
use super::process::{self, Agent};
use super::{Ground, PROGRAM, client, wait_until_true, yaml};

/// The node's address: its bridge's.
pub(crate) const ADDRESS: &str = "10.244.0.1";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Everything but the agents, which a test starts and ends.
pub(crate) struct Node {
    pub(crate) ground: Ground,
    groups: Groups,
    config: PathBuf,
    /// The content of `NODE_IPS`, for the agents that start from now on.
    addresses: String,
}

/// Groups of pods, and the programs for them.
struct Groups {
    home: PathBuf,
    base: PathBuf,
    kubepods: PathBuf,
    bpffs: PathBuf,
    pins: Pins,
    site: PodsParentCgroup,
}

/// A container of a pod that is captured: a process.
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) account: String,
    pub(crate) uid: String,
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) process: PodProcess,
}

fn given(name: &str) -> PathBuf {
    std::env::var_os(name).unwrap_or_else(|| panic!("SKIPPED: run scripts/cluster-test as root")).into()
}

impl Groups {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let all = given("SEAWALL_REDIRECT_GROUPS");
        let base = all.join(number.to_string());
        let kubepods = base.join("kubepods");
        for class in ["burstable", "besteffort"] {
            fs::create_dir_all(kubepods.join(class)).unwrap();
        }
        let bpffs = given("SEAWALL_REDIRECT_BPFFS").join(format!("node{number}"));
        fs::create_dir(&bpffs).unwrap();
        let tree = all.parent().unwrap();
        let below = kubepods.strip_prefix(tree).unwrap().to_owned();
        // The machine's own groups are nobody's to touch in a test.
        let site = PodsParentCgroup::find(tree, Some(&below)).unwrap().limit_conflict_check_to(&base);
        Self { home: all.join("home"), pins: Pins::at(&bpffs).unwrap(), bpffs, site, kubepods: below, base }
    }

    /// A container's group in a pod's.
    fn of_pod(&self, uid: &str) -> PathBuf {
        let group = self.base.join("kubepods/burstable").join(format!("pod{uid}")).join("c");
        fs::create_dir_all(&group).unwrap();
        group
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = fs::write(self.home.join("cgroup.procs"), "0");
        let _ = nft_rules::load_rules(&nft_rules::format_cleanup_rules());
        if let Err(error) = detach(&self.pins) {
            eprintln!("not removed: {error}");
        }
    }
}

impl Node {
    /// Nothing attached, no agent.
    pub(crate) fn bare(accounts: &[&str]) -> Self {
        let groups = Groups::new();
        let ground = Ground::start(accounts, &json!([]));
        ground.network.lack_metadata_address();
        let config = ground.folder.path().join("agent.yaml");
        let identity = format!(
            "  strategy: kernel\n  nodeName: {NODE_NAME}\n  kubeconfig: {}\n  redirect: {{ bpffs: {}, kubepodsCgroup: {} }}\n",
            ground.kubeconfig.display(),
            groups.bpffs.display(),
            groups.kubepods.display()
        );
        fs::write(&config, yaml("\"node:0\"", &identity, "", &ground.cloud)).unwrap();
        Self { ground, groups, config, addresses: String::new() }
    }

    /// Makes the pods of this ServiceAccount trusted proxies, for the agents that start from now on.
    pub(crate) fn trust_proxy(&self, account: &str) {
        self.set_identity(&format!("trustedProxies: [reef/{account}]"));
    }

    /// Lets the routes name the pods of this range, for the agents that start from now on.
    pub(crate) fn have_egress_range(&self, range: &str) {
        self.set_identity(&format!("egressRanges: [{range}]"));
    }

    /// Adds a line to the section `identity`.
    fn set_identity(&self, line: &str) {
        let text = fs::read_to_string(&self.config).unwrap();
        let lines = format!("  strategy: kernel\n  {line}\n");
        fs::write(&self.config, text.replace("  strategy: kernel\n", &lines)).unwrap();
    }

    /// Makes the node one of an IPv6 cluster: Kubernetes knows no IPv4 address of it, nor of its pods, and it has one.
    pub(crate) fn become_ipv6(&mut self) {
        self.ground.network.have_ipv6();
        self.ground.network.have_route_to_metadata();
        self.addresses = GATEWAY6.to_string();
    }

    /// A pod of an IPv6 cluster that runs, known to the API server with its IPv6 address.
    pub(crate) fn ipv6_pod(&mut self, name: &str, account: &str) -> Container {
        let (sandbox, address) = self.ground.network.egress_sandbox();
        let container = self.bound(name, account, Some(sandbox), &json!({}));
        self.ground.api.set_pod_status(name, "Running", &address.to_string());
        container
    }

    /// Gives the node an IPv6 address, which agents that start from now on are told beside the other one.
    pub(crate) fn have_ipv6(&mut self) {
        self.ground.network.have_ipv6();
        self.addresses = format!("{ADDRESS},{GATEWAY6}");
    }

    /// Gives a pod an IPv6 address, and tells the API server both of its addresses.
    pub(crate) fn give_ipv6(&self, pod: &Container) {
        let sandbox = pod.sandbox.as_ref().unwrap();
        let addresses = [sandbox.address.to_string(), self.ground.network.give_ipv6(sandbox).to_string()];
        self.ground.api.set_pod_addresses(&pod.name, "Running", &addresses.each_ref().map(String::as_str));
    }

    /// A process of one pod in the network of another, as a proxy has that serves other pods.
    pub(crate) fn process_in_network_of(&self, owner: &Container, host: &Container) -> PodProcess {
        let network = host.sandbox.as_ref().map(|sandbox| &*sandbox.name);
        PodProcess::start(network, &self.groups.of_pod(&owner.uid))
    }

    /// The programs attached, no agent yet.
    pub(crate) fn start(accounts: &[&str]) -> Self {
        let node = Self::bare(accounts);
        node.attach();
        node
    }

    /// As `seawall-agent redirect attach` does.
    pub(crate) fn attach(&self) {
        attach(&self.groups.pins, &self.groups.site, HostNetworkPods::Seawall)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Attaches again after the pins have become those of an older layout, as an upgrade to another layout finds them. Returns their folder.
    pub(crate) fn attach_beside_older_layout(&self) -> PathBuf {
        let own = self.groups.pins.directory();
        let older = own.with_file_name("v0");
        fs::rename(&own, &older).unwrap();
        self.attach();
        older
    }

    /// As `seawall-agent redirect detach` does.
    pub(crate) fn detach(&self) {
        detach(&self.groups.pins).unwrap_or_else(|error| panic!("{error}"));
    }

    /// What starts an agent in a pod of its own.
    pub(crate) fn command(&self, pod: &str) -> std::process::Command {
        let agent = process::command(PROGRAM, &["--config"]);
        let words: Vec<_> = std::iter::once(agent.get_program()).chain(agent.get_args()).collect();
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let mut command = command_in_cgroup(&self.groups.of_pod(pod), &words);
        command
            .arg(&self.config)
            .env("NODE_IP", ADDRESS)
            .env("NODE_IPS", &self.addresses)
            .env("POD_UID", pod)
            .stdin(Stdio::null());
        command.stderr(Stdio::piped());
        command
    }

    /// A running agent, ready.
    pub(crate) fn agent(&self, pod: &str) -> Agent {
        let agent = Agent::wait_until_serving(self.command(pod).spawn().unwrap());
        wait_until_true("the agent to be ready", || admin(&agent, "/readyz").status == 200);
        agent
    }

    /// A pod that runs, known to the API server with its address.
    pub(crate) fn pod(&mut self, name: &str, account: &str) -> Container {
        let sandbox = self.ground.network.sandbox();
        let container = self.bound(name, account, Some(sandbox.clone()), &json!({}));
        self.ground.api.set_pod_status(name, "Running", &sandbox.address.to_string());
        container
    }

    /// One on the node's own network.
    pub(crate) fn host_pod(&mut self, name: &str, account: &str) -> Container {
        let container = self.bound(name, account, None, &json!({ "hostNetwork": true }));
        self.ground.api.set_pod_status(name, "Running", ADDRESS);
        container
    }

    /// A pod that runs in this network, which the API server has not told of.
    pub(crate) fn bound(
        &mut self,
        name: &str,
        account: &str,
        sandbox: Option<Sandbox>,
        spec: &Value,
    ) -> Container {
        let uid = self.ground.api.make_pod_with(name, account, spec);
        let network = sandbox.as_ref().map(|sandbox| &*sandbox.name);
        let process = PodProcess::start(network, &self.groups.of_pod(&uid));
        Container { name: name.into(), account: account.into(), uid, sandbox, process }
    }

    /// A process of the node's own, outside of every pod.
    pub(crate) fn outside(&self) -> PodProcess {
        PodProcess::start(None, &self.groups.home)
    }

    /// Whether a pod is given a token of its own, at an address of the cloud's.
    pub(crate) fn check(&self, pod: &mut Container, address: &str) {
        let answer = pod.process.ask(&format!("fetch {address} 80 {}", super::TOKEN));
        self.check_answer(&answer, &pod.account);
    }

    /// Whether an answer has a token of this ServiceAccount.
    pub(crate) fn check_answer(&self, answer: &str, account: &str) {
        let body = answer.strip_prefix("200 ").unwrap_or_else(|| panic!("{answer}"));
        let token: Value = serde_json::from_str(body).unwrap();
        let token = self.ground.cloud.read(token["access_token"].as_str().unwrap());
        assert_eq!(token.sub, super::cloud::subject(account));
    }

    /// Removes the pod's process and group, as a kubelet does; nobody tells the API server.
    pub(crate) fn end(&self, pod: Container) -> Option<Sandbox> {
        let Container { process, sandbox, uid, .. } = pod;
        drop(process);
        let group = self.groups.of_pod(&uid);
        wait_until_true("the group to be empty", || fs::remove_dir(&group).is_ok());
        fs::remove_dir(group.parent().unwrap_or(Path::new("/"))).unwrap();
        sandbox
    }
}

impl Container {
    /// One request on a connection of its own.
    pub(crate) fn fetch(&mut self, target: &str) -> String {
        self.process.ask(&format!("fetch {METADATA} 80 {target}"))
    }
}

/// A page of an agent's admin port.
pub(crate) fn admin(agent: &Agent, path: &str) -> client::Answer {
    client::ask(std::net::Ipv4Addr::LOCALHOST, agent.admin_address, path)
}

/// The value of one sample at `/metrics`.
pub(crate) fn metric(agent: &Agent, sample: &str) -> f64 {
    let metrics = admin(agent, "/metrics").body;
    let value = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {sample} in\n{metrics}")).parse().unwrap()
}
