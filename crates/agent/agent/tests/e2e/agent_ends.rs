//! Agents that end: pods are refused, the node is unharmed, and what comes back serves. Nothing is left when the chart is uninstalled.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use rustix::process::{Pid, Signal, kill_process};
use seawall_core::Clock;
use seawall_testkit::pod_process::PodProcess;
use serde_json::json;

use crate::chart::DAEMON_SET;
use crate::install::fetch;
use crate::node::{Node, ctr_command, e2e_artifact_path, kubepods_cgroup, run_successfully};
use crate::pods::{Class, on_the_nodes_network, pod};
use crate::real_metadata_server::SAYS;
use crate::support::{TOKEN, wait_until_some, wait_until_true};

/// The longest time from the agent's next start to credentials. The promise is 1 s (SPECIFICATION.md has the figure that this test prints), but a
/// test must also pass on a machine that is slow.
const BACK: Duration = Duration::from_secs(10);
const TAINT: &str = "seawall.test/starting";

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn an_agent_that_is_killed_leaves_pods_refused_and_serves_them_again_when_it_is_started() {
    let node = Node::start(&["cart", "logs"]);
    node.install_capturing_host_network();
    let mut pods = asking(&node);
    for kill in [kill_the_process, kill_the_container] {
        let process = node.agent_process();
        kill(process);
        wait_until_true("the agent to be gone", || !is_there(process));
        refused(&node, &mut pods);
        back(&node, &mut pods);
    }
    node.api.call_expecting_success("DELETE", DAEMON_SET, Some(&json!({"propagationPolicy": "Foreground"})));
    wait_until_true("the agents to be gone", || node.agents().is_empty());
    refused(&node, &mut pods);
    assert_eq!(node.real.pods(), 0);
}

/// A traffic thread that hangs would keep its pods waiting for ever.
#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn an_agent_with_a_hung_thread_ends_itself_and_its_next_process_serves() {
    let node = Node::start(&["cart", "logs"]);
    node.install_capturing_host_network();
    let mut pods = asking(&node);
    let process = node.agent_process();
    // A thread that a debugger stops is as silent as one that waits for what never comes.
    let thread = stop_thread(process, "traffic-0");
    wait_until_true("the agent to end itself", || {
        // The thread of a tracer is gone only when the tracer has looked at it.
        let _ = waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
        !is_there(process)
    });
    back(&node, &mut pods);
    let ready = get("127.0.0.1:8989", "/readyz");
    assert!(ready.contains("the agent ended itself 1 time(s) in the last 10 minutes"), "{ready}");
    assert!(ready.contains("traffic-0 hangs in "), "{ready}");
}

/// Stops the thread with this name, as a debugger does.
fn stop_thread(process: u32, name: &str) -> nix::unistd::Pid {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let is_named =
        |path: &Path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name);
    let folder = threads.map(|thread| thread.path()).find(|path| is_named(path)).expect("a traffic thread");
    let thread = folder.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let thread = nix::unistd::Pid::from_raw(thread);
    ptrace::seize(thread, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(thread).unwrap();
    thread
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    std::io::read_to_string(stream).unwrap()
}

/// Nobody in a stopped process can end it: the kubelet's probe does.
#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn a_stopped_agent_is_ended_by_its_probe_and_its_next_process_serves() {
    let node = Node::start(&["cart", "logs"]);
    node.install_capturing_host_network();
    let mut pods = asking(&node);
    let process = node.agent_process();
    let clock = Clock::system();
    let start = clock.now();
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), Signal::STOP).unwrap();
    wait_until_true("the agent to be ended", || !is_there(process));
    back(&node, &mut pods);
    eprintln!("from the stop to credentials: {:?}", clock.now().since(start));
}

/// A pod and one on the node's network, both served.
fn asking(node: &Node) -> [(PodProcess, &'static str); 2] {
    let cart = node.run(&pod("cart", "cart", Class::Guaranteed));
    let logs = node.run(&on_the_nodes_network(pod("logs", "logs", Class::BestEffort)));
    let mut pods = [(cart, "cart"), (logs, "logs")];
    pods.iter_mut().for_each(|(process, account)| node.check(&fetch(process, TOKEN), account));
    pods
}

fn kill_the_process(process: u32) {
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
}

/// Which is named by the group that the process is in.
fn kill_the_container(process: u32) {
    let group = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let container = group.lines().find(|line| line.starts_with("0::")).unwrap().rsplit('/').next().unwrap();
    run_successfully(&mut ctr_command(&["tasks", "kill", "--signal", "SIGKILL", container]));
}

/// Until somebody has waited for it: only then are its sockets closed for sure.
fn is_there(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// By the kernel, at once; nobody else is reached.
fn refused(node: &Node, pods: &mut [(PodProcess, &str)]) {
    for (process, account) in pods {
        let said = fetch(process, TOKEN);
        assert!(["ECONNREFUSED", "EPERM"].contains(&&*said), "{account}: {said}");
    }
    assert_eq!(fetch(&mut node.outside(), TOKEN), format!("200 {SAYS}"));
}

fn back(node: &Node, pods: &mut [(PodProcess, &str)]) {
    let clock = Clock::system();
    node.agent_process();
    let start = clock.now();
    for (process, account) in pods {
        let said = wait_until_some("credentials", || {
            Some(fetch(process, TOKEN)).filter(|said| said.starts_with("200 "))
        });
        node.check(&said, account);
    }
    let took = clock.now().since(start);
    eprintln!("the agent's next process to credentials: {took:?}");
    assert!(took <= BACK, "{took:?}");
}

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn uninstalling_leaves_no_program_no_pin_no_rule_and_no_taint() {
    let node = Node::with(&["cart"], &[&format!("{TAINT}=:NoSchedule")]);
    assert!(node.taint_keys().iter().any(|taint| taint == TAINT));
    // The kernel puts two files there itself.
    let before = pins();
    let mut helm = node.install_with(&json!({"startupTaint": TAINT}));
    assert!(helm.wait().unwrap().success());
    wait_until_true("the taint to be taken off", || node.taint_keys().is_empty());
    let mut cart = node.run(&pod("cart", "cart", Class::Burstable));
    node.check(&fetch(&mut cart, TOKEN), "cart");
    eprintln!("attached:\n{}", run_successfully(&mut redirect("status")));
    assert!(pins().len() > before.len());
    let rules = run_successfully(Command::new("nft").args(["list", "ruleset"]));
    assert!(rules.contains("table inet seawall"), "{rules}");
    node.uninstall();
    assert_eq!(pins(), before);
    let status = redirect("status").output().unwrap();
    assert!(!status.status.success(), "{status:?}");
    let rules = run_successfully(Command::new("nft").args(["list", "ruleset"]));
    assert!(!rules.contains("seawall"), "{rules}");
    assert!(node.taint_keys().is_empty());
    assert_eq!(fetch(&mut cart, TOKEN), format!("200 {SAYS}"));
}

/// The agent's own word on what is attached, by the program that is in the image.
fn redirect(word: &str) -> Command {
    let mut command = Command::new(e2e_artifact_path("seawall-agent"));
    command.args(["redirect", word, "--kubepods-cgroup", &kubepods_cgroup()]);
    command
}

/// Whatever is on the node's file system for pins.
fn pins() -> Vec<PathBuf> {
    fs::read_dir(Path::new("/sys/fs/bpf")).unwrap().map(|entry| entry.unwrap().path()).collect()
}
