//! Defines the flags of GKE's own DaemonSet gke-metadata-server and their translation.
//!
//! Google does not document these flags. They are those of the DaemonSet's manifest on a GKE cluster (component version 0.2.21);
//! newer versions name the pool by `--workload-pool`. The emulator of the same name (matheuscscp/gke-metadata-server) has other
//! flags, and this file does not know them.

use serde_json::{Map, Value};

use super::config_builder::ConfigBuilder;
use super::imported_flags::{ImportOption, RequiredSetting, SourceTool, ToolFlag};

pub(super) const GKE_METADATA_SERVER: SourceTool = SourceTool {
    command_name: "gke-metadata-server",
    title: "gke-metadata-server",
    placement: "Put these keys below `config` in the values.yaml of the Helm chart. The chart sets where the agent listens and how it identifies pods.",
    ignored_words: &["gke-metadata-server"],
    options: &[
        ImportOption {
            seawall_option_name: "project-number",
            value_placeholder: "NUMBER",
            config_key: "google.numericProjectId",
            is_number: true,
        },
        ImportOption {
            seawall_option_name: "zone",
            value_placeholder: "ZONE",
            config_key: "google.zone",
            is_number: false,
        },
    ],
    required_settings: &[
        RequiredSetting {
            is_missing: |draft| !draft.has_key("google.numericProjectId"),
            error_message: "these flags do not name the project's number: give --project-number NUMBER before `--` (gcloud projects describe \
                            PROJECT --format='value(projectNumber)')",
        },
        RequiredSetting {
            is_missing: |draft| !draft.has_key("google.zone"),
            error_message: "these flags do not name the zone: give --zone ZONE before `--`; if the nodes are in several zones, give their region",
        },
        RequiredSetting {
            is_missing: |draft| !draft.has_key("google.exchange"),
            error_message: "these flags do not name the token exchange: add --token-exchange-endpoint",
        },
        RequiredSetting {
            is_missing: |draft| !draft.has_key(PROVIDER),
            error_message: "these flags do not name the workload identity provider: add --identity-namespace (or --workload-pool) and \
                            --identity-provider-id",
        },
        RequiredSetting {
            is_missing: |draft| !draft.has_key("google.projectId"),
            error_message: "these flags do not name the project: add --identity-provider-id with the URL of the cluster",
        },
        RequiredSetting {
            is_missing: |draft| !draft.has_key(CLUSTER_NAME) || !draft.has_key(CLUSTER_LOCATION),
            error_message: "these flags do not name the cluster and its location: add cluster-name and cluster-location to --attributes",
        },
    ],
    flags: &[FLAGS],
    set_defaults: |_| {},
    set_dependent_keys: finish,
};

const PROVIDER: &str = "google.workloadIdentityProvider";
const CLUSTER_NAME: &str = "google.cluster.name";
const CLUSTER_LOCATION: &str = "google.cluster.location";

const FLAGS: &[ToolFlag] = &[
    ToolFlag::new_unsupported_boolean("logtostderr", "nothing to do: the agent logs to standard error"),
    ToolFlag::new_taking_value("v", |_, draft| {
        draft.add_remark("the key logLevel sets how much the agent logs");
    }),
    ToolFlag::new_taking_value("token-exchange-endpoint", exchange),
    ToolFlag::new_taking_value("identity-namespace", pool),
    ToolFlag::new_taking_value("workload-pool", pool),
    ToolFlag::new_deferred("identity-provider-id"),
    ToolFlag::new_taking_value("passthrough-ksa-list", passthrough),
    ToolFlag::new_taking_value("attributes", attributes),
    ToolFlag::new_boolean("enable-identity-endpoint", |is_on, draft| {
        if is_on == "false" {
            draft.add_remark(
                "the agent always serves identity tokens, to pods whose ServiceAccount has a Google service account",
            );
        }
    }),
    ToolFlag::new_taking_value("cluster-uid", |uid, draft| draft.set("google.cluster.uid", uid)),
];

/// Translates the URL of the exchange. A URL of another API stays as it is, and the configuration's parser rejects it.
fn exchange(url: &str, draft: &mut ConfigBuilder) {
    let apis = [("/v1/identitybindingtoken", "identitybindingtoken"), ("/v1/token", "sts")];
    let known = apis.into_iter().find_map(|(path, api)| Some((url.strip_suffix(path)?, api)));
    let Some((base, api)) = known else { return draft.set("google.exchange", url) };
    draft.set("google.exchange", api);
    draft.set("google.stsUrl", base);
}

fn pool(pool: &str, draft: &mut ConfigBuilder) {
    draft.set("google.workloadPool", pool);
}

const NODE_IDENTITY: &str = "pods of these ServiceAccounts get the node's identity. Pods on the node's network (hostNetwork) get it by \
                             hostNetworkPods: node, the chart's default. Remove each ServiceAccount whose pods are all on the node's network, and each \
                             whose pods do not need the node's identity";

/// Translates `NAMESPACE:NAME,…`. An entry of another form stays as it is, and the configuration's parser rejects it.
fn passthrough(list: &str, draft: &mut ConfigBuilder) {
    let accounts: Vec<_> = entries(list).map(|account| account.replacen(':', "/", 1)).collect();
    if !accounts.is_empty() {
        draft.set("realServer", accounts);
        draft.add_remark(NODE_IDENTITY);
    }
}

/// Translates `NAME=VALUE,…`. If an entry has another form, the text stays as it is, and the configuration's parser rejects it.
fn attributes(list: &str, draft: &mut ConfigBuilder) {
    let Some(pairs) = entries(list).map(|pair| pair.split_once('=')).collect::<Option<Vec<_>>>() else {
        return draft.set("google.attributes", list);
    };
    let mut others = Map::new();
    for (name, value) in pairs {
        match name {
            "cluster-name" => draft.set(CLUSTER_NAME, value),
            "cluster-location" => draft.set(CLUSTER_LOCATION, value),
            "cluster-uid" => draft.set("google.cluster.uid", value),
            _ => drop(others.insert(name.to_owned(), value.into())),
        }
    }
    if !others.is_empty() {
        draft.set("google.attributes", Value::Object(others));
    }
}

fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|entry| !entry.is_empty())
}

const MOVED: &str = "pods keep the annotation iam.gke.io/gcp-service-account on their ServiceAccounts, and IAM keeps its bindings";

const NODE_POOLS: &str = "make new node pools with --workload-metadata=GCE_METADATA, install the agent there and move the pods: these nodes have neither GKE's own \
                          server nor the label iam.gke.io/gke-metadata-server-enabled. Do not change a pool in place: its new nodes give pods the node's \
                          service account until an agent runs there. Remove this label from the nodeSelector of pods, and do not use it in the \
                          chart's nodeSelector";

/// Sets the keys that follow from the pool and from the cluster's URL, and adds the remarks on the chart and on the node pools.
fn finish(draft: &mut ConfigBuilder) {
    let given = |flag: &str| draft.flag_value(flag).map(str::to_owned);
    // The last flag that names the pool counts, as for the key `google.workloadPool`.
    let pool = draft.text("google.workloadPool").map(str::to_owned);
    if let (Some(pool), Some(provider)) = (&pool, given("identity-provider-id")) {
        draft.with_current_flag("identity-provider-id", |draft| {
            draft.set(PROVIDER, format!("identitynamespace:{pool}:{provider}"));
            set_cluster(&provider, draft);
        });
    }
    if let Some(pool) = pool {
        draft.add_remark(format!(
            "the chart also needs `admission: {{ extraAudiences: [\"{}\"] }}`, because this exchange takes only tokens for the pool",
            pool.escape_debug()
        ));
    }
    draft.add_remark(MOVED);
    draft.add_remark(NODE_POOLS);
}

/// Sets the project and the cluster from the cluster's URL. `--attributes` has priority, because it is the text that pods read.
fn set_cluster(url: &str, draft: &mut ConfigBuilder) {
    let mut names = url.split('/').skip_while(|name| *name != "projects");
    let [
        Some("projects"),
        Some(project),
        Some("locations" | "zones"),
        Some(location),
        Some("clusters"),
        Some(cluster),
    ] = std::array::from_fn(|_| names.next())
    else {
        return;
    };
    for (key, value) in [("google.projectId", project), (CLUSTER_LOCATION, location), (CLUSTER_NAME, cluster)]
    {
        if !draft.has_key(key) {
            draft.set(key, value);
        }
    }
}
