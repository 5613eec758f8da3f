//! What offers the load: the one place where a run is joined to the load engine.

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
use seawall_probe::files::LocalFiles;

use super::progress::BlockObserver;
use super::reach_check::ReachCheck;

/// What is sent, and how.
#[derive(Debug)]
pub(crate) struct FindSessionConfig {
    /// The requests, sent in turn again and again.
    pub(super) requests: RequestList,
    /// How they travel.
    pub(crate) transport: TransportOptions,
    /// How they are framed.
    pub(super) framing: RequestFraming,
    /// Most threads that send.
    pub(super) max_threads: usize,
    /// How they are spaced.
    pub(super) arrivals: ReportedArrivals,
    /// Of everything random.
    pub(super) seed: u64,
    /// Later is late; none: nothing is.
    pub(super) latency_bound: Option<Duration>,
    /// The target's own side.
    pub(super) server_side: ServerSideReader,
}

/// A ground, and what stops at once what happens on it.
pub(super) struct SearchSetup {
    pub(super) driver: Box<dyn TargetDriver>,
    pub(super) stop_callback: Arc<dyn Fn() + Send + Sync>,
    /// Who looks at the target's own side, and when an answer is late.
    pub(super) server_side_source: ServerSideSource,
    pub(super) latency_bound: Option<Duration>,
    /// What finds out whether there is a target at all; none where that is known.
    pub(super) reach_check: Option<ReachCheck>,
}

/// The ground that a kit is for, which tells of each offer while it goes on.
///
/// # Errors
/// Nothing can be sent from here.
pub(super) fn build_search_setup(
    kit: FindSessionConfig,
    observer: Option<BlockObserver>,
) -> anyhow::Result<SearchSetup> {
    let reach = Some(ReachCheck::for_first_target(kit.requests.requests(), &kit.transport, &kit.framing)?);
    let (bound, (rig, side)) = (kit.latency_bound, build_local_driver(kit)?);
    let rig = match observer {
        Some(observer) => rig.with_observer(observer),
        None => rig,
    };
    let stop = rig.stop_switch();
    let stop = Arc::new(move || stop.stop());
    Ok(SearchSetup {
        driver: Box::new(rig),
        stop_callback: stop,
        server_side_source: server_side_source(side),
        latency_bound: bound,
        reach_check: reach,
    })
}

/// What sends what is in a kit, and the target's own side.
///
/// # Errors
/// The system refuses so many open files.
pub(crate) fn build_local_driver(kit: FindSessionConfig) -> anyhow::Result<(LocalDriver, ServerSideReader)> {
    let FindSessionConfig {
        requests: list,
        transport: travel,
        framing: style,
        max_threads: cpus,
        arrivals,
        seed,
        latency_bound: late,
        server_side: side,
    } = kit;
    let spacing = match arrivals {
        ReportedArrivals::Constant => ArrivalSpacing::Constant,
        ReportedArrivals::Poisson => ArrivalSpacing::Poisson(seed),
    };
    let kit = rig::SessionConfig {
        request_list: list,
        transport: travel,
        framing: style,
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
        files: Box::new(LocalFiles),
        clock: Box::new(move || Duration::from_nanos(clock.now())),
    }
}
