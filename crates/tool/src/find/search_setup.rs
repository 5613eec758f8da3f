//! The setup of the load: the one place that joins a run to the load engine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use seawall_lab::find::find_report::ReportedArrivals;
use seawall_lab::find::server_evidence::ServerSideSource;
use seawall_lab::rig::{self, LocalDriver};
use seawall_lab::server_side::ServerSideReader;
use seawall_lab::target_driver::TargetDriver;
use seawall_load::clock::RunClock;
use seawall_load::engine::TransportOptions;
use seawall_load::request::RequestFraming;
use seawall_load::request_source::RequestList;
use seawall_load::schedule::ArrivalSpacing;
use seawall_probe::file_reader::LocalFiles;

use super::progress::BlockObserver;
use super::reach_check::ReachCheck;

/// The requests of a session, and how to send them.
#[derive(Debug)]
pub(crate) struct FindSessionConfig {
    /// The requests, which are sent in turn again and again.
    pub(super) requests: RequestList,
    /// The transport of the requests.
    pub(crate) transport: TransportOptions,
    /// The framing of the requests.
    pub(super) framing: RequestFraming,
    /// The largest number of sender threads.
    pub(super) max_threads: usize,
    /// The spacing of the requests.
    pub(super) arrivals: ReportedArrivals,
    /// The seed of everything random.
    pub(super) seed: u64,
    /// The time after which a response is late; `None` means never.
    pub(super) latency_bound: Option<Duration>,
    /// The reader of the server side.
    pub(super) server_side_reader: ServerSideReader,
}

/// A target driver, and the callback that stops it at once.
pub(super) struct SearchSetup {
    pub(super) driver: Box<dyn TargetDriver>,
    pub(super) stop_now: Arc<dyn Fn() + Send + Sync>,
    /// The source of the server-side evidence.
    pub(super) server_side_source: ServerSideSource,
    /// The time after which a response is late; `None` means never.
    pub(super) late_after: Option<Duration>,
    /// The check that the target is reachable; `None` if that is known.
    pub(super) reach_check: Option<ReachCheck>,
}

/// Builds the driver for this config; `observer` is called for each new block of a trial.
///
/// # Errors
/// The requests cannot be sent from here.
pub(super) fn build_local_driver_setup(
    kit: FindSessionConfig,
    observer: Option<BlockObserver>,
) -> anyhow::Result<SearchSetup> {
    let reach = Some(ReachCheck::for_first_target(kit.requests.requests(), &kit.transport, &kit.framing)?);
    let (bound, (rig, side)) = (kit.latency_bound, build_local_driver(kit)?);
    let rig = match observer {
        Some(observer) => rig.with_block_observer(observer),
        None => rig,
    };
    let stop = rig.stop_switch();
    let stop = Arc::new(move || stop.stop());
    Ok(SearchSetup {
        driver: Box::new(rig),
        stop_now: stop,
        server_side_source: server_side_source(side),
        late_after: bound,
        reach_check: reach,
    })
}

/// Builds the local target driver and the reader of the server side from this config.
///
/// # Errors
/// The system refuses to raise the open files limit.
pub(crate) fn build_local_driver(kit: FindSessionConfig) -> anyhow::Result<(LocalDriver, ServerSideReader)> {
    let FindSessionConfig {
        requests: list,
        transport: travel,
        framing: style,
        max_threads: cpus,
        arrivals,
        seed,
        latency_bound: late,
        server_side_reader: side,
    } = kit;
    let spacing = match arrivals {
        ReportedArrivals::Constant => ArrivalSpacing::Constant,
        ReportedArrivals::Poisson => ArrivalSpacing::Poisson(seed),
    };
    let kit = rig::SessionConfig {
        request_list: list,
        transport: travel,
        request_framing: style,
        max_sender_threads: cpus,
        max_busy_poll: None,
    };
    let rig = LocalDriver::new(kit, spacing, late).context("cannot raise the open files limit")?;
    Ok((rig, side))
}

/// A look at the target's own side, from this machine and by its clock.
pub(super) fn server_side_source(side: ServerSideReader) -> ServerSideSource {
    let clock = RunClock::start();
    ServerSideSource {
        reader: side,
        host_files: Box::new(LocalFiles),
        clock: Box::new(move || Duration::from_nanos(clock.now())),
    }
}
