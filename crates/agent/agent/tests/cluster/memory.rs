//! What the agent weighs with a full node, and with far more than one; with Google's credentials, with AWS's, and with both.
//! `benches/agent-memory` runs these alone.

use crate::support::aws::{Sts, arn, give_role};
use crate::support::*;

/// A full node by the kubelet's default (`maxPods`), and its accounts.
const PODS: usize = 110;
const ACCOUNTS: usize = 40;
/// Far more, so that what one pod costs stands out of the pages and arenas that all of them share.
const MORE: usize = 1000;
const MORE_ACCOUNTS: usize = 360;

/// How many scrapes in a row must give nothing back.
const LOOKS: usize = 50;

/// What is promised (SPECIFICATION.md), in bytes: of one cloud, of both, and of a further pod with one cloud's credentials.
const FULL_NODE: usize = 11 * 1024 * 1024;
const FULL_NODE_OF_BOTH: usize = 12 * 1024 * 1024;
const FURTHER_POD: usize = 4 * 1024;

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_full_node_weighs_eleven_mebibytes_and_each_further_pod_four_kibibytes() {
    let weights = Node::start(&[Cloud::Google]).weigh();
    weights.hold(FULL_NODE, Some(FURTHER_POD));
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_full_node_weighs_with_awss_credentials_what_it_weighs_with_googles() {
    let weights = Node::start(&[Cloud::Aws]).weigh();
    weights.hold(FULL_NODE, Some(FURTHER_POD));
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_full_node_weighs_with_both_clouds_twelve_mebibytes() {
    let weights = Node::start(&[Cloud::Google, Cloud::Aws]).weigh();
    weights.hold(FULL_NODE_OF_BOTH, None);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cloud {
    Google,
    Aws,
}

impl Cloud {
    fn name(self) -> &'static str {
        match self {
            Self::Google => "google",
            Self::Aws => "aws",
        }
    }
}

/// A node whose pods have credentials of these clouds.
struct Node<'a> {
    world: World,
    sts: Option<Sts>,
    accounts: Vec<String>,
    clouds: &'a [Cloud],
}

/// In bytes.
struct Weights {
    full: usize,
    each: usize,
}

impl<'a> Node<'a> {
    fn start(clouds: &'a [Cloud]) -> Self {
        let accounts: Vec<String> = (0..ACCOUNTS + MORE_ACCOUNTS).map(|n| format!("sa-{n}")).collect();
        let names: Vec<&str> = accounts.iter().map(String::as_str).collect();
        let mut world = World::start(&names, "");
        let sts = clouds.contains(&Cloud::Aws).then(|| {
            let sts = Sts::start(&world.api, names.iter().map(|name| give_role(&world, name)).collect());
            let (section, has_google) = (sts.section(&world, ""), clouds.contains(&Cloud::Google));
            // Google's section is the last one.
            world.reconfigure(|text| {
                let others = text.split("google:\n").next().unwrap();
                format!("{}{section}", if has_google { text } else { others })
            });
            sts
        });
        Self { world, sts, accounts, clouds }
    }

    fn weigh(mut self) -> Weights {
        eprintln!(
            "| clouds | pods | accounts | resident | of the heap | of the program's file | at most |\n|---|---|---|---|---|---|---|"
        );
        let empty = self.resident("0 | 0");
        self.fill();
        let full = self.resident("110 | 40");
        self.overfill();
        let more = self.resident("1,110 | 400");
        let (to_full, each) = (full.saturating_sub(empty) / PODS, more.saturating_sub(full) / MORE);
        eprintln!("| {} | each to 110, each beyond | | {to_full} B, {each} B | | | |", self.names());
        Weights { full, each }
    }

    /// Real pods, each of which asks for its credentials itself.
    fn fill(&mut self) {
        for n in 0..PODS {
            let pod = self.world.pod(&format!("pod-{n}"), &self.accounts[n % ACCOUNTS]);
            if self.has(Cloud::Google) {
                wait_until_true("the pod is served", || pod.ask(TOKEN).status == 200);
                self.world.check_pod(&pod);
            }
            if let Some(sts) = &self.sts {
                assert_eq!(sts.role_of(&pod.document()), arn(&pod.account));
            }
        }
        self.wait_for_leases(ACCOUNTS);
    }

    /// Pods whose credentials are fetched ahead.
    fn overfill(&self) {
        let api = &self.world.api;
        for n in 0..MORE {
            let (name, account) = (format!("more-{n}"), &self.accounts[ACCOUNTS + n % MORE_ACCOUNTS]);
            api.make_pod(&name, account);
            api.set_pod_status(&name, "Running", &format!("10.244.{}.{}", 2 + n / 250, 1 + n % 250));
        }
        self.wait_for_leases(ACCOUNTS + MORE_ACCOUNTS);
    }

    fn wait_for_leases(&self, count: usize) {
        for cloud in self.clouds {
            let sample = format!("seawall_cached_credentials{{cloud=\"{}\"}}", cloud.name());
            wait_until_true("every account's credentials are fetched", || {
                self.world.metric(&sample) == count as f64
            });
        }
    }

    /// Resident bytes once nothing more is given back, and where they are.
    fn resident(&self, when: &str) -> usize {
        let fields = ["VmRSS", "RssAnon", "RssFile", "VmHWM"];
        let weigh = || fields.map(|field| self.world.agent.proc_status_kib(field) as usize);
        // What the last changes took on their way (a page of all pods, answers in the air) is not what pods weigh.
        let mut least = weigh();
        let mut looks_since = 0;
        while looks_since < LOOKS {
            self.world.admin("/metrics");
            let now = weigh();
            looks_since = if now[0] < least[0] { 0 } else { looks_since + 1 };
            least = if now[0] < least[0] { now } else { least };
        }
        let [all, anonymous, file, peak] = least;
        eprintln!("| {} | {when} | {all} KiB | {anonymous} KiB | {file} KiB | {peak} KiB |", self.names());
        all * 1024
    }

    fn has(&self, cloud: Cloud) -> bool {
        self.clouds.contains(&cloud)
    }

    fn names(&self) -> String {
        self.clouds.iter().map(|cloud| cloud.name()).collect::<Vec<_>>().join(", ")
    }
}

impl Weights {
    fn hold(&self, full: usize, each: Option<usize>) {
        // A build that is not optimised has other pages. scripts/cluster-test measures what ships.
        if std::env::var_os("SEAWALL_AGENT").is_none() {
            return;
        }
        assert!(self.full <= full, "{} KiB with a full node", self.full / 1024);
        assert!(each.is_none_or(|each| self.each <= each), "{} bytes for each further pod", self.each);
    }
}
