//! Reads the section `limits`: the limits on connections, timeouts, long polls and upstream requests.

use std::time::Duration;

use seawall_config::DocumentTable;
use seawall_config::values::{parse_duration, serialize_duration};
use serde::Serialize;

use super::dump::serialize_count_or_auto;

/// The limits on clients' connections, waits and requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LimitsConfig {
    /// The maximum number of connections of all pods together. `None` allows as many as memory and open files permit.
    #[serde(serialize_with = "serialize_count_or_auto")]
    pub(crate) connections: Option<u32>,
    /// The maximum number of connections of one pod. `None` allows as many as all pods together may have.
    #[serde(serialize_with = "serialize_count_or_auto")]
    pub(crate) connections_per_pod: Option<u32>,
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) header_timeout: Duration,
    #[serde(serialize_with = "serialize_duration")]
    pub(crate) idle_timeout: Duration,
    pub(crate) long_polls: u32,
    pub(crate) long_polls_per_pod: u32,
    pub(crate) upstream_requests: u32,
}

impl LimitsConfig {
    pub(super) fn read(table: &DocumentTable<'_>) -> Self {
        let count = |key, default: u32, most: u32| {
            table
                .node_of_key(key)
                .number(1..=u64::from(most))
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(default)
        };
        let count_or_auto = |key| {
            let counted = |text: &str| match text {
                "auto" => Some(None),
                number => number.parse().ok().filter(|n| (1..=1_000_000).contains(n)).map(Some),
            };
            table.node_of_key(key).text("auto, or a whole number from 1 to 1000000", counted).flatten()
        };
        let span = |key, default| {
            table
                .node_of_key(key)
                .text("a duration such as 500ms, 2s or 5m", parse_duration)
                .unwrap_or(default)
        };
        let limits = Self {
            connections: count_or_auto("connections"),
            connections_per_pod: count_or_auto("connectionsPerPod"),
            header_timeout: span("headerTimeout", Duration::from_secs(2)),
            idle_timeout: span("idleTimeout", Duration::from_secs(60)),
            long_polls: count("longPolls", 256, 65_536),
            long_polls_per_pod: count("longPollsPerPod", 16, 65_536),
            upstream_requests: count("upstreamRequests", 64, 65_536),
        };
        if limits.connections.zip(limits.connections_per_pod).is_some_and(|(all, own)| own > all) {
            table.node_of_key("connectionsPerPod").reject("at most limits.connections");
        }
        limits
    }
}
