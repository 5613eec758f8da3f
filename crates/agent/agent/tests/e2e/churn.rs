//! Pods that come and go, at few addresses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use seawall_core::Clock;
use serde_json::json;

use crate::node::{Node, ctr_command, run_successfully};
use crate::pod_answers::{Collector, Tally};
use crate::support::wait_until_true;

const PODS: usize = 500;
/// At once; the addresses are 60.
const LIVING: usize = 40;
const ACCOUNTS: usize = 30;
/// Pods that live all the time, and whose sandboxes are killed at once: each has another address afterwards, one that a pod had before.
const RESIDENTS: usize = 6;
/// How many answers of its own a pod waits for.
const ENOUGH: usize = 4;

#[test]
#[ignore = "SKIPPED: needs a kubelet: run scripts/e2e"]
fn no_pod_is_given_anothers_while_addresses_and_sandboxes_change_hands() {
    let accounts: Vec<String> = (0..ACCOUNTS).map(|n| format!("sa-{n}")).collect();
    let names: Vec<&str> = accounts.iter().map(String::as_str).collect();
    let mut node = Node::start(&names);
    node.install();
    let collector = Collector::start(&node.cloud);
    let residents: Vec<String> = (0..RESIDENTS).map(|n| format!("resident-{n}")).collect();
    for (resident, account) in residents.iter().zip(&accounts) {
        let mut pod = collector.pod(resident, account);
        pod["spec"]["restartPolicy"] = json!("Always");
        node.create_pod(&pod);
    }
    let clock = Clock::system();
    let start = clock.now();
    let next = AtomicUsize::new(0);
    churn(&node, &collector, &accounts, &next, PODS / 2);
    node.restart_containerd();
    let swapped = rebuild(&node, &collector, &residents, || churn(&node, &collector, &accounts, &next, PODS));
    let took = clock.now().since(start);
    judge(&collector.all(), &swapped);
    eprintln!("{PODS} pods in {took:?}");
    assert_eq!(node.real.pods(), 0);
}

/// Lets pods live and end until so many have.
fn churn(node: &Node, collector: &Collector, accounts: &[String], next: &AtomicUsize, until: usize) {
    let another = || next.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| (n < until).then_some(n + 1));
    std::thread::scope(|scope| {
        for _ in 0..LIVING {
            scope.spawn(|| {
                while let Ok(n) = another() {
                    // Neighbours in time at one address are hardly ever of one account.
                    live(node, collector, n, &accounts[n % accounts.len()]);
                }
            });
        }
    });
}

fn live(node: &Node, collector: &Collector, n: usize, account: &str) {
    let name = format!("pod-{n}");
    node.create_pod(&collector.pod(&name, account));
    wait_until_true(&format!("{name} to be served"), || collector.of(&name).own >= ENOUGH);
    node.delete_pod_and_wait(&name);
}

/// Ends the residents' sandboxes while something goes on, and waits until each is served again. Their addresses, before and after.
fn rebuild(
    node: &Node,
    collector: &Collector,
    residents: &[String],
    meanwhile: impl FnOnce() + Send,
) -> Vec<(String, String)> {
    let before: Vec<String> = residents.iter().map(|name| node.wait_for_pod_address(name)).collect();
    std::thread::scope(|scope| {
        let going_on = scope.spawn(meanwhile);
        let sandboxes: Vec<String> = residents.iter().map(|name| sandbox(name)).collect();
        for sandbox in &sandboxes {
            run_successfully(&mut ctr_command(&["tasks", "kill", "--all", "--signal", "SIGKILL", sandbox]));
        }
        for (name, before) in residents.iter().zip(&before) {
            wait_until_true("another sandbox", || node.wait_for_pod_address(name) != *before);
            let had = collector.of(name).own;
            wait_until_true("the resident to be served again", || collector.of(name).own > had + ENOUGH);
        }
        going_on.join().unwrap();
    });
    before.into_iter().zip(residents.iter().map(|name| node.wait_for_pod_address(name))).collect()
}

/// A pod's sandbox, as containerd calls it.
fn sandbox(pod: &str) -> String {
    let filter =
        format!("labels.\"io.kubernetes.pod.name\"=={pod},labels.\"io.cri-containerd.kind\"==sandbox");
    let said = run_successfully(&mut ctr_command(&["containers", "list", "--quiet", &filter]));
    said.lines().last().unwrap_or_else(|| panic!("{pod} has no sandbox")).trim().to_owned()
}

fn judge(tallies: &BTreeMap<String, Tally>, swapped: &[(String, String)]) {
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    for (word, times) in tallies.values().flat_map(|tally| &tally.refused) {
        *refused.entry(word).or_default() += times;
    }
    let crossed: Vec<_> = tallies.iter().filter(|(_, tally)| !tally.anothers.is_empty()).collect();
    let own: usize = tallies.values().map(|tally| tally.own).sum();
    let first = tallies.values().filter(|tally| tally.is_first_own).count();
    eprintln!(
        "{} pods: {own} answers of their own, {} crossed, refused {refused:?}; first requests answered: {first}",
        tallies.len(),
        crossed.len()
    );
    eprintln!("sandboxes rebuilt, address before and after: {swapped:?}");
    assert!(crossed.is_empty(), "{crossed:?}");
    assert_eq!(tallies.len(), PODS + RESIDENTS);
    assert!(own >= ENOUGH * PODS);
}
