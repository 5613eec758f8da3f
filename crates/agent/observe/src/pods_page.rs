//! Writes the page `/debug/pods`, which shows each pod's leases and their remaining lifetime. The page contains names and times,
//! never a secret.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use seawall_clouds::pod::PodEntry;
use seawall_core::Moment;
use seawall_core::cloud::CloudName;
use serde_json::{Map, Value, json};

use seawall_identity::pod_resolver::PodResolver;

/// Returns the current configuration and every known pod with its leases, as JSON. `host_network_pods_by_namespace` is the number of pods by namespace that
/// keep the real metadata server because they are on the node's network.
///
/// The function writes the pods one by one. One JSON value for all pods would need many times the memory of the final text.
pub fn pods_json(
    configuration: &Value,
    host_network_pods_by_namespace: &BTreeMap<Arc<str>, usize>,
    callers: &PodResolver,
    now: Moment,
) -> String {
    let counts = host_network_pods_by_namespace
        .iter()
        .map(|(namespace, count)| (namespace.to_string(), (*count).into()));
    let host_network_pods = Value::Object(counts.collect());
    let configuration = format!("{configuration:#}").replace('\n', "\n  ");
    let mut text = format!(
        "{{\n  \"kind\": \"pods\",\n  \"version\": 1,\n  \"configuration\": {configuration},\n  \"host_network_pods\": {host_network_pods},\n  \"pods\": ["
    );
    let keeps_real_server = |caller: &PodEntry| {
        caller.uses_host_network
            && host_network_pods_by_namespace.contains_key(&caller.pod.service_account.namespace)
    };
    for (place, caller) in callers.pods().iter().enumerate() {
        text.push_str(if place == 0 { "\n    " } else { ",\n    " });
        text.push_str(
            &format!("{:#}", pod(caller, callers.pod_addresses(caller), keeps_real_server(caller), now))
                .replace('\n', "\n    "),
        );
    }
    text.push_str("\n  ]\n}\n");
    text
}

fn pod(caller: &PodEntry, addresses: &[IpAddr], keeps_real_server: bool, now: Moment) -> Value {
    let pod = &caller.pod;
    let mut shown = Map::new();
    let mut show = |key: &str, value: Value| shown.insert(key.to_owned(), value);
    show("address", json!(addresses.first().map(ToString::to_string)));
    show("addresses", json!(addresses.iter().map(ToString::to_string).collect::<Vec<_>>()));
    show("namespace", pod.service_account.namespace.as_ref().into());
    show("pod", pod.name.as_ref().into());
    show("service_account", pod.service_account.name.as_ref().into());
    show("open_connections", caller.connection_counter.open_count().into());
    show("keeps_real_server", keeps_real_server.into());
    let mut clouds = caller.entitlements().to_debug_json(now);
    for cloud in CloudName::ALL {
        let names: Vec<_> = caller.credential_variables.names_for_cloud(*cloud).collect();
        if let Some(Value::Object(own)) = clouds.get_mut(cloud.as_str()) {
            own.insert("credential_variables".to_owned(), names.into());
            let counter = caller.fetch_counters.for_cloud(*cloud);
            let got_node_credentials = counter.got_node_credentials.load(Ordering::Relaxed);
            own.insert("got_node_credentials".to_owned(), got_node_credentials.into());
        }
    }
    shown.extend(clouds);
    shown.into()
}
