//! Writes the page `/debug/pods`, which shows each pod's leases and their remaining lifetime. The page contains names and times,
//! never a secret.

use std::net::IpAddr;

use seawall_clouds::pod::PodEntry;
use seawall_core::Moment;
use serde_json::{Map, Value, json};

use seawall_identity::pod_resolver::PodResolver;

/// Returns the current configuration and every known pod with its leases, as JSON.
///
/// The function writes the pods one by one. One JSON value for all pods would need many times the memory of the final text.
pub fn pods_json(configuration: &Value, callers: &PodResolver, now: Moment) -> String {
    let configuration = format!("{configuration:#}").replace('\n', "\n  ");
    let mut text = format!(
        "{{\n  \"kind\": \"pods\",\n  \"version\": 1,\n  \"configuration\": {configuration},\n  \"pods\": ["
    );
    for (place, caller) in callers.pods().iter().enumerate() {
        text.push_str(if place == 0 { "\n    " } else { ",\n    " });
        text.push_str(
            &format!("{:#}", pod(caller, callers.pod_addresses(caller), now)).replace('\n', "\n    "),
        );
    }
    text.push_str("\n  ]\n}\n");
    text
}

fn pod(caller: &PodEntry, addresses: &[IpAddr], now: Moment) -> Value {
    let pod = &caller.pod;
    let mut shown = Map::new();
    let mut show = |key: &str, value: Value| shown.insert(key.to_owned(), value);
    show("address", json!(addresses.first().map(ToString::to_string)));
    show("addresses", json!(addresses.iter().map(ToString::to_string).collect::<Vec<_>>()));
    show("namespace", pod.service_account.namespace.as_ref().into());
    show("pod", pod.name.as_ref().into());
    show("service_account", pod.service_account.name.as_ref().into());
    show("open_connections", caller.connection_counter.open_count().into());
    shown.extend(caller.entitlements().to_debug_json(now));
    shown.into()
}
