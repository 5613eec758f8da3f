//! Builds the parts of the agent from a configuration, connects them and runs the agent.
//!
//! The start has a fixed order: read the files that the configuration names, bind all sockets, drop privileges, then serve. The
//! main thread is the control thread: its runtime renews leases and serves the admin port. Each traffic thread has a separate
//! runtime and reads pods, entitlements and leases as snapshots. With the strategies `source-ip` and `kernel`, one more thread
//! with a separate runtime watches the API server (`identity`).

mod cgroup_memory;
pub(crate) mod client_caps;
pub(crate) mod detected_cpu_and_memory;
pub(crate) mod drop_rule_status;
mod hang_history;
pub(crate) mod signals;
mod thread_watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use prometheus_client::registry::Registry;
use rustix::thread::CapabilitySet;
use seawall_clouds::pod::PodEntry;
use seawall_clouds::self_test_request::ReadinessRequest;
use seawall_clouds::{Clouds, CurrentClouds, DialectResources};
use seawall_cluster::ClusterClient;
use seawall_core::Clock;
use seawall_core::cloud::{CloudName, DialectName};
use seawall_core::shutdown::{self, StopSignal, Stopper, ThreadGuard, ThreadWaitGroup};
use seawall_server::connection_permits::PermitCounter;
use seawall_server::connection_table::ConnectionTimeouts;
use seawall_server::listen;
use seawall_server::listen::shards::ListenerShards;
use seawall_server::listen::{ListenerShard, Listeners};
use seawall_server::memory_levels::{MemoryGauge, UnlimitedMemory};
use seawall_server::thread::{
    BuildDialectsFn, ClientLimits, ServerContext, ThreadLimits, ThreadUpdate, TrafficThread, UpdateReceiver,
};
use seawall_server::thread_metrics::ThreadMetrics;
use seawall_server::time_at_limits::TimeAtLimitMeter;
use seawall_server::upstream::long_poll_limit::LongPollLimit;
use seawall_server::upstream::permits::UpstreamPermits;
use seawall_server::watchdog::ThreadHeartbeat;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc};

use self::cgroup_memory::CgroupMemory;
use self::client_caps::ClientCaps;
use self::detected_cpu_and_memory::DetectedLimits;
use self::hang_history::HangHistory;
use self::signals::{AgentSignals, SignalAction};
use self::thread_watch::ThreadWatch;
use crate::config::{AgentConfig, IdentityConfig, ListenConfig};
use crate::log::{AgentLog, LogLevelHandle};
use crate::reload::{LoadedConfig, ReloadTargets, Reloader};
use crate::sandbox::SyscallProfile;
use crate::{reload, sandbox};
use seawall_identity::entitlement_swap::{SwapCommand, SwapCommandReceiver};
use seawall_identity::pod_resolver::SelfProbeSourceAddress;
use seawall_identity::redirected_connections::RedirectHandle;
use seawall_identity::start_identity::{ClusterThread, IdentityStrategy, RunningIdentityStrategy};
use seawall_observe::admin::{AdminListeners, AdminServer, AdminSources};
use seawall_observe::metrics::requests::RequestMetrics;
use seawall_observe::metrics::write::{self, collector_from_fn};
use seawall_observe::metrics::{broker, cluster, floor_achievable, redirect};
use seawall_observe::periodic_pod_checks::ReportedPodsGauge;
use seawall_observe::readiness::ReadinessChecker;
use seawall_observe::{excessive_fetch, periodic_pod_checks, pods_page, stale_credentials};

/// The limit on open files that the agent requests from the kernel. The largest caps of `client_caps` need fewer open files.
const DESCRIPTORS: u64 = 65_536;

/// Runs the agent until a signal stops the agent.
///
/// # Errors
/// The agent cannot start: for example, the identity file is invalid, a port is in use, or the kernel refuses the sandbox.
pub(crate) fn serve(loaded: LoadedConfig, log: &AgentLog, loudness: LogLevelHandle) -> anyhow::Result<()> {
    let config = &loaded.config;
    let strategy = IdentityStrategy::load(&config.identity, &config.clouds)?;
    let threads = config.threads.count();
    let clock = Clock::system();
    let (room, memory) = client_caps(config, &clock)?;
    let addresses: Vec<_> = config.listen.iter().map(ListenConfig::listen_address).collect();
    let listeners = listen::bind(&addresses, threads, room.listening_sockets_per_address)?;
    let control = control_runtime()?;
    // Install the handlers before the agent reports that it serves. Without the handlers, an early signal would kill the agent.
    // With the handlers, the signal starts a drain.
    let signals = control.block_on(async { AgentSignals::new() }).context("cannot listen for signals")?;
    let doors = control.block_on(AdminListeners::open(config.admin, config.admin_socket.as_deref()))?;
    let capture = capture(config, &listeners, &clock)?;
    let hangs = HangHistory::open(config.admin_socket.as_deref(), &clock);
    let strategy = strategy.with_kernel_records(capture.as_deref().map(RedirectHandle::records));
    let kept = capture.as_ref().map_or(CapabilitySet::empty(), |_| RedirectHandle::required_capabilities());
    sandbox::harden_process(kept).context("cannot give up privileges")?;
    let removes_pins = capture.as_ref().is_some_and(|capture| capture.removes_pins());
    let profile = SyscallProfile { removes_pins, ..config.syscall_profile() };
    config.seccomp.install(profile).context("cannot install the seccomp filter")?;

    let identity = strategy.name();
    let (stopper, stop) = shutdown::stop_channel();
    let (orders, obeyed) = mpsc::channel(1);
    let (parts, hearing) =
        AgentContext::new(&loaded, (room, memory), strategy, capture, clock, &control, &stopper, obeyed)?;
    let routes = parts.clouds.current().routes();
    let metrics: Vec<_> = (0..threads).map(|_| Arc::new(ThreadMetrics::new(&routes))).collect();
    let watch = parts.thread_watch(&metrics, hangs);
    let mut registry = Registry::default();
    parts.spawn_pod_scans(&control, &mut registry);
    let probes = parts.probes(config, &listeners);
    let admin = parts.admin(registry, config, &metrics, log, (probes, left_out(config, &listeners)), &watch);
    let capture = parts.watch_capture(&control, &stopper, &stop);
    announce(config, identity, &listeners.bound_addresses(), doors.address(), threads, &parts.room);
    control.spawn(open(
        parts.capture.clone(),
        parts.identity.cluster_client.clone(),
        admin.clone(),
        stop.clone(),
    ));

    let (alive, all_gone) = shutdown::thread_guards(threads, &stopper);
    let (tell, changes): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::unbounded_channel()).unzip();
    let speaking = parts.dialect_setup(config, &stop);
    let observed = metrics.into_iter().zip(watch.heartbeats.clone());
    let own = listeners.shards_by_thread.into_iter().zip(observed).zip(alive).zip(changes);
    let traffic = own
        .enumerate()
        .map(|(n, (((own, observed), alive), changes))| {
            let speaks = speaking.dialects_for(config, &parts.clouds.current());
            parts.traffic_thread(
                n,
                own,
                speaks,
                observed,
                ThreadInputs { stop: stop.clone(), changes },
                alive,
            )
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    watch.start_watchdog(capture.clone(), log.clone())?;
    let look = Arc::<Notify>::default();
    let reach = parts.reload_targets(orders, tell, speaking, loudness, &control);
    control.spawn(Reloader::new(loaded, reach).run(look.clone(), stop.clone()));
    drop(parts);
    let stopping = AgentShutdown { stopper, stop, capture: capture.clone() };
    let ended = control.block_on(control_thread(admin, doors, signals, look, stopping, all_gone));
    shut_down_runtime(control);
    ended?;
    for thread in traffic {
        thread.join().map_err(|_| anyhow::anyhow!("a traffic thread panicked"))?;
    }
    hearing.map(ClusterThread::stop_and_join).transpose()?;
    capture.map_or(Ok(()), |capture| capture.check_not_replaced())?;
    tracing::info!("stopped");
    Ok(())
}

/// Returns the caps for clients, and the gauge that reports how much memory is left for clients.
///
/// # Errors
/// The kernel refuses to raise the limit on open files, or the limit is too low to serve several clients.
fn client_caps(config: &AgentConfig, clock: &Clock) -> anyhow::Result<(ClientCaps, Arc<dyn MemoryGauge>)> {
    let (machine, descriptors) = (DetectedLimits::detect(), listen::raise_open_files_limit(DESCRIPTORS)?);
    let least = ClientCaps::min_open_files(config);
    anyhow::ensure!(
        descriptors >= least,
        "the limit on open files is {descriptors}; expected at least {least} (RLIMIT_NOFILE: `ulimit -n`, or the container runtime's LimitNOFILE)"
    );
    let followed = ClientCaps::from_machine_limits(&machine, true, descriptors, config);
    Ok(match CgroupMemory::open(followed.max_total_bytes_on_open_connections(), clock) {
        Some(memory) => (followed, Arc::new(memory)),
        None => {
            (ClientCaps::from_machine_limits(&machine, false, descriptors, config), Arc::new(UnlimitedMemory))
        }
    })
}

/// Checks the files that the configuration names. Returns warnings about mistakes with which the agent can still serve.
///
/// # Errors
/// The identity file has mistakes, or another file cannot be read or used.
pub(crate) fn check_configured_files(config: &AgentConfig) -> anyhow::Result<Vec<String>> {
    let control = control_runtime()?;
    let clouds = Clouds::start(&config.clouds, &Clock::system(), control.handle());
    let clouds = clouds.map(|clouds| clouds.warnings());
    let identity = IdentityStrategy::load(&config.identity, &config.clouds)
        .and_then(|strategy| strategy.check_cluster_credentials(&control));
    match (clouds, identity) {
        (Err(one), Err(other)) => Err(anyhow::anyhow!("{one:#}\n{other:#}")),
        (clouds, identity) => identity.and(clouds),
    }
}

/// Opens the redirect if the identity strategy is `kernel`.
fn capture(
    config: &AgentConfig,
    bound: &Listeners,
    clock: &Clock,
) -> anyhow::Result<Option<Arc<RedirectHandle>>> {
    let IdentityConfig::Kernel(section) = &config.identity else { return Ok(None) };
    Ok(Some(Arc::new(RedirectHandle::open(
        section,
        spoken(config, bound),
        |port| bound.socket_on_port(port),
        clock,
    )?)))
}

/// Returns the bound addresses, each with the dialects of its listener.
fn spoken<'a>(
    config: &'a AgentConfig,
    bound: &'a Listeners,
) -> impl Iterator<Item = (SocketAddr, &'a [DialectName])> {
    let each = bound.addresses.iter().zip(&config.listen);
    each.filter_map(|(address, listen)| Some(((*address)?, &listen.dialects[..])))
}

/// Returns a warning for each address of the node at which the agent does not listen.
fn left_out(config: &AgentConfig, bound: &Listeners) -> Vec<String> {
    let each = bound.addresses.iter().zip(&config.listen).filter(|(address, _)| address.is_none());
    let warning = |listen: &ListenConfig| {
        let (ip, family) = (listen.address.ip(), if listen.address.is_ipv4() { "IPv4" } else { "IPv6" });
        format!(
            "the agent does not listen at the node's address {ip}, which this machine cannot bind or whose ports another process has: pods that \
             use {family} alone get no answer. The log has the reason; restart the agent once it is gone"
        )
    };
    each.map(|(_, listen)| warning(listen)).chain(missing_ipv4_address(config)).collect()
}

/// Returns a warning if pods are to ask by IPv4 and no address of IPv4 was found at which to answer them.
fn missing_ipv4_address(config: &AgentConfig) -> Option<String> {
    let IdentityConfig::Kernel(kernel) = &config.identity else { return None };
    let asks_by_ipv4 = kernel.egress_ranges.iter().any(|range| range.addr().is_ipv4());
    let listens = config.listen.iter().any(|listen| listen.address.is_ipv4());
    (asks_by_ipv4 && !listens).then(|| {
        "identity.egressRanges: the agent does not listen at an IPv4 address, because this node has none from which it would send to \
         169.254.169.254. Pods that ask by IPv4 are refused (no_family). Restart the agent once the node has one"
            .to_owned()
    })
}

/// Waits until the agent can serve. Then makes the redirect send captured connections to this agent, and removes the node's startup taint.
async fn open(
    capture: Option<Arc<RedirectHandle>>,
    cluster: Option<Arc<ClusterClient>>,
    admin: Arc<AdminServer>,
    stop: StopSignal,
) {
    const PAUSE: Duration = Duration::from_millis(500);
    // Some identity strategies use neither the redirect nor the API server. With such a strategy, there are no connections to
    // redirect and there is no taint to remove.
    if capture.is_none() && cluster.is_none() {
        return;
    }
    while admin.check_can_serve_pods().await.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
    if let Some(capture) = &capture {
        capture.redirect_to_this_agent(&stop).await;
    }
    // The two tasks run concurrently. Removing the taint can take long if the API server refuses. `monitor_target` must not wait
    // for the removal. If the current target of the redirect is a dead agent, `monitor_target` makes this agent the target.
    let untaint = async {
        if let Some(cluster) = cluster {
            cluster.remove_startup_taint().await;
        }
    };
    let keep = async {
        if let Some(capture) = capture {
            capture.monitor_target(stop).await;
        }
    };
    tokio::join!(untaint, keep);
}

fn control_runtime() -> anyhow::Result<Runtime> {
    // The runtime looks up the host names of upstream servers on blocking threads. The runtime has at most four blocking threads,
    // because each thread needs memory for a stack.
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .context("cannot start a runtime")
}

/// Ends a runtime without waiting for its blocking threads. Dropping the runtime would wait for a running name lookup. If no name
/// server responds, a lookup takes 30 s.
fn shut_down_runtime(runtime: Runtime) {
    runtime.shutdown_background();
}

fn announce(
    config: &AgentConfig,
    identity: &str,
    listeners: &[SocketAddr],
    admin: SocketAddr,
    threads: usize,
    room: &ClientCaps,
) {
    let clouds: Vec<&str> = config.clouds.names().into_iter().map(CloudName::as_str).collect();
    let ClientCaps { connections, connections_per_caller, buffered_bytes: held, upstream_requests, .. } =
        *room;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"), ?clouds, identity, ?listeners, %admin, threads,
        connections, connections_per_caller, held_bytes = held, upstream_requests, "serving"
    );
}

/// Serves the admin port until a signal arrives or a part of the agent ends. Then waits until the traffic threads have ended.
/// A second signal ends this wait.
async fn control_thread(
    admin: Arc<AdminServer>,
    doors: AdminListeners,
    mut signals: AgentSignals,
    look: Arc<Notify>,
    AgentShutdown { stopper, mut stop, capture }: AgentShutdown,
    mut all_gone: ThreadWaitGroup,
) -> anyhow::Result<()> {
    admin.serve_at(doors, &stop);
    loop {
        tokio::select! {
            asked = signals.next() => match asked {
                SignalAction::Reload => look.notify_one(),
                SignalAction::Terminate(signal) => break tracing::info!(signal, "stopping"),
            },
            () = stop.wait() => break tracing::error!("a part of the agent ended; the agent stops"),
        }
    }
    if capture.is_some_and(|capture| capture.is_replaced()) {
        stopper.stop_as_replaced();
    } else {
        stopper.stop();
    }
    tokio::select! {
        () = all_gone.wait() => Ok(()),
        signal = signals.next_termination() => anyhow::bail!("a second signal ({signal}) ended the shutdown early"),
    }
}

/// The redirect, and the handles that stop the agent. The redirect knows whether another agent has replaced this agent.
struct AgentShutdown {
    stopper: Stopper,
    stop: StopSignal,
    capture: Option<Arc<RedirectHandle>>,
}

/// The parts of the agent that `serve` creates once and that all threads share.
struct AgentContext {
    clock: Clock,
    identity: Arc<RunningIdentityStrategy>,
    capture: Option<Arc<RedirectHandle>>,
    clouds: Arc<CurrentClouds>,
    reload_status: Arc<reload::ReloadStatus>,
    probe: SelfProbeSourceAddress,
    open: Arc<PermitCounter>,
    long_polls: Arc<PermitCounter>,
    guests: Arc<PermitCounter>,
    strangers: Arc<PermitCounter>,
    memory: Arc<dyn MemoryGauge>,
    upstream_permits: Arc<UpstreamPermits>,
    room: ClientCaps,
    threads: usize,
}

impl AgentContext {
    #[expect(
        clippy::too_many_arguments,
        reason = "called once, with all parts that `serve` has created so far"
    )]
    fn new(
        loaded: &LoadedConfig,
        (room, memory): (ClientCaps, Arc<dyn MemoryGauge>),
        strategy: IdentityStrategy,
        capture: Option<Arc<RedirectHandle>>,
        clock: Clock,
        control: &Runtime,
        stopper: &Stopper,
        orders: SwapCommandReceiver,
    ) -> anyhow::Result<(Self, Option<ClusterThread>)> {
        let probe = SelfProbeSourceAddress::default();
        let clouds = Arc::new(Clouds::start(&loaded.config.clouds, &clock, control.handle())?);
        let clouds = Arc::new(CurrentClouds::new(clouds));
        let (who, hearing) = strategy.start(&clouds, probe.clone(), &clock, control, stopper, orders)?;
        let parts = Self {
            reload_status: Arc::new(reload::ReloadStatus::new(loaded.digest, clock.wall_time())),
            clock,
            identity: Arc::new(who),
            capture,
            clouds,
            probe,
            open: Arc::default(),
            long_polls: Arc::default(),
            guests: Arc::default(),
            strangers: Arc::default(),
            memory,
            upstream_permits: UpstreamPermits::new(room.upstream_requests),
            room,
            threads: loaded.config.threads.count(),
        };
        Ok((parts, hearing))
    }

    /// Returns the value that connects the watchdog with the agent. [`ThreadWatch::start_watchdog`] starts the watchdog.
    fn thread_watch(&self, metrics: &[Arc<ThreadMetrics>], hangs: HangHistory) -> ThreadWatch {
        let open = (self.open.clone(), self.guests.clone());
        let capacity = TimeAtLimitMeter::new(self.clock.clone(), open, self.memory.clone(), metrics.to_vec());
        ThreadWatch::new(&self.clock, metrics.len(), capacity, hangs)
    }

    /// Starts the tasks that monitor the redirect and tell its programs the trusted proxies, until shutdown begins.
    fn watch_capture(
        &self,
        control: &Runtime,
        stopper: &Stopper,
        stop: &StopSignal,
    ) -> Option<Arc<RedirectHandle>> {
        let capture = self.capture.clone()?;
        if let Some(cluster) = &self.identity.cluster_client {
            let (watched, pods, stop) = (capture.clone(), cluster.pods(), stop.clone());
            control.spawn(async move { watched.publish_trusted_proxies(pods, stop).await });
        }
        let (watched, stopper, stop) = (capture.clone(), stopper.clone(), stop.clone());
        control.spawn(async move { watched.monitor_attachment(stopper, stop).await });
        Some(capture)
    }

    /// Registers the collectors of all metrics.
    fn register(&self, registry: &mut Registry, metrics: &[Arc<ThreadMetrics>], log: &AgentLog) {
        let log = log.clone();
        let help = "Log lines that the agent dropped because standard error was not read fast enough";
        registry.register_collector(collector_from_fn(move |out| {
            write::write_counter(out, "seawall_log_lines_dropped", help, log.dropped_lines())
        }));
        let bulletin = self.reload_status.clone();
        registry.register_collector(collector_from_fn(move |out| bulletin.write_metrics(out)));
        let requests = RequestMetrics::new(metrics.to_vec(), self.open.clone(), self.long_polls.clone());
        registry.register_collector(collector_from_fn(move |out| requests.write(out)));
        broker::register(&self.clouds, registry, &self.clock);
        if let Some(cluster) = self.identity.cluster_client.clone() {
            registry.register_collector(collector_from_fn(move |out| cluster::write(&cluster, out)));
        }
        let who = self.identity.clone();
        registry.register_collector(collector_from_fn(move |out| floor_achievable::write(&who, out)));
        if let Some(capture) = self.capture.clone() {
            registry.register_collector(collector_from_fn(move |out| redirect::write(&capture, out)));
        }
    }

    fn admin(
        &self,
        mut registry: Registry,
        config: &AgentConfig,
        metrics: &[Arc<ThreadMetrics>],
        log: &AgentLog,
        (listeners, left_out): (Vec<(SocketAddr, Vec<ReadinessRequest>)>, Vec<String>),
        watch: &ThreadWatch,
    ) -> Arc<AdminServer> {
        let (clock, own_clock) = (self.clock.clone(), self.clock.clone());
        let callers = self.identity.resolver.clone();
        self.register(&mut registry, metrics, log);
        registry.register_collector(watch.metrics_collector());
        let (alive, ready, remarks) =
            (watch.health.clone(), watch.health.clone(), watch.current_warnings_fn());
        let (who, obstacle, clouds) = (self.identity.clone(), self.identity.clone(), self.clouds.clone());
        let (detour, capture) = (self.capture.clone(), self.capture.clone());
        let (of_node, redirect) = (self.identity.clone(), self.capture.clone());
        let (told, configuration) = (self.reload_status.clone(), self.reload_status.clone());
        let (seccomp, admin_socket, now) = (config.seccomp, config.admin_socket.clone(), self.clock.clone());
        let sources = AdminSources {
            registry,
            readiness_checker: ReadinessChecker::new(listeners, self.probe.clone()),
            dead_reason: Box::new(move || alive.not_alive_reason()),
            unready_reason: Box::new(move || ready.not_ready_reason().or_else(|| obstacle.unready_reason())),
            unreachable_reason: Box::new(move || detour.as_ref()?.unready_reason()),
            warnings: Box::new(move || {
                let mut lines = who.warnings();
                lines.extend(left_out.iter().cloned());
                lines.extend(told.remark());
                lines.extend(clouds.current().warnings());
                lines.extend(seccomp.warning());
                lines.extend(drop_rule_status::warning(admin_socket.as_deref(), &now));
                if let Some(capture) = &capture {
                    lines.extend(capture.warning());
                    let pods = who.cluster_client.as_ref().map(|cluster| cluster.pods().snapshot());
                    lines.extend(pods.and_then(|pods| capture.warning_about_older_pods(&pods)));
                }
                lines.extend(remarks());
                lines
            }),
            pods_json: Box::new(move || {
                // Without the redirect, the agent does not know what such pods reach.
                let passes = redirect.as_ref().is_some_and(|redirect| redirect.passes_host_network_pods);
                let cluster = of_node.cluster_client.as_ref().filter(|_| passes);
                let pods = cluster.map(|cluster| cluster.pods().snapshot());
                let host_network_pods =
                    pods.map(|pods| pods.host_network_pods_by_namespace()).unwrap_or_default();
                pods_page::pods_json(&configuration.to_json(), &host_network_pods, &callers, clock.now())
            }),
        };
        Arc::new(AdminServer::new(sources, own_clock))
    }

    /// Starts two tasks on the control thread.
    /// The first task finds pods that fetch credentials too often. The second task finds credentials that the agent could not
    /// renew.
    fn spawn_pod_scans(&self, control: &Runtime, registry: &mut Registry) {
        let (clouds, clock) = (&self.clouds, &self.clock);
        let mut found = |metric| ReportedPodsGauge::new_registered(registry, metric);
        let thrash = excessive_fetch::FetchMonitor::new(
            clouds.clone(),
            clock.clone(),
            found(excessive_fetch::METRIC_NAME_AND_HELP),
        );
        let outage = stale_credentials::RenewalMonitor::new(
            clouds.clone(),
            clock.clone(),
            found(stale_credentials::METRIC_NAME_AND_HELP),
        );
        control.spawn(periodic_pod_checks::run(thrash, self.identity.resolver.clone(), clock.clone()));
        control.spawn(periodic_pod_checks::run(outage, self.identity.resolver.clone(), clock.clone()));
    }

    fn traffic_thread(
        &self,
        number: usize,
        listeners: Vec<ListenerShard>,
        (speak, allowance): (BuildDialectsFn<PodEntry>, ClientLimits),
        observed: (Arc<ThreadMetrics>, Arc<ThreadHeartbeat>),
        ThreadInputs { stop, changes }: ThreadInputs,
        alive: ThreadGuard,
    ) -> anyhow::Result<JoinHandle<()>> {
        let shared = ServerContext {
            clock: self.clock.clone(),
            resolver: self.identity.resolver.clone(),
            open_connection_counter: self.open.clone(),
            guest_counter: self.guests.clone(),
            unknown_client_connection_counter: self.strangers.clone(),
            free_memory_gauge: self.memory.clone(),
            limits: bounds(self.threads, &self.room),
        };
        let runtime =
            Builder::new_current_thread().enable_io().enable_time().max_blocking_threads(1).build()?;
        // The traffic thread creates its listeners and dialects in this future, because dialects are not `Send` and listeners
        // belong to the runtime of their thread.
        let serve = move || async move {
            let (lanes, speaks) =
                (ListenerShards::new(listeners)?, speak().ok_or(std::io::ErrorKind::InvalidInput)?);
            let thread = TrafficThread::new(shared, speaks, allowance, observed, stop)?;
            thread.run(lanes, changes).await
        };
        let body = move || {
            let _alive = alive;
            if let Err(error) = runtime.block_on(serve()) {
                tracing::error!(%error, "a traffic thread failed");
            }
            shut_down_runtime(runtime);
        };
        std::thread::Builder::new()
            .name(format!("traffic-{number}"))
            .spawn(body)
            .context("cannot start a traffic thread")
    }

    /// Returns the readiness requests for each bound address.
    fn probes(&self, config: &AgentConfig, bound: &Listeners) -> Vec<(SocketAddr, Vec<ReadinessRequest>)> {
        let clouds = self.clouds.current();
        let each = spoken(config, bound);
        each.map(|(address, dialects)| (address, clouds.readiness_requests(dialects))).collect()
    }

    /// Returns the dialect settings that stay the same when a reload changes the configuration.
    fn dialect_setup(&self, config: &AgentConfig, stop: &StopSignal) -> AgentDialectSettings {
        AgentDialectSettings {
            spoken: config.listen.iter().map(|listen| listen.dialects.clone()).collect(),
            long_polls: self.long_polls.clone(),
            upstream_permits: self.upstream_permits.clone(),
            idle: (self.room.upstream_requests as usize).div_ceil(self.threads),
            room: self.room,
            stop: stop.clone(),
        }
    }

    /// Returns all parts of the agent that a reload changes.
    fn reload_targets(
        &self,
        orders: mpsc::Sender<SwapCommand>,
        threads: Vec<mpsc::UnboundedSender<ThreadUpdate<PodEntry>>>,
        speaking: AgentDialectSettings,
        loudness: LogLevelHandle,
        control: &Runtime,
    ) -> ReloadTargets {
        ReloadTargets {
            clouds: self.clouds.clone(),
            swap_command_sender: orders,
            thread_update_senders: threads,
            dialect_builder_factory: Box::new(move |config, clouds| speaking.dialects_for(config, clouds)),
            log_level: loudness,
            status: self.reload_status.clone(),
            cluster_client: self.identity.cluster_client.clone(),
            clock: self.clock.clone(),
            runtime: control.handle().clone(),
        }
    }
}

/// The inputs of a running traffic thread.
struct ThreadInputs {
    stop: StopSignal,
    changes: UpdateReceiver<PodEntry>,
}

/// The dialect settings that a reload does not change.
struct AgentDialectSettings {
    /// The dialects of each listener.
    spoken: Vec<Vec<DialectName>>,
    long_polls: Arc<PermitCounter>,
    upstream_permits: Arc<UpstreamPermits>,
    /// The maximum number of idle connections of one traffic thread to a real metadata server.
    idle: usize,
    room: ClientCaps,
    stop: StopSignal,
}

impl AgentDialectSettings {
    /// Returns the dialect builder of one thread, and the limits of one client, under this configuration and its clouds.
    fn dialects_for(
        &self,
        config: &AgentConfig,
        clouds: &Arc<Clouds>,
    ) -> (BuildDialectsFn<PodEntry>, ClientLimits) {
        let limits = &config.limits;
        let long_polls = LongPollLimit {
            total_counter: self.long_polls.clone(),
            max_total: self.room.long_polls,
            max_per_pod: limits.long_polls_per_pod,
            stop_signal: self.stop.clone(),
        };
        let tools = DialectResources {
            long_poll_limit: long_polls,
            upstream_permits: self.upstream_permits.clone(),
            max_idle_connections: self.idle,
        };
        let (clouds, spoken) = (clouds.clone(), self.spoken.clone());
        let allowance = ClientLimits {
            connections: self.room.max_connections_per_client(limits),
            timeouts: ConnectionTimeouts { head: limits.header_timeout, idle: limits.idle_timeout },
        };
        (Box::new(move || clouds.build_dialects(&spoken, &tools)), allowance)
    }
}

/// Returns the limits for one traffic thread. `threads` is the number of traffic threads.
fn bounds(threads: usize, room: &ClientCaps) -> ThreadLimits {
    ThreadLimits {
        max_process_connections: room.connections,
        max_guests_in_process: room.guest_connections,
        max_closing: room.closing_connections as usize / threads,
        threads,
        buffered_bytes: room.buffered_bytes / threads,
        cores: room.cpu_quota_cores,
        head_limits: seawall_http::HeadLimits::default(),
    }
}
