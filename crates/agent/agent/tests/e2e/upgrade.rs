//! Agents that follow one another, and configurations, while pods ask.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use seawall_core::{Clock, Moment};
use serde_json::{Value, json};

use crate::install::fetch;
use crate::node::{Node, run_successfully};
use crate::pods::{Class, pod, running};
use crate::support::network::METADATA;
use crate::support::{TOKEN, wait_until_true};

const RATE: u64 = 300;
/// Each load lasts at least so long, and until everything that it is to outlast is done.
const LEAST: Duration = Duration::from_secs(62);
const ROLLOUTS: usize = 4;
/// Wants four processors at all times.
const BUSY: &str = "for i in 1 2 3; do while :; do :; done & done; while :; do :; done";
const ZONE: &str = "/computeMetadata/v1/instance/zone";

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn no_request_fails_while_agents_are_rolled_out() {
    let node = Node::start(&["cart", "search"]);
    node.install();
    let loads = Loads::start(&node, Class::Burstable);
    roll_out(&node);
    loads.end(&node, 18_000);
    assert_eq!(node.real.pods(), 0);
}

/// The clients have the least right to the CPU, and other pods want all of it. The agent before ended connections whose clients had not sent
/// their request yet: they got no CPU time for more than three seconds after their connect.
#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn no_request_of_pods_that_get_little_cpu_time_fails_while_agents_are_rolled_out() {
    let node = Node::start(&["cart", "search"]);
    node.install();
    let loads = Loads::start(&node, Class::BestEffort);
    let mut busy = running("busy", "cart", Class::Burstable, &["/usr/bin/sh", "-c", BUSY]);
    busy["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500m"}});
    node.create_pod(&busy);
    node.wait_until_pod_running("busy");
    roll_out(&node);
    // A load of new connections gets about a hundredth of a processor.
    loads.end(&node, 500);
    assert_eq!(node.real.pods(), 0);
}

fn roll_out(node: &Node) {
    let clock = Clock::system();
    for revision in 1..=ROLLOUTS {
        let (start, before) = (clock.now(), node.agents());
        node.upgrade(&json!({"podAnnotations": {"seawall.test/revision": revision.to_string()}}));
        assert_ne!(node.agents(), before);
        eprintln!("rollout {revision}: {:?}", clock.now().since(start));
    }
}

/// Good ones are in force, a bad one is not, and the agent is the same throughout.
#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn no_request_fails_while_the_configuration_is_reloaded() {
    let node = Node::start(&["cart", "search", "batch"]);
    node.install();
    let mut batch = node.run(&pod("batch", "batch", Class::Burstable));
    let (agents, process) = (node.agents(), node.agent_process());
    let loads = Loads::start(&node, Class::Burstable);
    let zone = |name: &str| json!({"config": {"google": {"zone": name}}});
    // firewalld does this when it starts. The container beside the agent looks each minute.
    let nft = |words: &[&str]| run_successfully(Command::new("nft").args(words));
    assert!(nft(&["list", "ruleset"]).contains("chain drop_rules"));
    nft(&["flush", "ruleset"]);
    for letter in ["b", "c", "d"] {
        let name = format!("europe-west1-{letter}");
        node.upgrade(&zone(&name));
        wait_until_true("the zone", || fetch(&mut batch, ZONE).ends_with(&name));
        // Helm's check refuses it, and changes nothing. What changes a ConfigMap without helm is met by the agent alone.
        let mut bad = zone("nowhere at all");
        assert!(!node.start_upgrade(&bad).wait().unwrap().success());
        bad["checkHook"] = json!({"enabled": false});
        node.upgrade(&bad);
        wait_until_true("the refusal to be told", || is_refused(&node, &agents[0]));
        assert!(fetch(&mut batch, ZONE).ends_with(&name));
    }
    wait_until_true("the drop rules to be loaded again", || {
        nft(&["list", "ruleset"]).contains("ip daddr 169.254.169.254 counter")
    });
    loads.end(&node, 18_000);
    assert_eq!((node.agents(), node.agent_process()), (agents, process));
}

/// A load on a connection for each request, and one on kept connections.
struct Loads {
    children: [(&'static str, Child); 2],
    begun: Moment,
}

impl Loads {
    fn start(node: &Node, class: Class) -> Self {
        let children = [("cart", "--keepalive=false"), ("search", "--keepalive=true")]
            .map(|(account, kept)| (account, load(node, account, kept, class)));
        Self { children, begun: Clock::system().now() }
    }

    /// Ends them when they have lasted for [`LEAST`]. Each must have sent `least` requests.
    fn end(self, node: &Node, least: u64) {
        wait_until_true("the least time of a load", || Clock::system().now().since(self.begun) >= LEAST);
        print_connects();
        for (account, load) in self.children {
            interrupt(node, account);
            judge(account, load, least);
        }
    }
}

/// Prints what the redirect decided since it was attached, so that a failure shows its cause.
fn print_connects() {
    let metrics = Command::new("curl").args(["--silent", "http://127.0.0.1:8989/metrics"]).output().unwrap();
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    metrics.lines().filter(|line| line.starts_with("seawall_redirect_")).for_each(|line| eprintln!("{line}"));
}

/// By the agent's own word, as an operator reads it.
fn is_refused(node: &Node, agent: &str) -> bool {
    let mut status = node.kubectl_command();
    status.args(["--namespace", "seawall", "exec", agent, "--", "/seawall-agent", "status"]);
    String::from_utf8(status.output().unwrap().stdout).unwrap().contains("google.zone")
}

/// Ends a load as Ctrl-C does, so that it says what became of all that it sent.
fn interrupt(node: &Node, account: &str) {
    const KILL: &str = "import os\nfor p in filter(str.isdigit, os.listdir('/proc')):\n    \
                        if open(f'/proc/{p}/comm').read() == 'seawall\\n': os.kill(int(p), 2)";
    let status = node.exec_command(account, &["/usr/bin/python3", "-c", KILL]).status().unwrap();
    assert!(status.success(), "{account}: {status}");
}

/// The project's own load tool in a pod that the agent knows, until it is interrupted. It has at most 50 requests in flight, as many as an
/// AWS SDK has connections. On a busy machine this pod waits for the CPU for seconds, and would then send at once what was due meanwhile.
/// The redirect refuses what exceeds a pod's share of waiting connections. For the same reason the timeout is long: it must expose an answer
/// that never comes, not a slow machine.
fn load(node: &Node, account: &str, kept: &str, class: Class) -> Child {
    let mut pod = running(account, account, class, &["/usr/bin/sleep", "infinity"]);
    pod["spec"]["containers"][0]["image"] =
        json!(concat!("seawall.local/seawall:", env!("CARGO_PKG_VERSION")));
    let mut process = node.run(&pod);
    wait_until_true("credentials", || fetch(&mut process, TOKEN).starts_with("200 "));
    let (rate, duration) = (format!("--rate={RATE}"), "--duration=1h".to_owned());
    let shown = ["--output=none", "--summary=json", "--live=none", "--sample-responses=2"];
    let bounds = ["--max-workers=50", "--timeout=30s"];
    let words = [&["/seawall", "attack", kept, &rate, &duration], &bounds[..], &shown[..]].concat();
    let mut command = node.exec_command(account, &words);
    let mut load = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let target = format!("GET http://{METADATA}{TOKEN}\nMetadata-Flavor: Google\n");
    load.stdin.take().unwrap().write_all(target.as_bytes()).unwrap();
    load
}

/// Every request that was sent was answered well. One that a kept connection's end met half way is sent again, as HTTP's clients do. What
/// waited for its turn when the load was interrupted was not sent.
fn judge(account: &str, load: Child, least: u64) {
    let output = load.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&output.stdout);
    let said: Value = serde_json::from_str(log.trim()).unwrap_or_else(|_| panic!("{log}"));
    let sent = said["sent"].as_u64().unwrap();
    let (codes, connections, retried) = (&said["status_codes"], &said["connections"], &said["retried"]);
    eprintln!("{account}: {sent} requests, {codes}, on {connections} connections, {retried} sent again");
    eprintln!("{account}: the load's own findings: {}", said["findings"]);
    let what = format!("failures {}, for example {}", said["failures"], said["sample_responses"]);
    assert!(sent >= least, "{log}");
    assert_eq!((&said["good"], &said["failures"]), (&json!(sent), &json!({})), "{what}");
    assert_eq!(codes, &json!({"200": sent}), "{what}");
}
