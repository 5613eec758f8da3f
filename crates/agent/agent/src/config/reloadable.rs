//! Defines the keys that a reload can change while the agent runs, and the keys that need a restart.
//!
//! If one changed key in a file needs a restart, the agent refuses the whole file. The configuration in force is therefore always one version of the
//! file, never a mixture of two. Each key has one of two classes: a reload can change the key, or the key needs a restart. This
//! module and each cloud's section list the keys of each class. If a key is missing from the lists, the key needs a restart, and
//! a test fails until a list contains the key.

use std::collections::{BTreeMap, BTreeSet};

use seawall_clouds::CloudsConfig;
use seawall_core::annotations::{AnnotationKey, AnnotationKeys};
use serde_json::Value;

use super::AgentConfig;

/// The keys outside the clouds' sections that need a restart. Each cloud's section lists the classes of its keys. The process
/// sets up its sockets, threads, privileges and memory limits only at the start, before it drops privileges. The identity
/// strategy cannot change, because the strategy has already identified the client of each open connection.
const OF_THE_PROCESS: &[&str] = &[
    "admin",
    "adminSocket",
    "identity.egressRanges",
    "identity.file",
    "identity.kubeconfig",
    "identity.nodeName",
    "identity.podTokenLifetime",
    "identity.redirect.bpffs",
    "identity.redirect.cgroupRoot",
    "identity.redirect.kubepodsCgroup",
    "identity.startupTaint",
    "identity.strategy",
    "identity.trustedProxies",
    "limits.connections",
    "limits.longPolls",
    "limits.upstreamRequests",
    "listen",
    "seccomp",
    "threads",
];

/// The keys that a reload can change. An entry that ends with a dot matches all keys below that name.
const RELOADED: &[&str] = &[
    "limits.connectionsPerPod",
    "limits.headerTimeout",
    "limits.idleTimeout",
    "limits.longPollsPerPod",
    "logLevel",
    "realServer",
];

/// True if a change of this key takes effect without a restart.
fn is_reloaded(key: &str) -> bool {
    let is_listed = |keys: &[&str], key: &str| keys.iter().any(|known| is_of(known, key));
    match CloudsConfig::reloadable_keys_and_section_key(key) {
        Some((classes, key)) => is_listed(classes.reloadable, key),
        None => is_listed(RELOADED, key) && !OF_THE_PROCESS.contains(&key),
    }
}

/// True if an entry of a list matches this key.
fn is_of(entry: &str, key: &str) -> bool {
    if entry.ends_with('.') { key.starts_with(entry) } else { key == entry }
}

impl AgentConfig {
    /// Returns the keys whose values differ in `next`, in the order of the configuration.
    pub(crate) fn changed_keys(&self, next: &Self) -> Vec<String> {
        let (before, after) = (leaves(self), leaves(next));
        let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        let set = |leaves: &BTreeMap<_, Value>, key: &String| {
            leaves.get(key).filter(|value| !value.is_null()).cloned()
        };
        keys.into_iter().filter(|key| set(&before, key) != set(&after, key)).cloned().collect()
    }

    /// Returns the changed keys that need a restart, each with a reason if the reason depends on the new value. `watched` has the
    /// annotations that the agent has watched since its start.
    pub(crate) fn keys_needing_restart(&self, next: &Self, watched: &[AnnotationKeys]) -> Vec<String> {
        let (before, after) = (self.clouds.names(), next.clouds.names());
        if before != after {
            // The listeners' dialects, the metrics and the watched annotations depend on the set of clouds.
            let toggled =
                before.iter().chain(&after).filter(|name| before.contains(name) != after.contains(name));
            return toggled.map(|name| format!("{} (a cloud's whole section)", name.as_str())).collect();
        }
        let mut keys = self.changed_keys(next);
        keys.retain(|key| !is_reloaded(key));
        if self.identity.uses_cluster() && !covers(watched, &next.clouds.annotation_keys()) {
            keys.push(
                "aws.roleSources or aws.irsaAnnotationPrefix (the agent does not watch the new annotations)"
                    .to_owned(),
            );
        }
        keys
    }
}

/// True if `watched` contains all annotation keys of `wanted`.
fn covers(watched: &[AnnotationKeys], wanted: &[AnnotationKeys]) -> bool {
    let each: [fn(&AnnotationKeys) -> &Vec<AnnotationKey>; 3] = [
        |selection| &selection.pod,
        |selection| &selection.service_account,
        |selection| &selection.namespace,
    ];
    each.iter().all(|keys| {
        let watched: BTreeSet<_> = watched.iter().flat_map(keys).collect();
        wanted.iter().flat_map(keys).all(|key| watched.contains(key))
    })
}

/// Returns each key with its serialised value. The value is null if the key is not set.
fn leaves(config: &AgentConfig) -> BTreeMap<String, Value> {
    let mut leaves = BTreeMap::new();
    // Serialisation cannot fail, because all values were parsed from text.
    collect(String::new(), serde_json::to_value(config).unwrap_or_default(), &mut leaves);
    leaves
}

fn collect(key: String, value: Value, leaves: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(table) => {
            for (name, value) in table {
                let below = if key.is_empty() { name } else { format!("{key}.{name}") };
                collect(below, value, leaves);
            }
        }
        leaf => {
            leaves.insert(key, leaf);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use seawall_clouds::ReloadableKeys;
    use seawall_core::PodUid;
    use seawall_core::cloud::CloudName;

    use super::*;
    use crate::config::{DEFAULT_CONFIG_YAML, DownwardApi};

    fn parse(text: &str) -> AgentConfig {
        let downward = DownwardApi { own_pod_uid: Some(PodUid("5eaf".into())), ..DownwardApi::default() };
        AgentConfig::parse(text, Path::new("/etc"), &downward).unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    const KERNEL: &str = "listen: [\"10.0.0.1:0\"]\nadminSocket: a\nidentity: { strategy: kernel, nodeName: n1, kubeconfig: k, startupTaint: a.b/c, \
        redirect: { kubepodsCgroup: a } }\n";

    /// Returns configurations that together contain all keys.
    fn complete() -> Vec<AgentConfig> {
        let google = DEFAULT_CONFIG_YAML
            .replace("exchange: sts", "exchange: sts\n  proxy: http://p:1\n  caFile: c")
            .replace("uid: \"\"", "uid: u")
            .replace("attributes: {}", "attributes: { team: shop }");
        let instance = "{ id: i, type: t, imageId: a, architecture: x, availabilityZone: z, availabilityZoneId: i, localHostname: h, \
            localIpv4: 10.0.0.1, domain: d }";
        let aws = |more: &str| {
            format!(
                "aws:\n  region: eu-central-1\n  account: \"123456789012\"\n  roleSources: [irsa, kiam, kube2iam, pod-identity]\n  \
                 podIdentity: {{ clusterName: c, eksAuthUrl: \"http://127.0.0.1:1\" }}\n  defaultRoles: {{ shop: cart }}\n  \
                 session: {{ namePrefix: k- }}\n  stsUrl: https://s\n  caFile: c\n  proxy: http://127.0.0.1:1\n  instance: {instance}\n  \
                 imds: {{ tokenKeyFile: k }}\n{more}"
            )
        };
        vec![
            parse(&google),
            parse(&format!("{KERNEL}{}", aws("  credentials: { source: file, file: f, role: r }\n"))),
            parse(&format!(
                "{KERNEL}{}",
                aws("  credentials: { source: pod-token, role: r }\n").replace(", pod-identity", "")
            )),
        ]
    }

    #[test]
    fn every_key_has_one_class_and_every_class_only_keys_that_there_are() {
        let complete = complete();
        let mut keys: BTreeSet<String> =
            complete.iter().flat_map(|config| leaves(config).into_keys()).collect();
        // Ignore cloud sections that are absent.
        keys.retain(|key| CloudName::ALL.iter().all(|cloud| key != cloud.as_str()));
        let of_clouds = CloudName::ALL.iter().flat_map(|cloud| {
            let ReloadableKeys { reloadable: reloaded, keys_needing_restart: of_the_process } =
                CloudsConfig::reloadable_keys(*cloud);
            reloaded.iter().chain(of_the_process).map(|key| format!("{}.{key}", cloud.as_str()))
        });
        let own = OF_THE_PROCESS.iter().chain(RELOADED).map(|key| (*key).to_owned());
        let all: Vec<String> = own.chain(of_clouds).collect();
        for key in &keys {
            let classes = all.iter().filter(|known| is_of(known, key)).count();
            assert_eq!(classes, 1, "{key} must be in exactly one of the lists");
        }
        for known in &all {
            assert!(keys.iter().any(|key| is_of(known, key)), "no configuration has the key {known}");
        }
    }

    /// `DEFAULT` lists the keys for operators. It counts `identity` as one key, because all keys below it need a restart.
    #[test]
    fn the_documented_list_of_keys_that_need_a_restart_is_complete() {
        let (_, list) = DEFAULT_CONFIG_YAML.split_once("These keys need a restart:").unwrap();
        let (list, _) = list.split_once(".\n").unwrap();
        let listed: Vec<_> = list.split([',', '\n', '#', ' ']).filter(|word| !word.is_empty()).collect();
        let is_below_identity = |key: &str| key.starts_with("identity.");
        let own = OF_THE_PROCESS.iter().copied();
        let own = own.map(|key| if is_below_identity(key) { "identity" } else { key });
        let of_clouds = CloudName::ALL.iter().flat_map(|cloud| {
            let keys = CloudsConfig::reloadable_keys(*cloud).keys_needing_restart;
            keys.iter().map(|key| format!("{}.{key}", cloud.as_str()))
        });
        let needing: BTreeSet<String> = own.map(str::to_owned).chain(of_clouds).collect();
        assert_eq!(listed, needing.iter().map(String::as_str).collect::<Vec<_>>(), "in alphabetical order");
        assert!(!RELOADED.iter().any(|key| is_below_identity(key)));
    }

    #[test]
    fn a_key_without_a_class_needs_a_restart() {
        assert!(!is_reloaded("google.tomorrow") && !is_reloaded("aws") && !is_reloaded("listen"));
        assert!(is_reloaded("aws.defaultRoles.shop") && !is_reloaded("aws.imds.tokenKeyFile"));
    }

    const LEAST: &str = "google: { mode: conceal }\nidentity: { strategy: source-ip, nodeName: n1 }\n";

    fn needing(before: &str, after: &str) -> Vec<String> {
        let (before, after) = (parse(before), parse(after));
        before.keys_needing_restart(&after, &before.clouds.annotation_keys())
    }

    #[test]
    fn what_needs_a_restart_is_named_and_the_rest_is_not() {
        assert!(needing(LEAST, LEAST).is_empty());
        let policy = LEAST.to_owned() + "realServer: [a/b]\nlogLevel: warn\nlimits: { idleTimeout: 5s }\n";
        assert!(needing(LEAST, &policy).is_empty());
        let process = LEAST.replace("n1", "n1, podTokenLifetime: 2h")
            + "admin: \"127.0.0.1:1\"\nthreads: 2\nlogLevel: warn\n";
        assert_eq!(needing(LEAST, &process), ["admin", "identity.podTokenLifetime", "threads"]);
        let other = LEAST.replace("source-ip, nodeName: n1", "anyone");
        assert_eq!(
            needing(LEAST, &other),
            ["identity.nodeName", "identity.podTokenLifetime", "identity.strategy"]
        );
    }

    #[test]
    fn a_cloud_that_is_turned_on_or_off_needs_a_restart_and_is_named_once() {
        let both = format!("{LEAST}aws: {{ region: eu-central-1 }}\n");
        for (before, after) in [(LEAST, &*both), (&*both, LEAST)] {
            assert_eq!(needing(before, after), ["aws (a cloud's whole section)"]);
        }
    }

    #[test]
    fn role_sources_are_reloaded_as_far_as_their_annotations_are_heard_of() {
        let by = |sources: &str| {
            format!(
                "identity: {{ strategy: source-ip, nodeName: n1 }}\naws: {{ region: eu-central-1, roleSources: [{sources}] }}\n"
            )
        };
        assert!(needing(&by("irsa, kiam"), &by("irsa")).is_empty());
        let more = needing(&by("irsa"), &by("irsa, kiam"));
        assert!(more[0].starts_with("aws.roleSources ") && more.len() == 1, "{more:?}");
        // A static identity file contains all annotations, so the agent watches none.
        let of_file = |sources| by(sources).replace("source-ip, nodeName: n1", "static, file: f");
        assert!(needing(&of_file("irsa"), &of_file("irsa, kiam")).is_empty());
    }
}
