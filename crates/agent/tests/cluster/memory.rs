//! What the agent weighs with a full node, and with far more than one. `benches/agent-memory` runs this alone.

use crate::support::*;

/// A full node by the kubelet's default (`maxPods`), and its accounts.
const PODS: usize = 110;
const ACCOUNTS: usize = 40;
/// Far more, so that what one pod costs stands out of the pages and arenas that all of them share.
const MORE: usize = 1000;
const MORE_ACCOUNTS: usize = 360;

/// What is promised (SPECIFICATION.md), in bytes.
const FULL_NODE: usize = 11 * 1024 * 1024;
const FURTHER_POD: usize = 4 * 1024;

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_full_node_weighs_eleven_mebibytes_and_each_further_pod_four_kibibytes() {
    let accounts: Vec<String> = (0..ACCOUNTS + MORE_ACCOUNTS).map(|n| format!("sa-{n}")).collect();
    let names: Vec<&str> = accounts.iter().map(String::as_str).collect();
    let mut world = World::start(&names, "");
    eprintln!(
        "| pods | accounts | resident | of the heap | of the program's file | at most |\n|---|---|---|---|---|---|"
    );
    let empty = weigh(&world, "0 | 0");
    // Real pods, each of which asks for its token itself.
    for n in 0..PODS {
        let pod = world.pod(&format!("pod-{n}"), &accounts[n % ACCOUNTS]);
        until_true("the pod is served", || pod.ask(TOKEN).status == 200);
        world.check_pod(&pod);
    }
    until_true("every account's token is fetched", || {
        world.metric("seawall_leases{cloud=\"google\"}") == ACCOUNTS as f64
    });
    let full = weigh(&world, "110 | 40");
    for n in 0..MORE {
        let (name, account) = (format!("more-{n}"), &accounts[ACCOUNTS + n % MORE_ACCOUNTS]);
        world.api.make_pod(&name, account);
        world.api.report(&name, "Running", &format!("10.244.{}.{}", 2 + n / 250, 1 + n % 250));
    }
    let all = (ACCOUNTS + MORE_ACCOUNTS) as f64;
    until_true("every account's token is fetched ahead", || {
        world.metric("seawall_leases{cloud=\"google\"}") == all
    });
    let more = weigh(&world, "1,110 | 400");
    let each = more.saturating_sub(full) / MORE;
    eprintln!("| each to 110, each beyond | | {} B, {each} B | | | |", full.saturating_sub(empty) / PODS);
    // A build that is not optimised has other pages. scripts/cluster-test measures what ships.
    if std::env::var_os("SEAWALL_AGENT").is_some() {
        assert!(full <= FULL_NODE, "{} KiB with a full node", full / 1024);
        assert!(each <= FURTHER_POD, "{each} bytes for each further pod");
    }
}

/// Resident bytes, and where they are.
fn weigh(world: &World, when: &str) -> usize {
    let [all, anonymous, file, peak] =
        ["VmRSS", "RssAnon", "RssFile", "VmHWM"].map(|field| world.agent.status(field) as usize);
    eprintln!("| {when} | {all} KiB | {anonymous} KiB | {file} KiB | {peak} KiB |");
    all * 1024
}
