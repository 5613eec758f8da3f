//! What stands before the figures in everything that is written as JSON about a run: version, start, configuration, host.

use seawall_lab::means::available_cores;
use seawall_load::configuration::{RunConfig, SCHEMA};
use seawall_load::engine::RunPlan;
use seawall_load::record::{Zone, ZonedTimestamp};
use seawall_load::results::rfc3339::Rfc3339;
use serde::Serialize;

/// What a run was, where and when.
#[derive(Debug, Serialize)]
pub(crate) struct RunMetadata {
    schema: u32,
    /// RFC 3339, to the nanosecond; none before the run has begun, or in a year that has no such form.
    start: Option<String>,
    configuration: RunConfig,
    host: Host,
}

/// The machine that sent, and with what.
#[derive(Debug, Serialize)]
struct Host {
    /// Of this program.
    version: &'static str,
    os: &'static str,
    architecture: &'static str,
    /// As the kernel says; none where it does not.
    kernel: Option<String>,
    /// Cores that this process may run on.
    cores: usize,
}

impl RunMetadata {
    /// Of a plan that has not begun.
    pub(crate) fn of(plan: &RunPlan) -> Self {
        Self { schema: SCHEMA, start: None, configuration: RunConfig::of(plan), host: Host::this() }
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
