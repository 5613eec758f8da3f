//! Judges the counters of an Envoy.

use seawall_probe::file_reader::{HostFiles, ProbeResult};

use super::admin_page_parser::{EnvoyCluster, SidecarAnnotation};
use super::workers::{WorkerCpuLimit, judge_workers};
use super::{
    ANNOTATIONS, BREAKERS, CONNECTIONS, ENVOY, EnvoyInfo, EnvoyStats, HttpUrl, LimitUsage, PENDING, PROTOCOL,
    SPREAD,
};
use crate::finding::{DoctorFinding, DoctorStatus, pluralize, shortened};

type StatsReading = ProbeResult<EnvoyStats>;

/// Returns all findings about an Envoy that responded, in the order of the list.
pub(super) fn judge_all(
    files: &dyn HostFiles,
    place: &HttpUrl,
    info: &EnvoyInfo,
    (before, after): (&StatsReading, &StatsReading),
    near: &ProbeResult<Vec<LimitUsage>>,
) -> Vec<DoctorFinding> {
    let (stalls, workers_of) = match after {
        Ok(stats) => (stats.stalls, spread(info, stats)),
        Err(why) => (0, DoctorFinding::unknown(SPREAD, why, LOOK)),
    };
    let mut found = vec![
        envoy(place, info),
        judge_workers(info, &WorkerCpuLimit::of(files, place, info), stalls),
        workers_of,
    ];
    match (before, after) {
        (Ok(before), Ok(after)) => {
            found.push(pending(before, after));
            found.push(breakers(before, after, near));
            found.push(connections(before, after));
            found.push(protocol(before, after));
        }
        (Err(why), _) | (_, Err(why)) => {
            found.extend(
                [PENDING, BREAKERS, CONNECTIONS, PROTOCOL].map(|id| DoctorFinding::unknown(id, why, LOOK)),
            );
        }
    }
    found.push(annotations(info));
    found
}

const LOOK: &str = "look at /stats?usedonly of Envoy's admin port";

/// Describes the Envoy.
fn envoy(place: &HttpUrl, info: &EnvoyInfo) -> DoctorFinding {
    let istio = info
        .istio
        .as_ref()
        .map_or_else(String::new, |istio| format!(" of Istio {}", shortened(&istio.version)));
    let text = format!(
        "Envoy {}{istio} at {}, {}, up for {}",
        shortened(&info.version),
        place.authority,
        shortened(&info.state),
        shortened(&info.uptime)
    );
    let found = DoctorFinding::ok(ENVOY, text);
    if info.state == "LIVE" {
        return found;
    }
    found.with_status(
        DoctorStatus::Warning,
        "Envoy has no configuration yet, or it is draining",
        "look at Envoy's log and at /config_dump; Istio: istioctl proxy-status, and holdApplicationUntilProxyStarts if the program starts first",
    )
}

/// The least number of connections per worker for a verdict. With fewer, an uneven spread may be chance.
const ENOUGH: u64 = 8;

/// Judges how the kernel spread the open connections of each listener over the workers.
fn spread(info: &EnvoyInfo, stats: &EnvoyStats) -> DoctorFinding {
    let workers = info.concurrency.max(1);
    let judged = stats.worker_connections.iter().map(|(listener, by)| {
        let all: u64 = sum(by.values().map(|accepted| accepted.active));
        let most = by
            .iter()
            .max_by_key(|(_, accepted)| accepted.active)
            .map(|(worker, accepted)| (*worker, accepted.active));
        (listener, all, most.unwrap_or_default())
    });
    let Some((listener, all, (worker, most))) = judged.max_by_key(|(_, all, (_, most))| (*most, *all)) else {
        return DoctorFinding::ok(SPREAD, "Envoy has accepted no connection yet".to_owned())
            .with_measurement("connections", 0.0, "connections");
    };
    let total =
        sum(stats.worker_connections.values().flat_map(|by| by.values()).map(|accepted| accepted.total));
    let text = format!(
        "listener {} has {all} open connections, and worker {worker} serves {most} of them; all workers accepted {total} connections since Envoy's start",
        shortened(listener)
    );
    let found = DoctorFinding::ok(SPREAD, text)
        .with_measurement("connections", all as f64, "connections")
        .with_measurement("most", most as f64, "connections");
    let fair = all as f64 / workers as f64;
    // The bound is three standard deviations above an even spread.
    let by_chance = fair + 3.0 * (fair * (1.0 - 1.0 / workers as f64)).sqrt();
    if workers == 1 || all < ENOUGH * workers || (most as f64) < (2.0 * fair).max(by_chance).min(all as f64) {
        return found;
    }
    found.with_status(
        DoctorStatus::Warning,
        "a connection stays with the worker that accepted it, so one worker is busy while others are idle",
        "open more connections, and renew them now and then (max_connection_duration; gRPC: MAX_CONNECTION_AGE of the \
         server); or let the listener balance exactly (connection_balance_config: exact_balance; Istio: annotation \
         proxy.istio.io/config, by EnvoyFilter)",
    )
}

/// The default errors objective of `find`, in percent.
const LOST: f64 = 0.1;

/// A ratio of counters of a cluster, such as refused requests to all requests.
#[derive(Clone, Copy)]
struct CounterRatio {
    of: fn(&EnvoyCluster) -> u64,
    whole: fn(&EnvoyCluster) -> u64,
}

impl CounterRatio {
    fn share(self, cluster: &EnvoyCluster) -> f64 {
        percent((self.of)(cluster), (self.whole)(cluster))
    }
}

/// Returns the worst cluster, and by how much the counter grew during the check, summed over all clusters.
///
/// The worst cluster is the one whose counter grew most. If none grew, it is the one with the largest share since Envoy's start.
fn worst<'a>(
    before: &EnvoyStats,
    after: &'a EnvoyStats,
    part: CounterRatio,
) -> Option<(&'a str, &'a EnvoyCluster, u64)> {
    let grown = |name: &String, cluster: &EnvoyCluster| {
        (part.of)(cluster).saturating_sub(before.clusters.get(name).map_or(0, part.of))
    };
    let some = || after.clusters.iter().filter(|(_, cluster)| (part.of)(cluster) > 0);
    let (name, most) = some().max_by(|(name, one), (other_name, other)| {
        let shares = part.share(one).total_cmp(&part.share(other));
        grown(name, one).cmp(&grown(other_name, other)).then(shares)
    })?;
    Some((name, most, sum(some().map(|(name, cluster)| grown(name, cluster)))))
}

/// Judges the requests that Envoy refused because too many requests waited for a connection.
fn pending(before: &EnvoyStats, after: &EnvoyStats) -> DoctorFinding {
    // Envoy does not count refused requests as sent.
    let part = CounterRatio {
        of: |cluster| cluster.pending_overflow,
        whole: |cluster| cluster.requests.saturating_add(cluster.pending_overflow),
    };
    let Some((name, cluster, now)) = worst(before, after, part) else {
        let text = "Envoy refused no request because of the limit of pending requests".to_owned();
        return DoctorFinding::ok(PENDING, text)
            .with_measurement("now", 0.0, "requests")
            .with_measurement("ever", 0.0, "requests");
    };
    let ever = cluster.pending_overflow;
    let share = part.share(cluster);
    let text = format!(
        "because of the limit of pending requests, Envoy refused {now} requests during this check; since Envoy's start, it refused {ever} of {} requests to the worst cluster, {}",
        (part.whole)(cluster),
        shortened(name)
    );
    let found = DoctorFinding::ok(PENDING, text)
        .with_measurement("now", now as f64, "requests")
        .with_measurement("ever", ever as f64, "requests")
        .with_measurement("share", share, "%");
    let status = match now {
        0 if share < LOST => return found,
        0 => DoctorStatus::Warning,
        _ => DoctorStatus::Error,
    };
    found.with_status(
        status,
        "Envoy itself responds 503 (UO in its log, x-envoy-overloaded) in a millisecond, even if the server is idle",
        "raise max_pending_requests and max_connections of the cluster's circuit breakers (Istio: DestinationRule connectionPool.http.http1MaxPendingRequests, \
         tcp.maxConnections), or speak HTTP/2 upstream (h2UpgradePolicy)",
    )
}

/// Above this share, the next burst reaches the limit.
const NEARLY: f64 = 80.0;

/// Judges the circuit breakers that are open, have prevented connections or retries, or are near their limit.
fn breakers(before: &EnvoyStats, after: &EnvoyStats, near: &ProbeResult<Vec<LimitUsage>>) -> DoctorFinding {
    let seen = BreakerSummary::seen(before, after, near);
    let share = seen.nearest.map_or(0.0, LimitUsage::used_percent);
    let found = DoctorFinding::ok(BREAKERS, seen.told())
        .with_measurement("open", seen.open.map_or(0, |_| seen.others + 1) as f64, "clusters")
        .with_measurement("now", seen.cut.map_or(0.0, |(_, _, now)| now as f64), "connections")
        .with_measurement("share", share, "%");
    let status = match (seen.open, seen.cut, near) {
        (Some(_), ..) | (_, Some((_, _, 1..)), _) => DoctorStatus::Error,
        (_, Some(_), _) => DoctorStatus::Warning,
        _ if share >= NEARLY => DoctorStatus::Warning,
        (.., Err(why)) => {
            return found.with_status(
                DoctorStatus::Unknown,
                format!("the check cannot see how close the clusters are to their limits: {why}"),
                "look at /clusters of Envoy's admin port",
            );
        }
        _ => return found,
    };
    found.with_status(
        status,
        "above max_connections, requests wait until a connection is free; above the other limits, Envoy refuses requests with 503 at once",
        "first check whether the server has become slower. If it has not, raise the named limit in the cluster's circuit \
         breakers (Istio: DestinationRule connectionPool; for the limit of retries, maxRetries)",
    )
}

/// A summary of the circuit breakers.
struct BreakerSummary<'a> {
    /// A cluster with an open breaker. The connection breaker does not count, because requests only wait for it.
    open: Option<(&'a str, &'a EnvoyCluster)>,
    /// The number of further clusters with an open breaker.
    others: usize,
    /// The worst cluster by prevented connections and retries, and the number of both in all clusters during the check.
    cut: Option<(&'a str, &'a EnvoyCluster, u64)>,
    /// The limit with the highest use.
    nearest: Option<&'a LimitUsage>,
}

impl<'a> BreakerSummary<'a> {
    fn seen(before: &EnvoyStats, after: &'a EnvoyStats, near: &'a ProbeResult<Vec<LimitUsage>>) -> Self {
        let is_open = |cluster: &EnvoyCluster| {
            cluster.open_breakers.iter().any(|breaker| !breaker.ends_with("cx_open"))
        };
        let cuts = CounterRatio {
            of: |cluster| cluster.connection_overflow.saturating_add(cluster.retry_overflow),
            whole: |cluster| cluster.connections.saturating_add(cluster.requests),
        };
        let clusters = after.clusters.iter().map(|(name, cluster)| (name.as_str(), cluster));
        let mut open = clusters.filter(|(_, cluster)| is_open(cluster));
        Self {
            open: open.next(),
            others: open.count(),
            cut: worst(before, after, cuts),
            nearest: near
                .iter()
                .flatten()
                .max_by(|one, other| one.used_percent().total_cmp(&other.used_percent())),
        }
    }

    fn told(&self) -> String {
        let others = if self.others > 0 {
            format!("; so are circuit breakers of {}", pluralize(self.others as f64, "other cluster"))
        } else {
            String::new()
        };
        let open = self.open.map(|(name, cluster)| {
            format!(
                "these circuit breakers of {} are open now: {}{others}",
                shortened(name),
                shortened(&cluster.open_breakers.join(", "))
            )
        });
        let cut = self.cut.map(|(name, cluster, now)| {
            format!(
                "limits prevented {} connections and {} retries to the worst cluster, {}, since Envoy's start, and {now} to all clusters during this check",
                cluster.connection_overflow, cluster.retry_overflow, shortened(name)
            )
        });
        let nearest = self.nearest.filter(|near| near.used > 0);
        let nearest = nearest.map(|near| {
            format!(
                "the most used limit is at {} of {} {} to {}",
                near.used,
                near.most,
                near.what,
                shortened(&near.cluster)
            )
        });
        let told: Vec<_> = [open, cut, nearest].into_iter().flatten().collect();
        if told.is_empty() {
            return "all circuit breakers are closed and have prevented nothing".to_owned();
        }
        told.join("; ")
    }
}

/// The least number of requests for a verdict. With fewer, the use of connections says nothing.
const SEEN: u64 = 100;

/// Judges the upstream connections: failures, and the number of requests per connection.
fn connections(before: &EnvoyStats, after: &EnvoyStats) -> DoctorFinding {
    let all = sum(after.clusters.values().map(|cluster| cluster.connections));
    let requests = sum(after.clusters.values().map(|cluster| cluster.requests));
    let failures =
        CounterRatio { of: |cluster| cluster.connect_failure_count, whole: |cluster| cluster.connections };
    let failed = worst(before, after, failures);
    let lost = failed.map_or(0.0, |(_, cluster, _)| failures.share(cluster));
    let wasteful = after.clusters.iter().filter(|(_, cluster)| {
        cluster.requests >= SEEN && cluster.connections.saturating_mul(2) >= cluster.requests
    });
    let wasteful = wasteful.max_by_key(|(_, cluster)| cluster.connections);
    let text = match (failed, wasteful) {
        (Some((name, cluster, now)), _) => format!(
            "since Envoy's start, {} of {} connections to {} failed; during this check, {now} connections to all clusters failed",
            cluster.connect_failure_count,
            cluster.connections,
            shortened(name)
        ),
        (None, Some((name, cluster))) => {
            format!(
                "Envoy opened {} connections for {} requests to {}",
                cluster.connections,
                cluster.requests,
                shortened(name)
            )
        }
        (None, None) => format!(
            "Envoy opened {all} connections for {requests} requests to {}; none failed",
            pluralize(after.clusters.len() as f64, "cluster")
        ),
    };
    let now = failed.map_or(0, |(_, _, now)| now);
    let found = DoctorFinding::ok(CONNECTIONS, text)
        .with_measurement("connections", all as f64, "connections")
        .with_measurement("requests", requests as f64, "requests")
        .with_measurement("failed-now", now as f64, "connections")
        .with_measurement("failed", lost, "%");
    if now > 0 || lost >= LOST {
        let status = if now > 0 { DoctorStatus::Error } else { DoctorStatus::Warning };
        return found.with_status(
            status,
            "a request waits until its connection fails, and then fails too (UF, 503), unless Envoy retries",
            "check that the servers of the named cluster listen and can be reached. Possible causes: stale endpoints, a NetworkPolicy, mutual TLS on one side only. See also the check ports.use",
        );
    }
    match wasteful {
        None => found,
        Some(_) => found.with_status(
            DoctorStatus::Warning,
            "nearly every request opens a connection: each request waits for handshakes (TCP and TLS) and leaves a port in TIME_WAIT (ports.use)",
            "let the server keep connections alive for longer than Envoy's idle timeout, and look for maxRequestsPerConnection: 1 in a DestinationRule",
        ),
    }
}

/// Describes the upstream protocols and judges failed protocol detection.
fn protocol(before: &EnvoyStats, after: &EnvoyStats) -> DoctorFinding {
    let count =
        |of: fn(&EnvoyCluster) -> u64| after.clusters.values().filter(|cluster| of(cluster) > 0).count();
    let (http1, http2) =
        (count(|cluster| cluster.http1_connections), count(|cluster| cluster.http2_connections));
    let (now, ever) =
        (after.protocol_timeouts.saturating_sub(before.protocol_timeouts), after.protocol_timeouts);
    let text = format!(
        "Envoy uses HTTP/1.1 to {} and HTTP/2 to {http2}; Envoy detected the protocol of {} connections by their first bytes, and \
         {ever} timed out in detection ({now} during this check)",
        pluralize(http1 as f64, "cluster"),
        after.http_detected_count
    );
    let found = DoctorFinding::ok(PROTOCOL, text)
        .with_measurement("http1", http1 as f64, "clusters")
        .with_measurement("http2", http2 as f64, "clusters")
        .with_measurement("now", now as f64, "connections")
        .with_measurement("ever", ever as f64, "connections");
    let status = match (now, ever) {
        (_, 0) => return found,
        (0, _) => DoctorStatus::Warning,
        _ => DoctorStatus::Error,
    };
    found.with_status(
        status,
        "Envoy cannot detect protocols in which the server speaks first (MySQL, SMTP): each connection waits for the whole listener_filters_timeout",
        "declare the protocol of the port (Kubernetes: appProtocol, or a port name such as tcp-mysql), so that Envoy skips detection",
    )
}

/// Compares Istio's annotations with the running Envoy.
fn annotations(info: &EnvoyInfo) -> DoctorFinding {
    let Some(istio) = &info.istio else {
        return DoctorFinding::ok(
            ANNOTATIONS,
            "this Envoy is not part of Istio, so no annotations apply".to_owned(),
        );
    };
    let told: Vec<_> =
        istio.annotations.iter().take(MOST_ANNOTATIONS).map(|(name, kept)| told(name, kept)).collect();
    let text = if told.is_empty() {
        "the pod has no annotations for its sidecar".to_owned()
    } else {
        told.join(", ")
    };
    let found = DoctorFinding::ok(ANNOTATIONS, text);
    let asked = istio.annotated_concurrency().or(istio.concurrency);
    if let Some(asked) = asked.filter(|asked| *asked > 0 && *asked != info.concurrency) {
        return found.with_measurement("asked", asked as f64, "threads").with_status(
            DoctorStatus::Warning,
            format!("{asked} workers are requested, but {} run", info.concurrency),
            "restart the pod: annotations take effect at its start",
        );
    }
    match istio.cpu_limit() {
        Some(limit) if limit < 1.0 => found.with_measurement("limit", limit, "cores").with_status(
            DoctorStatus::Warning,
            format!(
                "with a limit of {limit} cores, one busy worker runs for {:.0} ms of each 100 ms and then stops, with all its requests",
                limit * 100.0
            ),
            "raise sidecar.istio.io/proxyCPULimit to at least one core, or remove it and keep sidecar.istio.io/proxyCPU",
        ),
        _ => found,
    }
}

/// The most annotations that the finding lists. A pod has only a few.
const MOST_ANNOTATIONS: usize = 50;

/// Describes an annotation by its name and parsed value.
fn told(name: &str, kept: &SidecarAnnotation) -> String {
    let name = shortened(name);
    match kept {
        SidecarAnnotation::Cores(cores) => format!("{name}: {}", pluralize(*cores, "core")),
        SidecarAnnotation::Bytes(bytes) => format!("{name}: {bytes} bytes"),
        SidecarAnnotation::Concurrency(workers) => format!("{name}: concurrency {workers}"),
        SidecarAnnotation::Ignored => name,
    }
}

/// Adds up counts without overflow.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}
