//! Parses the pages of Envoy's admin port (envoyproxy.io/docs, "Administration interface"), which are JSON or lines of text. An unexpected
//! value is left out and does not affect other values.

use std::collections::BTreeMap;

use serde_json::Value;

/// The page `/server_info`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EnvoyInfo {
    /// The version, such as `1.40.0`.
    pub(super) version: String,
    /// The state: `LIVE`, `DRAINING`, `PRE_INITIALIZING` or `INITIALIZING`.
    pub(super) state: String,
    /// The uptime as Envoy writes it, such as `86400s`.
    pub(super) uptime: String,
    /// The number of worker threads.
    pub(super) concurrency: u64,
    /// The metadata of the pod; none without Istio.
    pub(super) istio: Option<IstioMetadata>,
}

/// The metadata that Istio gives its sidecars about their pod (istio.io, `pkg/model/proxy.go`, `NodeMetadata`).
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct IstioMetadata {
    pub(super) version: String,
    /// The annotations for the sidecar, by name.
    pub(super) annotations: BTreeMap<String, SidecarAnnotation>,
    /// The concurrency from the mesh configuration and `proxy.istio.io/config`.
    pub(super) concurrency: Option<u64>,
}

/// The parsed value of an annotation. Annotations may contain tokens and keys, so only the checked values are kept, and only in parsed
/// form.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SidecarAnnotation {
    /// An amount of CPU in cores.
    Cores(f64),
    /// An amount of memory in bytes.
    Bytes(f64),
    /// The `concurrency: N` of `proxy.istio.io/config`.
    Concurrency(u64),
    /// Any other value, which is not kept.
    Ignored,
}

impl SidecarAnnotation {
    /// Parses an annotation; none if it is not for a sidecar.
    fn read(name: &str, value: &str) -> Option<Self> {
        let (_, own) = name.split_once("istio.io/").filter(|(who, _)| FOR_SIDECARS.contains(who))?;
        let read = match own {
            "proxyCPU" | "proxyCPULimit" => cores(value).map(Self::Cores),
            "proxyMemory" | "proxyMemoryLimit" => bytes(value).map(Self::Bytes),
            "config" => concurrency(value).map(Self::Concurrency),
            _ => None,
        };
        Some(read.unwrap_or(Self::Ignored))
    }
}

/// The prefixes of annotations for sidecars, before `istio.io/`.
const FOR_SIDECARS: [&str; 3] = ["sidecar.", "proxy.", "traffic.sidecar."];

impl EnvoyInfo {
    /// Parses the page; none if Envoy did not write it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let all: Value = serde_json::from_str(text).ok()?;
        let text = |name: &str| all[name].as_str().map(str::to_owned);
        // The text has the commit, the version and the build, separated by slashes.
        let version = text("version")?.split('/').nth(1)?.to_owned();
        let concurrency = all["command_line_options"]["concurrency"].as_u64()?;
        let uptime = text("uptime_current_epoch").unwrap_or_default();
        let istio = IstioMetadata::parse(&all["node"]["metadata"]);
        Some(Self { version, state: text("state")?, uptime, concurrency, istio })
    }
}

impl IstioMetadata {
    fn parse(metadata: &Value) -> Option<Self> {
        let version = metadata["ISTIO_VERSION"].as_str()?.to_owned();
        let annotations = metadata["ANNOTATIONS"].as_object().into_iter().flatten();
        let annotations = annotations
            .filter_map(|(name, value)| Some((name.clone(), SidecarAnnotation::read(name, value.as_str()?)?)))
            .collect();
        Some(Self { version, annotations, concurrency: metadata["PROXY_CONFIG"]["concurrency"].as_u64() })
    }

    /// Takes the annotations from a downward API file (lines of `name="value"` with Go's quoting) if Envoy's own metadata has
    /// none.
    pub(super) fn fill_annotations_if_empty(&mut self, file: &str) {
        let lines = file.lines().filter_map(|line| line.split_once('='));
        let read = lines.filter_map(|(name, value)| {
            let value: String = serde_json::from_str(value).ok()?;
            Some((name.to_owned(), SidecarAnnotation::read(name, &value)?))
        });
        if self.annotations.is_empty() {
            self.annotations = read.collect();
        }
    }

    /// Returns the CPU limit of the sidecar's container in cores, if an annotation sets it.
    pub(super) fn cpu_limit(&self) -> Option<f64> {
        match self.annotations.get("sidecar.istio.io/proxyCPULimit")? {
            SidecarAnnotation::Cores(cores) => Some(*cores),
            _ => None,
        }
    }

    /// Returns the `concurrency: N` of `proxy.istio.io/config`.
    pub(super) fn annotated_concurrency(&self) -> Option<u64> {
        match self.annotations.get("proxy.istio.io/config")? {
            SidecarAnnotation::Concurrency(workers) => Some(*workers),
            _ => None,
        }
    }
}

/// Finds the concurrency in YAML lines or in JSON.
fn concurrency(config: &str) -> Option<u64> {
    let json = serde_json::from_str::<Value>(config).ok().and_then(|all| all["concurrency"].as_u64());
    json.or_else(|| {
        config.lines().find_map(|line| line.trim().strip_prefix("concurrency:")?.trim().parse().ok())
    })
}

/// Parses a CPU quantity of Kubernetes, such as `2`, `0.5` or `500m`.
fn cores(quantity: &str) -> Option<f64> {
    let quantity = quantity.trim();
    let cores = match quantity.strip_suffix('m') {
        Some(thousandths) => thousandths.parse::<u32>().ok()? as f64 / 1e3,
        None => quantity.parse().ok()?,
    };
    (cores > 0.0 && cores < 1e4).then_some(cores)
}

/// Parses a memory quantity of Kubernetes, such as `128Mi`, `1G` or `1e9`.
fn bytes(quantity: &str) -> Option<f64> {
    let quantity = quantity.trim();
    let (number, factor) = UNITS
        .iter()
        .find_map(|(unit, factor)| Some((quantity.strip_suffix(unit)?, *factor)))
        .unwrap_or((quantity, 1.0));
    let bytes = number.parse::<f64>().ok()? * factor;
    (bytes > 0.0 && bytes < 1e18).then_some(bytes)
}

/// The units of quantities in bytes (kubernetes.io, "Resource units"). Two-letter units come before their one-letter endings.
const UNITS: [(&str, f64); 8] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
];

/// The path of the used counters that the check reads; a large mesh would have too many others. The path escapes `(`, `|`, `$`, `\` and `+`
/// as far as Envoy's parser requires.
pub(super) const STATS_PATH: &str = "/stats?usedonly&filter=%5Ecluster%5C..*%5C.(circuit_breakers%7Cupstream_(cx_(overflow%7Ctotal%7Chttp1_total%7Chttp2_total%7Cconnect_fail)\
                                %7Crq_(total%7Cpending_overflow%7Cretry_overflow))%24)%7C%5C.worker_%5B0-9%5D%2B%5C.(downstream_cx_(active%7Ctotal)%7Cwatchdog_miss)%24\
                                %7C%5C.downstream_pre_cx_timeout%24%7C_inspector%5C.";

/// The counters of `/stats`. A missing counter is 0, because Envoy has never touched it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct EnvoyStats {
    /// The upstream clusters by name.
    pub(super) clusters: BTreeMap<String, EnvoyCluster>,
    /// The connections by listener and worker.
    pub(super) worker_connections: BTreeMap<String, BTreeMap<u32, WorkerConnections>>,
    /// The number of times a worker did not return to its event loop for 200 ms (`watchdog_miss`, its default).
    pub(super) stalls: u64,
    /// The connections whose protocol Envoy detected as HTTP from the first bytes.
    pub(super) http_detected_count: u64,
    /// The connections whose protocol detection timed out.
    pub(super) protocol_timeouts: u64,
}

/// The connections of one worker on a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WorkerConnections {
    /// The open connections.
    pub(super) active: u64,
    /// The connections since the start.
    pub(super) total: u64,
}

/// The counters of an upstream cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct EnvoyCluster {
    pub(super) connections: u64,
    pub(super) http1_connections: u64,
    pub(super) http2_connections: u64,
    pub(super) connect_failure_count: u64,
    pub(super) connection_overflow: u64,
    pub(super) requests: u64,
    pub(super) pending_overflow: u64,
    pub(super) retry_overflow: u64,
    /// The open circuit breakers, such as `default.rq_open`.
    pub(super) open_breakers: Vec<String>,
}

impl EnvoyStats {
    /// Parses the page; none if no line is a counter.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut stats = Self::default();
        let mut is_any = text.trim().is_empty();
        for line in text.lines() {
            // Lines of histograms have no number. The last colon ends the name, which may contain colons.
            let Some((name, value)) = line.rsplit_once(": ") else { continue };
            let Ok(value) = value.trim().parse() else { continue };
            is_any = true;
            stats.take(name, value);
        }
        is_any.then_some(stats)
    }

    fn take(&mut self, name: &str, value: u64) {
        if let Some(rest) = name.strip_prefix("cluster.") {
            self.of_cluster(rest, value);
        } else if let Some(rest) = name.strip_prefix("listener.") {
            self.of_listener(rest, value);
        } else if name.starts_with("server.worker_") && name.ends_with(".watchdog_miss") {
            self.stalls = self.stalls.saturating_add(value);
        } else if name.starts_with("http_inspector.http") && name.ends_with("_found") {
            self.http_detected_count = self.http_detected_count.saturating_add(value);
        }
    }

    fn of_cluster(&mut self, rest: &str, value: u64) {
        if let Some((name, breaker)) = rest.split_once(".circuit_breakers.") {
            if breaker.ends_with("_open") && value > 0 {
                self.cluster(name).open_breakers.push(breaker.to_owned());
            }
            return;
        }
        let Some((name, counter)) = rest.rsplit_once('.') else { return };
        let field: fn(&mut EnvoyCluster) -> &mut u64 = match counter {
            "upstream_cx_total" => |cluster| &mut cluster.connections,
            "upstream_cx_http1_total" => |cluster| &mut cluster.http1_connections,
            "upstream_cx_http2_total" => |cluster| &mut cluster.http2_connections,
            "upstream_cx_connect_fail" => |cluster| &mut cluster.connect_failure_count,
            "upstream_cx_overflow" => |cluster| &mut cluster.connection_overflow,
            "upstream_rq_total" => |cluster| &mut cluster.requests,
            "upstream_rq_pending_overflow" => |cluster| &mut cluster.pending_overflow,
            "upstream_rq_retry_overflow" => |cluster| &mut cluster.retry_overflow,
            _ => return,
        };
        *field(self.cluster(name)) = value;
    }

    /// Returns the cluster with this name. If a name contains dots, Istio appends `;` to the name.
    fn cluster(&mut self, name: &str) -> &mut EnvoyCluster {
        self.clusters.entry(name.trim_end_matches([';', '.']).to_owned()).or_default()
    }

    fn of_listener(&mut self, rest: &str, value: u64) {
        let Some((rest, counter)) = rest.rsplit_once('.') else { return };
        if counter == "downstream_pre_cx_timeout" {
            self.protocol_timeouts = self.protocol_timeouts.saturating_add(value);
            return;
        }
        let Some((listener, worker)) = rest.rsplit_once(".worker_") else { return };
        let Ok(worker) = worker.parse() else { return };
        let accepted =
            self.worker_connections.entry(listener.to_owned()).or_default().entry(worker).or_default();
        match counter {
            "downstream_cx_active" => accepted.active = value,
            "downstream_cx_total" => accepted.total = value,
            _ => {}
        }
    }
}

/// The use of one limit of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LimitUsage {
    pub(super) cluster: String,
    /// The limited thing: `connections`, `pending requests` or `requests`.
    pub(super) what: &'static str,
    pub(super) used: u64,
    pub(super) most: u64,
}

impl LimitUsage {
    /// Returns the used share of the limit, in percent.
    pub(super) fn used_percent(&self) -> f64 {
        self.used as f64 * 100.0 / self.most.max(1) as f64
    }
}

/// Parses `/clusters?format=json`: each limit of the default priority with its current use. The result is none for another page.
pub(super) fn parse_limit_usages(text: &str) -> Option<Vec<LimitUsage>> {
    let all: Value = serde_json::from_str(text).ok()?;
    let Some(clusters) = all.get("cluster_statuses") else { return all.as_object().map(|_| Vec::new()) };
    Some(clusters.as_array()?.iter().flat_map(limits_of).collect())
}

fn limits_of(cluster: &Value) -> Vec<LimitUsage> {
    let name = cluster["name"].as_str().unwrap_or("?");
    let thresholds = cluster["circuit_breakers"]["thresholds"].as_array();
    // The default priority has no name.
    let Some(limits) = thresholds.into_iter().flatten().find(|limits| limits.get("priority").is_none())
    else {
        return Vec::new();
    };
    let hosts = cluster["host_statuses"].as_array();
    let used =
        |stat: &str| hosts.into_iter().flatten().map(|host| of_host(host, stat)).fold(0, u64::saturating_add);
    let kinds = [
        ("connections", "max_connections", "cx_active"),
        ("pending requests", "max_pending_requests", "rq_pending_active"),
        ("requests", "max_requests", "rq_active"),
    ];
    let near = kinds.into_iter().filter_map(|(what, limit, stat)| {
        // The page writes 32-bit numbers as numbers and 64-bit numbers as text.
        let most = limits[limit].as_u64()?;
        Some(LimitUsage { cluster: name.to_owned(), what, used: used(stat), most })
    });
    near.collect()
}

fn of_host(host: &Value, stat: &str) -> u64 {
    let mut stats = host["stats"].as_array().into_iter().flatten();
    let found = stats.find(|one| one["name"] == stat);
    found.and_then(|one| one["value"].as_str()?.parse().ok()).unwrap_or(0)
}
