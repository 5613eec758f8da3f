//! The meaning of the known counters of servers and proxies, and of other counters by their names.
//!
//! Each name is from its own documentation: Envoy's (configuration/upstream/cluster_manager/cluster_stats, listeners/stats, HTTP
//! filters), CoreDNS' (plugins `forward` and `metrics`), and this project's (`docs/operate.md`). The first rule that fits a
//! series applies. A rise counts as far as it explains failed and late requests.

use seawall_cause::class::CauseClass;

use crate::server_side::exposition::MetricSeries;

/// The meaning of a counter that rose, or of a gauge that became positive.
pub(super) struct MetricRule {
    pub(super) metric: MetricPattern,
    /// The label that a series of the metric must have, if any.
    pub(super) label: Option<(&'static str, &'static str)>,
    pub(super) says: &'static str,
    /// The likelihood ratio of each class if the rise explains all requests that clients missed.
    pub(super) likelihood_ratios: &'static [(CauseClass, f64)],
}

/// The metrics to which a rule applies.
pub(super) enum MetricPattern {
    Named(&'static str),
    /// All metrics with this suffix. A name alone says less than documentation.
    Suffix(&'static str),
}

/// The least likelihood ratio with which a counter reliably shows a class. Then it also counts as evidence that the counter did
/// not rise.
pub(super) const MIN_STRONG_RATIO: f64 = 20.0;

/// The likelihood ratio of a class whose counter did not rise. It is not nearer to 0, because the limit can be in front of the
/// server that counts, or behind it.
pub(super) const SILENCE_RATIO: f64 = 0.3;

impl MetricRule {
    /// Returns true if the rule applies to this series.
    pub(super) fn fits(&self, series: &MetricSeries) -> bool {
        let name = match self.metric {
            MetricPattern::Named(name) => series.name == name,
            MetricPattern::Suffix(end) => series.name.ends_with(end),
        };
        let label = |(name, value)| series.labels.iter().any(|(key, of)| key == name && of == value);
        name && self.label.is_none_or(label)
    }

    /// Returns the classes against which the counter speaks if it does not rise.
    pub(super) fn classes_excluded_by_silence(&self) -> impl Iterator<Item = CauseClass> {
        let named = matches!(self.metric, MetricPattern::Named(_));
        let telling =
            self.likelihood_ratios.iter().filter(move |(_, ratio)| named && *ratio >= MIN_STRONG_RATIO);
        telling.map(|(class, _)| *class)
    }
}

const fn named(
    name: &'static str,
    says: &'static str,
    speaks_for: &'static [(CauseClass, f64)],
) -> MetricRule {
    MetricRule { metric: MetricPattern::Named(name), label: None, says, likelihood_ratios: speaks_for }
}

const fn labelled(rule: MetricRule, name: &'static str, value: &'static str) -> MetricRule {
    MetricRule { label: Some((name, value)), ..rule }
}

const fn ending(
    end: &'static str,
    says: &'static str,
    speaks_for: &'static [(CauseClass, f64)],
) -> MetricRule {
    MetricRule { metric: MetricPattern::Suffix(end), label: None, says, likelihood_ratios: speaks_for }
}

use CauseClass::{
    ConcurrencyCap, ConnectionCap, Dns, KeepAliveRace, PoolSaturation, RateLimiter, TimeoutChain,
};

/// The rules for counters, in the order in which they are tried.
pub(super) const COUNTER_RULES: &[MetricRule] = &[
    // Envoy.
    named(
        "envoy_cluster_upstream_rq_pending_overflow",
        "requests refused by a cluster's circuit breaker",
        &[(ConcurrencyCap, 30.0)],
    ),
    named(
        "envoy_cluster_upstream_cx_overflow",
        "requests for which a cluster's circuit breaker allowed no further connection",
        &[(ConcurrencyCap, 5.0), (PoolSaturation, 5.0), (ConnectionCap, 3.0)],
    ),
    named(
        "envoy_cluster_upstream_rq_retry_overflow",
        "retries refused by a circuit breaker or the retry budget",
        &[(TimeoutChain, 3.0)],
    ),
    named("envoy_cluster_upstream_rq_retry", "retries by the proxy", &[(TimeoutChain, 4.0)]),
    named(
        "envoy_cluster_upstream_rq_timeout",
        "requests ended by the proxy's timeout",
        &[(TimeoutChain, 20.0)],
    ),
    named(
        "envoy_cluster_upstream_rq_per_try_timeout",
        "tries ended by the proxy's per-try timeout",
        &[(TimeoutChain, 20.0)],
    ),
    named(
        "envoy_cluster_upstream_cx_connect_timeout",
        "connect timeouts of the proxy",
        &[(ConnectionCap, 5.0)],
    ),
    named(
        "envoy_cluster_upstream_cx_destroy_remote_with_active_rq",
        "connections that the server behind the proxy closed during a request",
        &[(KeepAliveRace, 10.0)],
    ),
    named(
        "envoy_cluster_ratelimit_over_limit",
        "requests above the limit of a rate limit service",
        &[(RateLimiter, 50.0)],
    ),
    named(
        "envoy_http_local_rate_limit_rate_limited",
        "requests above a local rate limit",
        &[(RateLimiter, 50.0)],
    ),
    named(
        "envoy_listener_downstream_cx_overflow",
        "connections refused by a listener's limit",
        &[(ConnectionCap, 50.0)],
    ),
    named(
        "envoy_listener_downstream_global_cx_overflow",
        "connections refused by the limit of all listeners",
        &[(ConnectionCap, 50.0)],
    ),
    // In older versions, the name of a local limit contains a name that the operator chose.
    ending("_local_rate_limit_rate_limited", "requests above a local rate limit", &[(RateLimiter, 50.0)]),
    // CoreDNS.
    named(
        "coredns_forward_max_concurrent_rejects_total",
        "lookups refused by the limit of concurrent lookups",
        &[(Dns, 20.0)],
    ),
    named(
        "coredns_forward_healthcheck_broken_total",
        "lookups without a healthy upstream server",
        &[(Dns, 20.0)],
    ),
    labelled(
        named("coredns_dns_responses_total", "lookups answered with SERVFAIL", &[(Dns, 10.0)]),
        "rcode",
        "SERVFAIL",
    ),
    // This project's agent.
    named(
        "seawall_connections_rejected_total",
        "connections refused by a connection cap",
        &[(ConnectionCap, 50.0)],
    ),
    named(
        "seawall_credential_requests_rate_limited_total",
        "requests for new credentials that the agent refused, because one pod sent too many of them",
        &[(RateLimiter, 15.0)],
    ),
    labelled(
        named("seawall_credential_fetches_total", "calls throttled by the cloud", &[(RateLimiter, 5.0)]),
        "outcome",
        "throttled",
    ),
    // Any program.
    ending(
        "rate_limited_total",
        "rate-limited requests (judged by the metric's name)",
        &[(RateLimiter, 8.0)],
    ),
    ending("ratelimited_total", "rate-limited requests (judged by the metric's name)", &[(RateLimiter, 8.0)]),
    ending("throttled_total", "throttled requests (judged by the metric's name)", &[(RateLimiter, 6.0)]),
    ending(
        "rejected_total",
        "rejected requests (judged by the metric's name)",
        &[(RateLimiter, 2.0), (ConcurrencyCap, 3.0), (ConnectionCap, 2.0)],
    ),
    ending(
        "rejections_total",
        "rejected requests (judged by the metric's name)",
        &[(RateLimiter, 2.0), (ConcurrencyCap, 3.0), (ConnectionCap, 2.0)],
    ),
    ending(
        "overflow_total",
        "overflows (judged by the metric's name)",
        &[(ConcurrencyCap, 3.0), (ConnectionCap, 2.0)],
    ),
    ending("timeouts_total", "timeouts (judged by the metric's name)", &[(TimeoutChain, 2.0)]),
];

/// The rules for a gauge that is above 0 at the end of a window and was 0 at its start.
pub(super) const GAUGE_RULES: &[MetricRule] = &[
    named(
        "envoy_cluster_circuit_breakers_default_rq_open",
        "a cluster is at its limit of requests",
        &[(ConcurrencyCap, 10.0)],
    ),
    named(
        "envoy_cluster_circuit_breakers_default_rq_pending_open",
        "a cluster is at its limit of pending requests",
        &[(ConcurrencyCap, 10.0)],
    ),
    named(
        "envoy_cluster_circuit_breakers_default_cx_open",
        "a cluster is at its limit of connections",
        &[(ConcurrencyCap, 4.0), (PoolSaturation, 4.0)],
    ),
];

/// The words in the names of gauges that count waiting work.
pub(super) const QUEUE_WORDS: [&str; 3] = ["queue", "backlog", "pending"];

/// The counters of seconds in which the whole process paused: those of Go, of the Java client, and of Micrometer.
pub(super) const PAUSE_COUNTERS: [&str; 3] =
    ["go_gc_duration_seconds_sum", "jvm_gc_collection_seconds_sum", "jvm_gc_pause_seconds_sum"];
