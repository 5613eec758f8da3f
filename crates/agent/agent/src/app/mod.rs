//! The one wiring function: configuration in, a running agent out.
//!
//! Order: read what the configuration names, bind every socket, give up privileges, then serve. The main thread is the
//! control thread: leases, refreshes and the admin port live on its runtime. Each traffic thread has a runtime of
//! its own and sees of the control thread only the broker's snapshots. In `source-ip` and `kernel`, what hears the API server has a thread
//! and a runtime, too (`identity`).

pub(crate) mod machine_limits;
pub(crate) mod resource_limits;
pub(crate) mod signals;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use prometheus_client::registry::Registry;
use rustix::thread::CapabilitySet;
use seawall_clouds::pod::PodCaller;
use seawall_clouds::readiness_request::Probe;
use seawall_clouds::{Clouds, CloudsInForce, Tools};
use seawall_cluster::Cluster;
use seawall_core::Clock;
use seawall_core::cloud::{CloudName, DialectName};
use seawall_core::shutdown::{self, Alive, AllGone, Stop, Stopper};
use seawall_server::connection_counter::Cap;
use seawall_server::connection_table::Timeouts;
use seawall_server::listen;
use seawall_server::listen::shards::Lanes;
use seawall_server::listen::{Lane, Listeners};
use seawall_server::thread::{Allowance, Bounds, Change, Changes, Shared, Speak, Thread};
use seawall_server::thread_metrics::Traffic;
use seawall_server::upstream::long_polls::LongPolls;
use seawall_server::upstream::permits::Places;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc};

use self::machine_limits::Machine;
use self::resource_limits::Room;
use self::signals::{Asked, Signals};
use crate::config::{Config, Identity};
use crate::log::{Log, Loudness};
use crate::reload::{Loaded, Reach, Reloader};
use crate::sandbox::Seccomp;
use crate::{reload, sandbox};
use seawall_identity::entitlement_swap::{Order, Orders};
use seawall_identity::redirect::Capture;
use seawall_identity::resolver::ProbeAddress;
use seawall_identity::strategy::{ClusterThread, Strategy, Who};
use seawall_observe::admin::{Admin, Doors, Sources};
use seawall_observe::metrics::requests::Requests;
use seawall_observe::metrics::write::{self, scrape};
use seawall_observe::metrics::{broker, cluster, lifetime_floors, redirect};
use seawall_observe::pod_scan::Found;
use seawall_observe::readiness::Readiness;
use seawall_observe::{excessive_fetch, pod_scan, pods_page, stale_credentials};

/// Open files that are asked for: more than the caps need where memory sets no bound.
const DESCRIPTORS: u64 = 65_536;

/// Runs the agent until it is told to stop.
///
/// # Errors
/// Anything that keeps it from starting: the identity file, a port in use, the kernel refusing the sandbox.
pub(crate) fn serve(loaded: Loaded, log: &Log, loudness: Loudness) -> anyhow::Result<()> {
    let config = &loaded.config;
    let strategy = Strategy::load(&config.identity, &config.clouds)?;
    let threads = config.threads.count();
    let room = Room::within(&Machine::here(), listen::make_room(DESCRIPTORS)?, config);
    let addresses: Vec<SocketAddr> = config.listen.iter().map(|listen| listen.address).collect();
    let listeners = listen::bind(&addresses, threads, room.lanes)?;
    let control = control_runtime()?;
    // Before anybody is told that the agent serves: a signal that comes right after must drain and not kill.
    let signals = control.block_on(async { Signals::new() }).context("cannot listen for signals")?;
    let doors = control.block_on(Doors::open(config.admin, config.admin_socket.as_deref()))?;
    let clock = Clock::system();
    let capture = capture(config, &listeners, &clock)?;
    let strategy = strategy.noting(capture.as_deref().map(Capture::noted));
    let kept = capture.as_ref().map_or(CapabilitySet::empty(), |_| Capture::rights());
    sandbox::enter(kept).context("cannot give up privileges")?;
    config.seccomp.begin(config.needs()).context("cannot have system calls refused")?;

    let identity = strategy.name();
    let (stopper, stop) = shutdown::switch();
    let (orders, obeyed) = mpsc::channel(1);
    let (parts, hearing) = Parts::new(&loaded, room, strategy, capture, clock, &control, &stopper, obeyed)?;
    let routes = parts.clouds.now().routes();
    let metrics: Vec<_> = (0..threads).map(|_| Arc::new(Traffic::new(&routes))).collect();
    let mut registry = Registry::default();
    parts.look(&control, &mut registry);
    let probes = parts.probes(config, &listeners.addresses);
    let admin = parts.admin(registry, config.seccomp, &metrics, log, probes);
    let capture = parts.watch_capture(&control, &stopper, &stop);
    announce(config, identity, &listeners.addresses, doors.address(), threads, &parts.room);
    control.spawn(open(parts.capture.clone(), parts.who.cluster.clone(), admin.clone(), stop.clone()));

    let (alive, all_gone) = shutdown::threads(threads, &stopper);
    let (tell, changes): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::unbounded_channel()).unzip();
    let speaking = parts.speaking(config, &stop);
    let own = listeners.of_thread.into_iter().zip(metrics).zip(alive).zip(changes);
    let traffic = own
        .enumerate()
        .map(|(n, (((own, metrics), alive), changes))| {
            let speaks = speaking.by(config, &parts.clouds.now());
            parts.traffic_thread(n, own, speaks, metrics, Hears { stop: stop.clone(), changes }, alive)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let look = Arc::<Notify>::default();
    let reach = parts.reach(orders, tell, speaking, loudness, &control);
    control.spawn(Reloader::new(loaded, reach).run(look.clone(), stop.clone()));
    drop(parts);
    let stopping = Stopping { stopper, stop, capture: capture.clone() };
    let ended = control.block_on(control_thread(admin, doors, signals, look, stopping, all_gone));
    leave(control);
    ended?;
    for thread in traffic {
        thread.join().map_err(|_| anyhow::anyhow!("a traffic thread ended in a panic"))?;
    }
    hearing.map(ClusterThread::end).transpose()?;
    capture.map_or(Ok(()), |capture| capture.ended())?;
    tracing::info!("stopped");
    Ok(())
}

/// Checks what can be checked without serving: the files that the configuration names. Gives what an operator should see though it
/// would serve.
///
/// # Errors
/// Every mistake in the identity file; a file that cannot be read or used.
pub(crate) fn check(config: &Config) -> anyhow::Result<Vec<String>> {
    let control = control_runtime()?;
    let clouds = Clouds::start(&config.clouds, &Clock::system(), control.handle());
    let clouds = clouds.map(|clouds| clouds.remarks());
    let identity =
        Strategy::load(&config.identity, &config.clouds).and_then(|strategy| strategy.check(&control));
    match (clouds, identity) {
        (Err(one), Err(other)) => Err(anyhow::anyhow!("{one:#}\n{other:#}")),
        (clouds, identity) => identity.and(clouds),
    }
}

/// Opens the redirect, in `kernel` identity.
fn capture(config: &Config, bound: &Listeners, clock: &Clock) -> anyhow::Result<Option<Arc<Capture>>> {
    let Identity::Kernel(section) = &config.identity else { return Ok(None) };
    Ok(Some(Arc::new(Capture::open(section, spoken(config, bound), |port| bound.at(port), clock)?)))
}

/// Where the agent listens, and what it speaks there.
fn spoken<'a>(
    config: &'a Config,
    bound: &'a Listeners,
) -> impl Iterator<Item = (SocketAddr, &'a [DialectName])> {
    bound.addresses.iter().zip(&config.listen).map(|(address, listen)| (*address, &listen.dialects[..]))
}

/// Lets pods come once they would be served: captured connections are sent here, then the node's taint is taken off.
async fn open(capture: Option<Arc<Capture>>, cluster: Option<Arc<Cluster>>, admin: Arc<Admin>, stop: Stop) {
    const PAUSE: Duration = Duration::from_millis(500);
    // Nobody waits for it where nothing is opened.
    if capture.is_none() && cluster.is_none() {
        return;
    }
    while admin.answers().await.is_err() {
        tokio::time::sleep(PAUSE).await;
    }
    if let Some(capture) = &capture {
        capture.take_over(&stop).await;
    }
    // Beside each other: an API server that refuses to have the taint taken off must not keep this agent from succeeding one that died.
    let untaint = async {
        if let Some(cluster) = cluster {
            cluster.open_node().await;
        }
    };
    let keep = async {
        if let Some(capture) = capture {
            capture.keep(stop).await;
        }
    };
    tokio::join!(untaint, keep);
}

fn control_runtime() -> anyhow::Result<Runtime> {
    // Name look-ups of upstream hosts run on blocking threads; each costs a stack.
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .context("cannot start a runtime")
}

/// Ends a runtime without waiting for its blocking threads: dropping it would wait for a name look-up, which takes half a
/// minute where no name server answers.
fn leave(runtime: Runtime) {
    runtime.shutdown_background();
}

fn announce(
    config: &Config,
    identity: &str,
    listeners: &[SocketAddr],
    admin: SocketAddr,
    threads: usize,
    room: &Room,
) {
    let clouds: Vec<&str> = config.clouds.names().into_iter().map(CloudName::as_str).collect();
    let Room { connections, connections_per_caller, held, forwards, .. } = *room;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"), ?clouds, identity, ?listeners, %admin, threads,
        connections, connections_per_caller, held_bytes = held, forwards, "serving"
    );
}

/// Serves the admin port until a signal (or the end of a traffic thread), then waits for the drain. A second signal
/// does not wait.
async fn control_thread(
    admin: Arc<Admin>,
    doors: Doors,
    mut signals: Signals,
    look: Arc<Notify>,
    Stopping { stopper, mut stop, capture }: Stopping,
    mut all_gone: AllGone,
) -> anyhow::Result<()> {
    admin.serve_at(doors, &stop);
    loop {
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Look => look.notify_one(),
                Asked::End(signal) => break tracing::info!(signal, "stopping"),
            },
            () = stop.begun() => break tracing::error!("the agent ends by itself; stopping"),
        }
    }
    if capture.is_some_and(|capture| capture.is_succeeded()) {
        stopper.stop_succeeded();
    } else {
        stopper.stop();
    }
    tokio::select! {
        () = all_gone.wait() => Ok(()),
        signal = signals.end() => anyhow::bail!("cut short by a second signal ({signal})"),
    }
}

/// How the agent is stopped, and what says whether another one has taken over by then.
struct Stopping {
    stopper: Stopper,
    stop: Stop,
    capture: Option<Arc<Capture>>,
}

/// What is built once and shared.
struct Parts {
    clock: Clock,
    who: Arc<Who>,
    capture: Option<Arc<Capture>>,
    clouds: Arc<CloudsInForce>,
    bulletin: Arc<reload::Bulletin>,
    probe: ProbeAddress,
    open: Arc<Cap>,
    long_polls: Arc<Cap>,
    strangers: Arc<Cap>,
    forwards: Arc<Places>,
    room: Room,
    threads: usize,
}

impl Parts {
    #[expect(clippy::too_many_arguments, reason = "what is made before rights are given up, once")]
    fn new(
        loaded: &Loaded,
        room: Room,
        strategy: Strategy,
        capture: Option<Arc<Capture>>,
        clock: Clock,
        control: &Runtime,
        stopper: &Stopper,
        orders: Orders,
    ) -> anyhow::Result<(Self, Option<ClusterThread>)> {
        let probe = ProbeAddress::default();
        let clouds = Arc::new(Clouds::start(&loaded.config.clouds, &clock, control.handle())?);
        let clouds = Arc::new(CloudsInForce::new(clouds));
        let (who, hearing) = strategy.start(&clouds, probe.clone(), &clock, control, stopper, orders)?;
        let parts = Self {
            bulletin: Arc::new(reload::Bulletin::new(loaded.digest, clock.wall())),
            clock,
            who: Arc::new(who),
            capture,
            clouds,
            probe,
            open: Arc::default(),
            long_polls: Arc::default(),
            strangers: Arc::default(),
            forwards: Places::new(room.forwards),
            room,
            threads: loaded.config.threads.count(),
        };
        Ok((parts, hearing))
    }

    /// Has somebody look after the redirect until the stop has begun.
    fn watch_capture(&self, control: &Runtime, stopper: &Stopper, stop: &Stop) -> Option<Arc<Capture>> {
        let capture = self.capture.clone()?;
        let (watched, stopper, stop) = (capture.clone(), stopper.clone(), stop.clone());
        control.spawn(async move { watched.watch(stopper, stop).await });
        Some(capture)
    }

    /// What is written at a scrape.
    fn register(&self, registry: &mut Registry, metrics: &[Arc<Traffic>], log: &Log) {
        let log = log.clone();
        let help = "Log lines that were dropped because nobody read the log";
        registry.register_collector(scrape(move |out| {
            write::counter(out, "seawall_log_lines_lost", help, log.lost())
        }));
        let bulletin = self.bulletin.clone();
        registry.register_collector(scrape(move |out| bulletin.write(out)));
        let requests = Requests::new(metrics.to_vec(), self.open.clone(), self.long_polls.clone());
        registry.register_collector(scrape(move |out| requests.write(out)));
        broker::register(&self.clouds, registry, &self.clock);
        if let Some(cluster) = self.who.cluster.clone() {
            registry.register_collector(scrape(move |out| cluster::write(&cluster, out)));
        }
        let who = self.who.clone();
        registry.register_collector(scrape(move |out| lifetime_floors::write(&who, out)));
        if let Some(capture) = self.capture.clone() {
            registry.register_collector(scrape(move |out| redirect::write(&capture, out)));
        }
    }

    fn admin(
        &self,
        mut registry: Registry,
        seccomp: Seccomp,
        metrics: &[Arc<Traffic>],
        log: &Log,
        listeners: Vec<(SocketAddr, Vec<Probe>)>,
    ) -> Arc<Admin> {
        let (clock, own_clock) = (self.clock.clone(), self.clock.clone());
        let callers = self.who.callers.clone();
        self.register(&mut registry, metrics, log);
        let (who, obstacle, clouds) = (self.who.clone(), self.who.clone(), self.clouds.clone());
        let (detour, capture) = (self.capture.clone(), self.capture.clone());
        let (told, configuration) = (self.bulletin.clone(), self.bulletin.clone());
        let sources = Sources {
            registry,
            readiness: Readiness::new(listeners, self.probe.clone()),
            obstacle: Box::new(move || obstacle.obstacle()),
            detour: Box::new(move || detour.as_ref()?.obstacle()),
            remarks: Box::new(move || {
                let mut lines = who.remarks();
                lines.extend(told.remark());
                lines.extend(clouds.now().remarks());
                lines.extend(seccomp.remark());
                lines.extend(capture.as_ref().and_then(|capture| capture.remark()));
                lines
            }),
            pods: Box::new(move || pods_page::pods(&configuration.describe(), &callers, clock.now())),
        };
        Arc::new(Admin::new(sources, own_clock))
    }

    /// Looks on the control thread for pods that fetch over and over, and for credentials that are not renewed.
    fn look(&self, control: &Runtime, registry: &mut Registry) {
        let (clouds, clock) = (&self.clouds, &self.clock);
        let mut found = |metric| Found::registered(registry, metric);
        let thrash =
            excessive_fetch::Seen::new(clouds.clone(), clock.clone(), found(excessive_fetch::METRIC));
        let outage =
            stale_credentials::Seen::new(clouds.clone(), clock.clone(), found(stale_credentials::METRIC));
        control.spawn(pod_scan::run(thrash, self.who.callers.clone(), clock.clone()));
        control.spawn(pod_scan::run(outage, self.who.callers.clone(), clock.clone()));
    }

    fn traffic_thread(
        &self,
        number: usize,
        listeners: Vec<Lane>,
        (speak, allowance): (Speak<PodCaller>, Allowance),
        metrics: Arc<Traffic>,
        Hears { stop, changes }: Hears,
        alive: Alive,
    ) -> anyhow::Result<JoinHandle<()>> {
        let shared = Shared {
            clock: self.clock.clone(),
            callers: self.who.callers.clone(),
            open: self.open.clone(),
            strangers: self.strangers.clone(),
            bounds: bounds(self.threads, &self.room),
        };
        let runtime =
            Builder::new_current_thread().enable_io().enable_time().max_blocking_threads(1).build()?;
        // Made on the thread itself: what a connection holds never crosses threads.
        let serve = move || async move {
            let (lanes, speaks) = (Lanes::new(listeners)?, speak().ok_or(std::io::ErrorKind::InvalidInput)?);
            let thread = Thread::new(shared, speaks, allowance, metrics, stop, number as u64)?;
            thread.run(lanes, changes).await
        };
        let body = move || {
            let _alive = alive;
            if let Err(error) = runtime.block_on(serve()) {
                tracing::error!(%error, "a traffic thread cannot serve");
            }
            leave(runtime);
        };
        std::thread::Builder::new()
            .name(format!("traffic-{number}"))
            .spawn(body)
            .context("cannot start a traffic thread")
    }

    /// How readiness asks at each bound address.
    fn probes(&self, config: &Config, addresses: &[SocketAddr]) -> Vec<(SocketAddr, Vec<Probe>)> {
        let (each, clouds) = (addresses.iter().zip(&config.listen), self.clouds.now());
        each.map(|(address, listen)| (*address, clouds.probes(&listen.dialects))).collect()
    }

    /// What makes dialects on traffic threads, by whichever configuration.
    fn speaking(&self, config: &Config, stop: &Stop) -> SpeakingHere {
        SpeakingHere {
            spoken: config.listen.iter().map(|listen| listen.dialects.clone()).collect(),
            long_polls: self.long_polls.clone(),
            places: self.forwards.clone(),
            idle: (self.room.forwards as usize).div_ceil(self.threads),
            room: self.room,
            stop: stop.clone(),
        }
    }

    /// Everything that another configuration reaches.
    fn reach(
        &self,
        orders: mpsc::Sender<Order>,
        threads: Vec<mpsc::UnboundedSender<Change<PodCaller>>>,
        speaking: SpeakingHere,
        loudness: Loudness,
        control: &Runtime,
    ) -> Reach {
        Reach {
            clouds: self.clouds.clone(),
            orders,
            threads,
            speaking: Box::new(move |config, clouds| speaking.by(config, clouds)),
            loudness,
            bulletin: self.bulletin.clone(),
            cluster: self.who.cluster.clone(),
            clock: self.clock.clone(),
            runtime: control.handle().clone(),
        }
    }
}

/// What a traffic thread is told while it runs.
struct Hears {
    stop: Stop,
    changes: Changes<PodCaller>,
}

/// What dialects are made with that no configuration changes.
struct SpeakingHere {
    /// By which dialects each listener is answered.
    spoken: Vec<Vec<DialectName>>,
    long_polls: Arc<Cap>,
    places: Arc<Places>,
    /// Idle connections of a thread to a real server.
    idle: usize,
    room: Room,
    stop: Stop,
}

impl SpeakingHere {
    /// By this configuration and its clouds, for one thread.
    fn by(&self, config: &Config, clouds: &Arc<Clouds>) -> (Speak<PodCaller>, Allowance) {
        let limits = &config.limits;
        let long_polls = LongPolls {
            all: self.long_polls.clone(),
            most: self.room.long_polls,
            most_per_pod: limits.long_polls_per_pod,
            stop: self.stop.clone(),
        };
        let tools = Tools { long_polls, places: self.places.clone(), idle: self.idle };
        let (clouds, spoken) = (clouds.clone(), self.spoken.clone());
        let allowance = Allowance {
            connections: self.room.per_caller(limits),
            timeouts: Timeouts { head: limits.head_timeout, idle: limits.idle_timeout },
        };
        (Box::new(move || clouds.speak(&spoken, &tools)), allowance)
    }
}

/// What one of so many traffic threads lets clients hold.
fn bounds(threads: usize, room: &Room) -> Bounds {
    Bounds {
        connections: room.connections,
        held: room.held / threads,
        cores: room.cores,
        wire: seawall_http::Limits::default(),
    }
}
