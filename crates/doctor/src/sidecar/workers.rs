//! Compares Envoy's worker threads with the CPU that they may use. The CPU comes from Istio's annotation or from the quota of the control
//! group of the Envoy that listens at the admin port.

use seawall_probe::file_reader::{HostFiles, read_parsed};
use seawall_probe::snapshot::quotas;

use super::admin_page_parser::{EnvoyInfo, IstioMetadata};
use super::{HttpUrl, WORKERS};
use crate::cpu::envoys;
use crate::finding::{DoctorFinding, DoctorStatus, pluralize};

/// Returns the number of the machine's CPUs, from its lines in `/proc/stat`.
fn cores_of(stat: &str) -> Option<u64> {
    let names = stat.lines().filter_map(|line| line.strip_prefix("cpu")?.bytes().next());
    Some(names.filter(u8::is_ascii_digit).count() as u64).filter(|cores| *cores > 0)
}

/// The CPU that Envoy's workers may use.
pub(super) enum WorkerCpuLimit {
    /// The workers may use this number of cores; the text names the source.
    Limited(&'static str, f64),
    /// The workers may use all cores of the machine.
    Unlimited(u64),
    /// The limit is unknown; the number is that of the machine's cores, if known.
    Unknown(Option<u64>),
}

impl WorkerCpuLimit {
    /// Returns the CPU limit from the pod's annotation, or the quota of the control group of the Envoy in this network namespace.
    /// If several Envoys are candidates, their quotas must be equal.
    pub(super) fn of(files: &dyn HostFiles, place: &HttpUrl, info: &EnvoyInfo) -> Self {
        if let Some(limit) = info.istio.as_ref().and_then(IstioMetadata::cpu_limit) {
            return Self::Limited("its CPU limit is", limit);
        }
        let machine = read_parsed(files, "/proc/stat", cores_of).ok();
        let is_here = place.ip_address().is_some_and(|address| address.is_loopback());
        let envoys = if is_here { envoys(files) } else { Vec::new() };
        let asked = listeners(files, "self", place);
        let is_it = |process: u32| {
            listeners(files, &process.to_string(), place).iter().any(|inode| asked.contains(inode))
        };
        let alike =
            envoys.into_iter().filter(|(process, workers)| *workers == info.concurrency && is_it(*process));
        let mut quotas = alike.map(|(process, _)| {
            let levels = quotas(files, process).ok()?;
            Some(levels.iter().map(|level| level.cores).min_by(f64::total_cmp))
        });
        let first = quotas.next().flatten();
        match (first.filter(|first| quotas.all(|other| other == Some(*first))), machine) {
            (Some(Some(quota)), _) => Self::Limited("its control group has a quota of", quota),
            (Some(None), Some(machine)) => Self::Unlimited(machine),
            _ => Self::Unknown(machine),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Limited(whose, cores) => format!("{whose} {}", pluralize(*cores, "core")),
            Self::Unlimited(cores) => {
                format!("it has no CPU limit, and the machine has {}", pluralize(*cores as f64, "core"))
            }
            Self::Unknown(Some(cores)) => {
                format!("its CPU limit is unknown; the machine has {}", pluralize(*cores as f64, "core"))
            }
            Self::Unknown(None) => "its number of cores is unknown".to_owned(),
        }
    }

    /// Returns the largest number of cores that the workers may use, if known.
    fn most(&self) -> Option<f64> {
        match self {
            Self::Limited(_, cores) => Some(*cores),
            Self::Unlimited(cores) => Some(*cores as f64),
            Self::Unknown(cores) => cores.map(|cores| cores as f64),
        }
    }
}

/// Returns the inodes of the sockets that listen at the port, from a process's view of its network namespace (`proc_pid_net(5)`).
/// No two sockets of a machine share an inode.
fn listeners(files: &dyn HostFiles, process: &str, place: &HttpUrl) -> Vec<String> {
    let port = place.authority.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).unwrap_or(0);
    let at = format!(":{port:04X}");
    let tables =
        ["tcp", "tcp6"].map(|name| files.read(&format!("/proc/{process}/net/{name}")).unwrap_or_default());
    let inode = |line: &str| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&at) && *fields.get(3)? == "0A";
        listens.then(|| fields.get(9).map(|inode| (*inode).to_owned())).flatten()
    };
    tables.iter().flat_map(|table| table.lines()).filter_map(inode).collect()
}

const CONCURRENCY: &str = "set Envoy's --concurrency to the number of cores that Envoy may use. With Istio, set `concurrency: N` in the annotation proxy.istio.io/config; Istio's default is the sidecar's CPU limit, rounded up";

const ONE: &str = "all connections of the pod go through one thread, which can use at most one core: requests wait for that thread even while other cores are idle";

/// Judges the worker threads against the CPU that they may use.
pub(super) fn judge_workers(info: &EnvoyInfo, cpu: &WorkerCpuLimit, stalls: u64) -> DoctorFinding {
    let count = info.concurrency as f64;
    let late =
        if stalls > 0 { format!("; workers stalled for 200 ms {stalls} times") } else { String::new() };
    let text = format!("Envoy has {}; {}{late}", pluralize(count, "worker"), cpu.describe());
    let found = DoctorFinding::ok(WORKERS, text).with_measurement("workers", count, "threads");
    let found = match cpu.most() {
        Some(cores) => found.with_measurement("cores", cores, "cores"),
        None => found,
    };
    let found = found.with_measurement("stalls", stalls as f64, "times");
    match misfit(info.concurrency, cpu) {
        Some(why) => found.with_status(DoctorStatus::Warning, why, CONCURRENCY),
        None if stalls > 0 => found.with_status(
            DoctorStatus::Warning,
            "during a stall, all requests of that worker wait",
            "check whether Envoy's container is throttled (run the check cpu.throttling in that container), and look for filters that block (Lua, Wasm)",
        ),
        None => unseen(found, info.concurrency, cpu),
    }
}

/// Returns the mismatch between the number of workers and the known CPU, if any.
fn misfit(workers: u64, cpu: &WorkerCpuLimit) -> Option<&'static str> {
    let count = workers as f64;
    match cpu {
        WorkerCpuLimit::Unlimited(cores) if workers == 1 && *cores > 1 => Some(ONE),
        WorkerCpuLimit::Limited(_, cores) if workers == 1 && *cores > 1.0 => Some(ONE),
        WorkerCpuLimit::Limited(_, cores) if count > cores.ceil() => Some(
            "when all workers are busy, they use up the CPU limit of a 100 ms period before the period ends, and all stop until the next period",
        ),
        WorkerCpuLimit::Limited(_, cores) if count < cores.floor() => {
            Some("the workers are too few to use the whole CPU limit")
        }
        _ => None,
    }
}

/// Returns the verdict for an unknown limit: one worker may be right, and more workers may be throttled.
fn unseen(found: DoctorFinding, workers: u64, cpu: &WorkerCpuLimit) -> DoctorFinding {
    match cpu {
        WorkerCpuLimit::Unknown(Some(cores)) if workers == 1 && *cores > 1 => found.with_status(
            DoctorStatus::Unknown,
            "one worker is right for a CPU limit of at most one core; with a higher limit or none, all connections of the pod share one core",
            "look at the CPU limit of Envoy's container (kubectl get pod; cpu.max of its control group); if the limit is above one core or missing, set --concurrency to match",
        ),
        WorkerCpuLimit::Unknown(None) => {
            found.with_status(DoctorStatus::Unknown, "cannot read Envoy's CPU limit or the number of cores of the machine", CONCURRENCY)
        }
        _ => found,
    }
}
