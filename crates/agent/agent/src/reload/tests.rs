use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use seawall_broker::RefetchProgress;
use seawall_clouds::entitlements::RefetchTask;
use seawall_clouds::testing::BOTH_CLOUDS_BROKERED_CONFIG;
use seawall_core::shutdown::{Stopper, stop_channel};
use seawall_core::{ManualClock, ServiceAccount};
use seawall_server::connection_table::ConnectionTimeouts;
use tempfile::TempDir;

use super::*;

#[test]
fn a_mistake_or_a_key_that_needs_a_restart_ends_the_retries_of_a_file() {
    let now = Moment::from_nanos(0);
    let fetches = || ReloadError::FetchesFailed(Vec::new());
    let failed = || ReloadError::Failed(anyhow::anyhow!("the disk does not respond"));
    let restart = || ReloadError::NeedsRestart(Vec::new());
    let retry = |minutes, fetches_fail_since| {
        let after = Duration::from_mins(minutes);
        Some(Retry { at: now + after, after, fetches_fail_since })
    };
    for (last, refusal, cause, expected) in [
        (None, fetches(), ReadCause::Change, retry(1, Some(now))),
        (retry(1, Some(now)), fetches(), ReadCause::Retry, retry(2, Some(now))),
        (retry(1, Some(now)), fetches(), ReadCause::Signal, retry(1, Some(now))),
        (retry(1, Some(now)), failed(), ReadCause::Retry, retry(2, Some(now))),
        (retry(16, Some(now)), fetches(), ReadCause::Retry, retry(16, Some(now))),
        (None, failed(), ReadCause::Change, retry(1, None)),
        (retry(16, None), fetches(), ReadCause::Retry, retry(16, Some(now))),
        (retry(1, Some(now)), restart(), ReadCause::Change, None),
    ] {
        let found = Retry::after_refusal(last, &refusal, cause, now);
        assert_eq!(found, expected, "{last:?}, {}, {cause:?}", refusal.in_short());
    }
    let hour = now + Duration::from_hours(1);
    assert!(retry(16, Some(now)).unwrap().is_late(hour));
    assert!(!retry(16, None).unwrap().is_late(hour), "another file was missing");
}

/// The reloader once waited for an ended thread without limit. Meanwhile the agent refused pods' requests to a changed cloud.
#[tokio::test]
async fn a_thread_that_does_not_answer_is_given_up_and_one_that_has_ended_is_not_waited_for() {
    let (clock, hand) = Clock::manual();
    let speaks = || {
        let timeouts = ConnectionTimeouts { head: SPEAKING, idle: SPEAKING };
        let allowance = ClientLimits { connections: 1, timeouts };
        (Box::new(|| None) as BuildDialectsFn<PodEntry>, allowance)
    };
    let ((hung, mut changes), (ended, _)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    assert!(told_all(std::slice::from_ref(&ended), speaks, &clock).await);
    let threads = [hung, ended];
    let mut told = Box::pin(told_all(&threads, speaks, &clock));
    tokio::select! {
        biased;
        _ = &mut told => panic!("the wait must not end before the time limit"),
        () = tokio::task::yield_now() => {}
    }
    hand.advance(SPEAKING);
    assert!(!told.await);
    assert!(changes.try_recv().is_ok());
}

/// A reloader on a manual clock. The store of entitlements is the test's.
struct World {
    folder: TempDir,
    hand: ManualClock,
    clock: Clock,
    status: Arc<ReloadStatus>,
    store: Arc<Store>,
    _stopper: Stopper,
}

#[derive(Default)]
struct Store {
    /// The namespaces whose pods have a credential, and the number of credentials that can be fetched for each.
    pods: Mutex<Vec<(&'static str, usize)>>,
    /// The times at which the reloader asked for tasks.
    prepared: Mutex<Vec<Moment>>,
    discarded: AtomicUsize,
}

impl Store {
    async fn run(self: Arc<Self>, clock: Clock, mut commands: mpsc::Receiver<SwapCommand>) {
        while let Some(command) = commands.recv().await {
            match command {
                SwapCommand::Prepare(_, listed) => {
                    self.prepared.lock().unwrap().push(clock.now());
                    listed.send(PreSwapFetchTasks(self.tasks())).unwrap();
                }
                SwapCommand::Discard => drop(self.discarded.fetch_add(1, Ordering::Relaxed)),
                SwapCommand::Swap(swap) => {
                    swap.entitlements_cleared_sender.send(()).unwrap();
                    swap.dialects_replaced_receiver.await.unwrap();
                    swap.completion_sender.send(()).unwrap();
                }
            }
        }
    }

    fn tasks(&self) -> Vec<RefetchTask> {
        let task = |(namespace, fetched): &(&str, usize)| RefetchTask {
            cloud: CloudName::Google,
            service_account: ServiceAccount { namespace: (*namespace).into(), name: "default".into() },
            has_credentials: true,
            progress: Arc::new(Mutex::new(RefetchProgress { begun: 1, fetched: *fetched, last_error: None })),
            run: Box::pin(async {}),
        };
        self.pods.lock().unwrap().iter().map(task).collect()
    }
}

/// A limit for a broken reloader, not for a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);

const HEAD: &str = "listen: [\"127.0.0.1:0\"]\nidentity: { strategy: static, file: pods.yaml }\n";

impl World {
    fn start(pods: &[(&'static str, usize)]) -> Self {
        let folder = TempDir::with_prefix("seawall-reload-").unwrap();
        let path = folder.path().join("agent.yaml");
        std::fs::write(&path, format!("{HEAD}{BOTH_CLOUDS_BROKERED_CONFIG}")).unwrap();
        let loaded = LoadedConfig::from_file(&path).unwrap();
        let (clock, hand) = Clock::manual();
        let clouds = Clouds::start(&loaded.config.clouds, &clock, &Handle::current()).unwrap();
        let status = Arc::new(ReloadStatus::new(loaded.digest, clock.wall_time()));
        let store = Arc::new(Store { pods: Mutex::new(pods.to_vec()), ..Store::default() });
        let (swap_command_sender, commands) = mpsc::channel(1);
        tokio::spawn(store.clone().run(clock.clone(), commands));
        let targets = ReloadTargets {
            clouds: Arc::new(CurrentClouds::new(Arc::new(clouds))),
            swap_command_sender,
            thread_update_senders: Vec::new(),
            dialect_builder_factory: Box::new(|_, _| unreachable!("there are no traffic threads")),
            log_level: LogLevelHandle::of_no_log(),
            status: status.clone(),
            cluster_client: None,
            clock: clock.clone(),
            runtime: Handle::current(),
        };
        let (stopper, stop) = stop_channel();
        tokio::spawn(Reloader::new(loaded, targets).run(Arc::default(), stop));
        Self { folder, hand, clock, status, store, _stopper: stopper }
    }

    /// Writes a file that asks a server at this port for tokens.
    fn write_other(&self, port: u16) {
        let server = format!("google: {{ stsUrl: \"http://127.0.0.1:{port}\",");
        self.write(&format!("{HEAD}{}", BOTH_CLOUDS_BROKERED_CONFIG.replace("google: {", &server)));
    }

    fn write(&self, text: &str) {
        std::fs::write(self.folder.path().join("agent.yaml"), text).unwrap();
    }

    /// Lets seconds pass, one after another, until this is true. Returns how many.
    async fn pass_until(&self, is_true: impl Fn(&Self) -> bool) -> u64 {
        let begun = self.clock.now();
        while !is_true(self) {
            assert!(self.clock.now().since(begun) < Duration::from_hours(3), "{}", self.status.to_json());
            self.hand.advance(Duration::from_secs(1));
            // The reloader reads the file on a thread of its own, and then sleeps for a second again.
            let next = self.clock.now() + file_watch::POLL_INTERVAL;
            let sleeps_again = async {
                while self.hand.next_deadline().is_none_or(|at| at > next) {
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
            };
            tokio::time::timeout(PATIENCE, sleeps_again).await.expect("the reloader must sleep again");
        }
        self.clock.now().since(begun).as_secs()
    }

    fn reason(&self) -> String {
        self.status.to_json()["refused"]["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// The seconds between the reads of the refused file.
    fn waits(&self) -> Vec<u64> {
        let prepared = self.store.prepared.lock().unwrap();
        prepared.windows(2).map(|two| two[1].since(two[0]).as_secs()).collect()
    }
}

#[tokio::test]
async fn a_file_with_which_no_fetch_succeeds_is_tried_again_until_one_does() {
    let world = World::start(&[("shop", 0), ("pay", 0)]);
    world.write_other(1);
    let tries = |world: &World| world.store.prepared.lock().unwrap().len();
    world.pass_until(|world| tries(world) == 7).await;
    assert_eq!(world.waits(), [60, 120, 240, 480, 960, 960]);
    assert!(
        world.reason().starts_with("none of 2 fetches from google brought a credential"),
        "{}",
        world.reason()
    );
    *world.store.pods.lock().unwrap() = vec![("shop", 1), ("pay", 0)];
    world.pass_until(|world| world.reason().is_empty()).await;
    assert_eq!((tries(&world), world.store.discarded.load(Ordering::Relaxed)), (8, 7));
}

#[tokio::test]
async fn one_namespace_delays_a_file_for_half_an_hour() {
    let world = World::start(&[("shop", 0), ("shop", 0)]);
    world.write_other(1);
    world.pass_until(|world| !world.reason().is_empty()).await;
    let seconds = world.pass_until(|world| world.reason().is_empty()).await;
    assert_eq!(seconds, 31 * 60);
    assert_eq!(world.store.discarded.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn another_file_begins_the_half_hour_again_even_just_before_a_retry() {
    let world = World::start(&[("shop", 0)]);
    world.write_other(1);
    world.pass_until(|world| !world.reason().is_empty()).await;
    let begun = world.clock.now();
    world.pass_until(|world| world.clock.now().since(begun).as_secs() == 31 * 60 - 1).await;
    world.write_other(2);
    let seconds = world.pass_until(|world| world.reason().is_empty()).await;
    assert!((31 * 60..31 * 60 + 5).contains(&seconds), "{seconds}");
}

/// Regression: a retry that was due read such a file again and again without a pause, and nobody reported the mistake.
#[tokio::test]
async fn a_file_that_becomes_invalid_before_a_retry_is_reported_and_not_tried_again() {
    let world = World::start(&[("shop", 0)]);
    world.write_other(1);
    world.pass_until(|world| !world.reason().is_empty()).await;
    let begun = world.clock.now();
    world.pass_until(|world| world.clock.now().since(begun).as_secs() == 59).await;
    world.write("listen: [");
    let seconds = world.pass_until(|world| !world.reason().starts_with("none of")).await;
    assert!(seconds < 5, "{seconds}");
    world.pass_until(|world| world.clock.now().since(begun) > Duration::from_hours(1)).await;
    assert_eq!(world.store.prepared.lock().unwrap().len(), 1);
}
