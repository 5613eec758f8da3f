//! Addresses that go from pod to pod.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use seawall_core::Clock;

use crate::support::client::{Client, get};
use crate::support::network::{METADATA, Sandbox};
use crate::support::*;

/// How a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// As the kubelet does it: marked, ended, removed.
    Graceful,
    /// Its containers end by themselves; the object stays behind for a while.
    Finished,
    /// Removed at once, as `kubectl delete --force` does, and its address given away.
    Forced,
}

/// What became of requests.
#[derive(Debug, Default)]
struct Tally {
    right: AtomicUsize,
    wrong: AtomicUsize,
    /// Refused with a status that clients try again on.
    later: AtomicUsize,
    pods: AtomicUsize,
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn addresses_that_go_from_pod_to_pod_never_bring_anothers_credentials() {
    const PODS: usize = 2000;
    const ADDRESSES: usize = 48;
    let accounts: Vec<String> = (0..30).map(|n| format!("sa-{n}")).collect();
    let names: Vec<&str> = accounts.iter().map(String::as_str).collect();
    let mut world = World::start(&names, "");
    let sandboxes: Vec<Sandbox> = (0..ADDRESSES).map(|_| world.network.sandbox()).collect();
    let (clock, tally, next) = (Clock::system(), Tally::default(), AtomicUsize::new(0));
    let start = clock.now();
    let (world, accounts, tally, next) = (&world, &accounts, &tally, &next);
    std::thread::scope(|scope| {
        for sandbox in &sandboxes {
            scope.spawn(move || {
                sandbox.enter();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= PODS {
                        return;
                    }
                    // Neighbours in time at one address are never of one account.
                    live(world, sandbox, n, &accounts[n % accounts.len()], tally);
                }
            });
        }
    });
    let took = clock.now().since(start);
    eprintln!("{PODS} pods at {ADDRESSES} addresses in {took:?}: {tally:?}");
    assert_eq!(tally.wrong.load(Ordering::Relaxed), 0);
    assert_eq!(tally.pods.load(Ordering::Relaxed), PODS);
    assert!(tally.right.load(Ordering::Relaxed) >= 3 * PODS, "{tally:?}");
    // Nothing is left of them.
    until_true("every lease is gone", || world.metric("seawall_leases{cloud=\"google\"}") == 0.0);
    assert_eq!(world.metric("seawall_pods"), 1.0, "the agent's own");
}

/// Between a pod's binding and its first process a kubelet makes the sandbox and its network. Far less than it takes; but
/// some time it takes, and that is what `source-ip` leans on: the watch must have told of the last pod's end by then.
const SANDBOX: Duration = Duration::from_millis(250);

/// One pod's life: it asks from its first moment on, on connections of its own and on one that it keeps.
fn live(world: &World, sandbox: &Sandbox, n: usize, account: &str, tally: &Tally) {
    let (name, address) = (format!("pod-{n}"), sandbox.address.to_string());
    world.api.make_pod(&name, account);
    pause(SANDBOX);
    world.api.report(&name, "Running", &address);
    let here = (METADATA, 80).into();
    until_true("the pod to be served", || {
        judge(world, account, &client::ask(sandbox.address, here, TOKEN), tally)
    });
    let mut kept = Client::connect(sandbox.address, here);
    for _ in 0..2 {
        // A refusal ends its connection.
        if !judge(world, account, &kept.ask(&get(TOKEN)), tally) {
            kept = Client::connect(sandbox.address, here);
        }
    }
    judge(world, account, &client::ask(sandbox.address, here, TOKEN), tally);
    drop(kept);
    let endings = [Ending::Graceful, Ending::Finished, Ending::Forced];
    end(world, &name, &address, endings[n % endings.len()]);
    tally.pods.fetch_add(1, Ordering::Relaxed);
}

fn end(world: &World, name: &str, address: &str, ending: Ending) {
    if ending == Ending::Graceful {
        world.api.delete_pod(name, 30);
    }
    if ending != Ending::Forced {
        world.api.report(name, "Succeeded", address);
    }
    world.api.delete_pod(name, 0);
}

/// The truth is known: whose token it is stands in it. True if it is this pod's.
fn judge(world: &World, account: &str, answer: &client::Answer, tally: &Tally) -> bool {
    if answer.status == 503 {
        tally.later.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    let token = world.cloud.read(&answer.token());
    let is_own = token.sub == cloud::subject(account) && token.account == Some(cloud::email(account));
    let counter = if is_own { &tally.right } else { &tally.wrong };
    counter.fetch_add(1, Ordering::Relaxed);
    if !is_own {
        eprintln!("{account} was given {token:?}");
    }
    is_own
}
