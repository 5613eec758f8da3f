//! Another configuration while the agent runs: no connection ends for it, no request fails, and a bad one changes nothing.
//!
//! Runs on the control thread and is the only one that changes what is in force. A file is looked at once a second ([`file_watch`]), and when
//! SIGHUP asks for it. What is read is in force as a whole or not at all: it is refused for a mistake, for a key that only another process
//! can take ([`AgentConfig::keys_needing_restart`]), and for a file that it names and that cannot be used; then the one in force stays, and that is said in
//! the log, as an event (once for each content) and in metrics ([`status`]).
//!
//! A change is made in this order ([`seawall_identity::entitlement_swap`] has the argument): the next clouds are made, taking over what the sections do not say
//! differently (a broker with all its leases, keys of session tokens, paces, counts); leases that have to be fetched anew are, while the
//! old configuration answers; it is not known for a moment what pods may have of the clouds that changed; each traffic thread speaks
//! by the next configuration; the pods have what it gives. What a file takes away is taken at the change: at once where no lease has to be
//! fetched anew, and [`AHEAD`] later at most where some have.
//!
//! One at a time: a file that changes meanwhile is read afterwards. A stop ends the looking; a change that is under way then is made
//! to its end, because between two of its steps pods wait. Refuses to know what a key means; knows no pod.

mod digest;
mod file_watch;
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use seawall_clouds::pod::PodEntry;
use seawall_clouds::{Clouds, CurrentClouds};
use seawall_cluster::ClusterClient;
use seawall_core::annotations::AnnotationKeys;
use seawall_core::cloud::CloudName;
use seawall_core::events::EventReason;
use seawall_core::shutdown::StopSignal;
use seawall_core::{Clock, PodUid, disk};
use seawall_server::thread::{BuildDialectsFn, ClientLimits, ThreadUpdate};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::config;
use crate::config::{AgentConfig, ConfigFileError, DownwardApi};
use crate::log::LogLevelHandle;
use digest::Digest;
use file_watch::{FileStamp, FileWatcher};
use seawall_identity::entitlement_swap;
use seawall_identity::entitlement_swap::{RefetchTasks, SwapCommand};
pub(crate) use status::ReloadStatus;
use status::{RefusedConfig, ReloadOutcome, format_time};

/// How long credentials are fetched ahead that pods hold and must have anew: a full node's at the pace of a broker's start. What has not come
/// by then is fetched for who asks for it, as at a first request.
const AHEAD: Duration = Duration::from_secs(10);

/// How long a traffic thread may take to speak by another configuration. It takes microseconds, and longer where the CPU quota is used up.
const SPEAKING: Duration = Duration::from_secs(10);

/// A configuration and the file that it was read of.
#[derive(Debug)]
pub(crate) struct LoadedConfig {
    pub(crate) path: PathBuf,
    pub(crate) digest: Digest,
    pub(crate) config: AgentConfig,
}

impl LoadedConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, or every mistake in it.
    pub(crate) fn from_file(path: &Path) -> Result<Self, ConfigFileError> {
        let text = config::read_text(path)?;
        let config = AgentConfig::from_text(&text, path, &DownwardApi::from_env())?;
        Ok(Self { path: path.into(), digest: Digest::of(&text), config })
    }
}

/// How traffic threads speak by a configuration and its clouds: what makes the dialects of one thread, and what one caller may.
pub(crate) type ReloadDialectFn =
    Box<dyn Fn(&AgentConfig, &Arc<Clouds>) -> (BuildDialectsFn<PodEntry>, ClientLimits) + Send + Sync>;

/// Everything that a change reaches.
pub(crate) struct ReloadTargets {
    pub(crate) clouds: Arc<CurrentClouds>,
    pub(crate) orders: mpsc::Sender<SwapCommand>,
    pub(crate) threads: Vec<mpsc::UnboundedSender<ThreadUpdate<PodEntry>>>,
    pub(crate) dialect_factory: ReloadDialectFn,
    pub(crate) log_level: LogLevelHandle,
    pub(crate) status: Arc<ReloadStatus>,
    /// Where the agent's owner hears of a file that was refused, besides the log.
    pub(crate) cluster: Option<Arc<ClusterClient>>,
    pub(crate) clock: Clock,
    pub(crate) runtime: Handle,
}

/// Who changes what is in force.
pub(crate) struct Reloader {
    reach: ReloadTargets,
    path: PathBuf,
    digest: Digest,
    in_force: AgentConfig,
    /// The annotations that are heard of since the start.
    watched: Vec<AnnotationKeys>,
    own_pod: Option<PodUid>,
    /// The content that was refused last, and what is still to be told of it as an event.
    refused: Option<(Digest, Option<String>)>,
}

/// Why a file is refused.
enum ReloadError {
    Mistaken(ConfigFileError),
    NeedsRestart(Vec<String>),
    Failed(anyhow::Error),
}

impl ReloadError {
    fn outcome(&self) -> ReloadOutcome {
        match self {
            Self::Mistaken(_) => ReloadOutcome::Invalid,
            Self::NeedsRestart(_) => ReloadOutcome::NeedsRestart,
            Self::Failed(_) => ReloadOutcome::Failed,
        }
    }

    /// As `check` says it.
    fn in_full(&self) -> String {
        match self {
            Self::Mistaken(error) => error.to_string(),
            Self::NeedsRestart(_) | Self::Failed(_) => self.in_short(),
        }
    }

    /// For others than those who may read the file.
    fn in_short(&self) -> String {
        match self {
            Self::Mistaken(error) => error.redacted(),
            Self::NeedsRestart(keys) => {
                format!(
                    "{}: a change of this needs a restart of the agent, and nothing else in the file is in force without it",
                    keys.join(", ")
                )
            }
            Self::Failed(error) => format!("{error:#}"),
        }
    }
}

impl Reloader {
    /// From what was loaded at the start, which is in force.
    pub(crate) fn new(loaded: LoadedConfig, reach: ReloadTargets) -> Self {
        let LoadedConfig { path, digest, config } = loaded;
        let (watched, own_pod) =
            (config.clouds.annotation_keys(), DownwardApi::from_env().own_pod().cloned());
        Self { reach, path, digest, in_force: config, watched, own_pod, refused: None }
    }

    /// Until the stop has begun.
    pub(crate) async fn run(mut self, asked: Arc<Notify>, mut stop: StopSignal) {
        let (clock, mut looks) = (self.reach.clock.clone(), FileWatcher::default());
        loop {
            tokio::select! {
                () = stop.wait() => return,
                () = clock.sleep(file_watch::POLL_INTERVAL) => {
                    let path = self.path.clone();
                    // A disk that does not answer has told nothing of the file.
                    if let Ok(seen) = disk::run_with_timeout(move || FileStamp::at(&path)).await && looks.should_read(seen) && !self.read(false).await {
                        looks.reset();
                    }
                }
                () = asked.notified() => {
                    // Somebody says that it is whole. If it is not good, it may be so in a moment.
                    if !self.read(true).await {
                        looks.reset();
                    }
                }
            }
            self.report_refusal();
        }
    }

    /// Reads the file and makes of it what is right. Where somebody `is_asking`, a mistake is not said yet, and everything else is. False
    /// where it had one, or could not be read in time: it is to be read again.
    async fn read(&mut self, is_asking: bool) -> bool {
        let path = self.path.clone();
        let loaded = match disk::run_with_timeout(move || load(path)).await {
            Ok(loaded) => loaded,
            Err(slow) => {
                tracing::warn!(
                    reason = slow,
                    "the configuration's file cannot be looked at; the one in force stays"
                );
                return false;
            }
        };
        match loaded {
            Ok(next) if next.digest == self.digest => self.is_back(is_asking),
            Ok(next) => {
                if let Err((digest, refusal)) = self.take(next, is_asking).await {
                    self.refuse(digest, &refusal, is_asking);
                }
            }
            Err(_) if is_asking => return false,
            Err((digest, error)) => self.refuse(digest, &ReloadError::Mistaken(error), false),
        }
        true
    }

    fn is_back(&mut self, is_asking: bool) {
        if self.refused.take().is_some() || is_asking {
            tracing::info!(config = ?self.digest, "the configuration's file is the one in force");
        }
        self.reach.status.clear_refusal();
    }

    /// Has it in force.
    async fn take(&mut self, next: LoadedConfig, is_asking: bool) -> Result<(), (Digest, ReloadError)> {
        let LoadedConfig { digest, config, .. } = next;
        if !is_asking && self.is_refused(digest) {
            return Ok(());
        }
        let needing = self.in_force.keys_needing_restart(&config, &self.watched);
        if !needing.is_empty() {
            return Err((digest, ReloadError::NeedsRestart(needing)));
        }
        let changed = self.in_force.changed_keys(&config);
        self.apply(&config).await.map_err(|error| (digest, ReloadError::Failed(error)))?;
        (self.in_force, self.digest, self.refused) = (config, digest, None);
        self.reach.status.record_applied(digest, self.reach.clock.wall());
        tracing::info!(config = ?digest, ?changed, "another configuration is in force");
        Ok(())
    }

    fn is_refused(&self, digest: Digest) -> bool {
        self.refused.as_ref().is_some_and(|(known, _)| *known == digest)
    }

    fn refuse(&mut self, digest: Digest, refusal: &ReloadError, is_asking: bool) {
        if self.is_refused(digest) && !is_asking {
            return;
        }
        let (reason, at) = (refusal.in_short(), self.reach.clock.wall());
        let outcome = refusal.outcome();
        tracing::error!(
            config = ?digest, in_force = ?self.digest, reason = refusal.in_full(),
            "another configuration is refused, and the one in force stays"
        );
        if !self.is_refused(digest) {
            let told = format!(
                "The configuration was changed and is refused; the one of before stays in force ({}). {reason}",
                format_time(at)
            );
            self.refused = Some((digest, Some(told)));
        }
        self.reach.status.record_refused(outcome, RefusedConfig { digest, at, reason });
    }

    /// As an event on the agent's own pod, or on its node; again at the next look where there was no room for it.
    fn report_refusal(&mut self) {
        let (Some(cluster), Some((_, Some(message)))) = (&self.reach.cluster, &self.refused) else { return };
        let snapshot = cluster.pods().snapshot();
        let own = self.own_pod.as_ref().and_then(|uid| snapshot.by_uid(&uid.0));
        let is_told = cluster.event_reporter().report_agent(
            own.map(|own| &**own),
            EventReason::ConfigurationRefused,
            message,
        );
        if let Some((_, told)) = self.refused.as_mut().filter(|_| is_told) {
            *told = None;
        }
    }
}

/// The file as it is, or its mistakes and what tells it from others that have some.
fn load(path: PathBuf) -> Result<LoadedConfig, (Digest, ConfigFileError)> {
    let text = config::read_text(&path).map_err(|error| (Digest::of(&error.to_string()), error))?;
    let digest = Digest::of(&text);
    let config = AgentConfig::from_text(&text, &path, &DownwardApi::from_env());
    config.map(|config| LoadedConfig { path, digest, config }).map_err(|error| (digest, error))
}

/// The steps of a change.
impl Reloader {
    async fn apply(&self, next: &AgentConfig) -> anyhow::Result<()> {
        let ReloadTargets { clouds, clock, runtime, log_level: loudness, .. } = &self.reach;
        let changed = self.in_force.clouds.changed(&next.clouds);
        if changed.is_empty() {
            if self.in_force.limits != next.limits {
                self.speak(next, &clouds.load()).await?;
            }
        } else {
            // It reads the files that the sections name.
            let (before, sections, those) = (clouds.load(), next.clouds.clone(), changed.clone());
            let (clock, runtime) = (clock.clone(), runtime.clone());
            let others =
                disk::run_with_timeout(move || before.with_config(&sections, &those, &clock, &runtime));
            let others = others.await.map_err(anyhow::Error::msg)??;
            self.change(next, Arc::new(others), changed).await?;
        }
        loudness.set(next.log_level);
        Ok(())
    }

    async fn change(
        &self,
        next: &AgentConfig,
        clouds: Arc<Clouds>,
        changed: Vec<CloudName>,
    ) -> anyhow::Result<()> {
        self.fetch_ahead(&clouds).await.context(STOPPED)?;
        let ((closed, is_closed), (spoken, is_spoken)) = (oneshot::channel(), oneshot::channel());
        let (made, is_made) = oneshot::channel();
        let change = entitlement_swap::EntitlementSwap {
            clouds: clouds.clone(),
            changed,
            entitlements_cleared: closed,
            dialects_replaced: is_spoken,
            completed: made,
        };
        self.reach.orders.send(SwapCommand::Swap(change)).await.context(STOPPED)?;
        is_closed.await.context(STOPPED)?;
        let is_spoken = self.speak(next, &clouds).await;
        if is_spoken.is_ok() {
            self.reach.clouds.replace(clouds);
            spoken.send(()).map_err(|()| anyhow::anyhow!(STOPPED))?;
        } else {
            // The pods have what they had.
            drop(spoken);
        }
        is_made.await.context(STOPPED)?;
        is_spoken
    }

    async fn fetch_ahead(&self, clouds: &Arc<Clouds>) -> Option<()> {
        let (catch_ups, listed) = oneshot::channel();
        self.reach.orders.send(SwapCommand::Prepare(clouds.clone(), catch_ups)).await.ok()?;
        let RefetchTasks(catch_ups) = listed.await.ok()?;
        let pods = catch_ups.len();
        let fetched = tokio::select! {
            _ = join_all(catch_ups) => true,
            () = self.reach.clock.sleep(AHEAD) => false,
        };
        if pods > 0 {
            tracing::info!(
                pods,
                fetched,
                "credentials were fetched by another configuration before it is in force"
            );
        }
        Some(())
    }

    /// Has each thread speak by a configuration. Where one does not in time, all go back to the one in force: meanwhile no pod is given
    /// anything of a cloud that changes.
    async fn speak(&self, next: &AgentConfig, clouds: &Arc<Clouds>) -> anyhow::Result<()> {
        let ReloadTargets { threads, dialect_factory: speaking, clock, .. } = &self.reach;
        if told_all(threads, || speaking(next, clouds), clock).await {
            return Ok(());
        }
        told_all(threads, || speaking(&self.in_force, &self.reach.clouds.load()), clock).await;
        anyhow::bail!(
            "a traffic thread did not take the configuration within {} s, so all go on with the one in force",
            SPEAKING.as_secs()
        )
    }
}

/// Nobody keeps pods any more.
const STOPPED: &str = "the agent is being stopped";

/// Has each of these threads take a change, and waits until all have, for [`SPEAKING`] at most; whether all have. One that has ended
/// answers nobody, and is not waited for. One that is late takes its changes in their order.
async fn told_all(
    threads: &[mpsc::UnboundedSender<ThreadUpdate<PodEntry>>],
    speaks: impl Fn() -> (BuildDialectsFn<PodEntry>, ClientLimits),
    clock: &Clock,
) -> bool {
    let order = |thread: &mpsc::UnboundedSender<ThreadUpdate<PodEntry>>| {
        let (made, is_made) = oneshot::channel();
        let (speak, allowance) = speaks();
        thread
            .send(ThreadUpdate { build_dialects: speak, client_limits: allowance, applied: made })
            .ok()
            .map(|()| is_made)
    };
    tokio::select! {
        _ = join_all(threads.iter().filter_map(order)) => true,
        () = clock.sleep(SPEAKING) => false,
    }
}

#[cfg(test)]
mod tests {
    use seawall_server::connection_table::ConnectionTimeouts;

    use super::*;

    /// It was waited for without end, and the pods of a cloud that changed were refused meanwhile.
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
            _ = &mut told => panic!("not before its time"),
            () = tokio::task::yield_now() => {}
        }
        hand.advance(SPEAKING);
        assert!(!told.await);
        assert!(changes.try_recv().is_ok());
    }
}
