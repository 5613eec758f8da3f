//! The metadata at the head of each JSON document about a run: start, configuration, host.

use seawall_lab::generator_resources::available_cores;
use seawall_load::configuration::RunConfig;
use seawall_load::engine::RunPlan;
use seawall_load::record::{Zone, ZonedTimestamp};
use seawall_load::results::rfc3339::Rfc3339;
use serde::Serialize;

/// When a run began, what it was asked to do, and where it ran.
#[derive(Debug, Serialize)]
pub(crate) struct RunMetadata {
    /// The start of the run in RFC 3339, to the nanosecond. `None` before the run has begun, or in a year that RFC 3339 cannot write.
    start: Option<String>,
    config: RunConfig,
    host: Host,
}

/// The machine that sent, and the program.
#[derive(Debug, Serialize)]
struct Host {
    /// The version of this program.
    version: &'static str,
    os: &'static str,
    architecture: &'static str,
    /// The kernel's version. `None` if the kernel does not tell it.
    kernel: Option<String>,
    /// Cores that this process may run on.
    cores: usize,
}

impl RunMetadata {
    /// Describes a plan whose run has not begun.
    pub(crate) fn from_plan(plan: &RunPlan) -> Self {
        Self { start: None, config: RunConfig::of(plan), host: Host::this() }
    }

    /// The run begins then, in nanoseconds since the Unix epoch.
    pub(crate) fn set_start(&mut self, unix_ns: i64) {
        let start = Rfc3339::new(ZonedTimestamp::from_unix_ns(unix_ns, Zone::Utc));
        self.start = start.map(|start| start.to_string());
    }

    /// When the run began, if that is known and has a form.
    pub(crate) fn start(&self) -> Option<&str> {
        self.start.as_deref()
    }
}

impl Host {
    fn this() -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            os: std::env::consts::OS,
            architecture: std::env::consts::ARCH,
            kernel: kernel.map(|kernel| kernel.trim_end().to_owned()),
            cores: available_cores(),
        }
    }
}
