//! The check `sidecar`: the state of an Envoy sidecar, read from its admin port.
//!
//! Each worker of Envoy is a thread, and a connection stays with the worker that accepted it. With one worker, all requests of the pod use
//! one core, whatever the pod's limits are. Envoy's own limits (circuit breakers, pending requests) refuse requests at once with 503.
//! Without a program on the admin port, the check has one finding, which is ok. A server that is not an Envoy gives one finding, too.

mod admin_page_parser;
mod judge;
#[cfg(test)]
mod tests;
mod workers;

use std::time::Duration;

use seawall_fetch::{FetchError, FetchLimits, FetchRequest, FetchResponse};
use seawall_probe::file_reader::{ProbeError, ProbeResult};

use self::admin_page_parser::{EnvoyInfo, EnvoyStats, LimitUsage, STATS_PATH, parse_limit_usages};
use crate::check::{CheckContext, DoctorCheck};
use crate::finding::{DoctorFinding, DoctorStatus};
use crate::http_client::HttpUrl;

const ENVOY: &str = "sidecar.envoy";
const WORKERS: &str = "sidecar.workers";
const SPREAD: &str = "sidecar.spread";
const PENDING: &str = "sidecar.pending";
const BREAKERS: &str = "sidecar.breakers";
const CONNECTIONS: &str = "sidecar.connections";
const PROTOCOL: &str = "sidecar.protocol";
const ANNOTATIONS: &str = "sidecar.annotations";

pub(crate) const CHECK: DoctorCheck = DoctorCheck {
    id: "sidecar",
    about: "an Envoy sidecar, through its admin port (127.0.0.1:15000, :9901, or --envoy-admin): worker threads compared with the CPU limit, overflow of pending requests, circuit breakers, \
            connections, protocol sniffing, Istio's annotations",
    finding_ids: &[ENVOY, WORKERS, SPREAD, PENDING, BREAKERS, CONNECTIONS, PROTOCOL, ANNOTATIONS],
    examine,
};

/// The admin ports of Istio's sidecars (`proxyAdminPort`) and of Envoy's examples.
const USUAL: [&str; 2] = ["127.0.0.1:15000", "127.0.0.1:9901"];

/// The time limit of one request. Six requests and a pause of one second take less than five seconds.
const EACH: Duration = Duration::from_millis(700);

/// The file where Istio mounts the pod's annotations.
const ANNOTATED: &str = "/etc/istio/pod/annotations";

/// The pause between two samples of the counters. A limit that refuses requests now does so again within a second.
const WINDOW: Duration = Duration::from_secs(1);

/// The largest page in bytes. Envoy's extensions alone take 120 KB of `/server_info`, and `/clusters` has half a kilobyte per endpoint.
const MOST: usize = 4 << 20;

fn examine(site: &CheckContext) -> Vec<DoctorFinding> {
    let (place, mut info) = match found(site) {
        EnvoyLookup::Envoy(place, info) => (place, info),
        EnvoyLookup::NotFound(told) => return vec![DoctorFinding::ok(ENVOY, told)],
        EnvoyLookup::Unknown(told, why) => return vec![unknown(told, why)],
    };
    if let (Some(istio), Ok(file)) = (&mut info.istio, site.files.read(ANNOTATED)) {
        istio.fill_annotations_if_empty(&file);
    }
    let before = stats(site, &place);
    (site.sleep)(WINDOW);
    let after = stats(site, &place);
    let near = get(site, &place, "/clusters?format=json", parse_limit_usages);
    judge::judge_all(site.files, &place, &info, (&before, &after), &near)
}

enum EnvoyLookup {
    Envoy(HttpUrl, EnvoyInfo),
    /// No Envoy was found; the text describes what was.
    NotFound(String),
    /// The state of Envoy is unknown, with an observation and a reason.
    Unknown(String, String),
}

/// Returns the named Envoy, or the first one that responds at a usual port.
fn found(site: &CheckContext) -> EnvoyLookup {
    let usual: Vec<_> = USUAL.iter().filter_map(|host| HttpUrl::of_host(host)).collect();
    let places = site.envoy_admin.map_or(&usual[..], std::slice::from_ref);
    let mut others = Vec::new();
    for place in places {
        match ask(site, place, "/server_info") {
            Ok(answer) => match EnvoyInfo::parse(&answer.text()).filter(|_| answer.status() == 200) {
                Some(info) => return EnvoyLookup::Envoy(place.clone(), info),
                None => others.push(format!(
                    "the server at {} is not an Envoy, or does not identify itself (status {})",
                    place.authority,
                    answer.status()
                )),
            },
            Err(FetchError::ConnectionRefused) => {}
            Err(FetchError::InvalidResponse(_)) => {
                others.push(format!("the server at {} does not speak HTTP", place.authority));
            }
            Err(why) => others.push(format!("at {}: {why}", place.authority)),
        }
    }
    let asked: Vec<_> = places.iter().map(|place| place.authority.as_str()).collect();
    let asked = asked.join(" nor at ");
    match (others.is_empty(), site.envoy_admin) {
        (true, None) => EnvoyLookup::NotFound(format!("no sidecar: no program listens at {asked}")),
        (true, Some(_)) => {
            EnvoyLookup::Unknown("unknown".to_owned(), format!("no program listens at {asked}"))
        }
        (false, _) => EnvoyLookup::Unknown("found no Envoy".to_owned(), others.join("; ")),
    }
}

fn unknown(told: String, why: String) -> DoctorFinding {
    let fix = "if the pod has an Envoy, give its admin port: --envoy-admin http://127.0.0.1:PORT";
    DoctorFinding::ok(ENVOY, told).with_status(DoctorStatus::Unknown, why, fix)
}

fn stats(site: &CheckContext, place: &HttpUrl) -> ProbeResult<EnvoyStats> {
    get(site, place, STATS_PATH, EnvoyStats::parse)
}

/// Fetches and parses a page of Envoy's admin port.
fn get<T>(
    site: &CheckContext,
    place: &HttpUrl,
    path: &'static str,
    read: fn(&str) -> Option<T>,
) -> ProbeResult<T> {
    let page = path.split('?').next().unwrap_or(path);
    match ask(site, place, path) {
        Ok(answer) if answer.status() == 200 => {
            read(&answer.text()).ok_or_else(|| ProbeError::Malformed(format!("Envoy's {page}")))
        }
        Ok(_) => Err(ProbeError::NotApplicable("Envoy refused the request")),
        Err(FetchError::TooLarge(_)) => Err(ProbeError::NotApplicable("Envoy's response exceeds 4 MiB")),
        Err(_) => Err(ProbeError::NotApplicable("Envoy did not respond in time")),
    }
}

fn ask(site: &CheckContext, place: &HttpUrl, path: &str) -> Result<FetchResponse, FetchError> {
    let target = place.request_path_below(path);
    let request = FetchRequest::get(&place.authority, &target);
    site.http_fetcher.fetch(place, &request, &FetchLimits { timeout: EACH, max_body_bytes: MOST })
}
