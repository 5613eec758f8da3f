//! Reloads the configuration while the agent runs. A reload ends no connection and makes no request fail.
//!
//! The reloader runs on the control thread, and only the reloader changes the configuration in force. It checks the file once a
//! second ([`file_watch`]), and on SIGHUP. It applies the whole file or refuses the whole file. It refuses a file for one of
//! these reasons:
//! - The file has a mistake.
//! - A changed key needs a restart ([`AgentConfig::keys_needing_restart`]).
//! - The agent cannot use a file that the configuration names.
//! - At one of the changed clouds, no credential could be fetched in the place of those that pods have ([`prefetch`]). The agent tries this
//!   file again, because the cloud may have been down.
//!
//! After a refusal, the old configuration stays in force. The log, an event (once for each content) and metrics ([`status`])
//! report the refusal.
//!
//! A reload takes these steps in this order ([`seawall_identity::entitlement_swap`] gives the reasons):
//! 1. Build the clouds of the new configuration. The new clouds take over from the old clouds all parts that the changes do not
//!    affect: a broker with all its leases, session token keys, rates, and counters.
//! 2. Fetch the leases that the new configuration needs, while the agent still answers under the old configuration.
//! 3. Clear the pods' entitlements at the changed clouds. Until step 5 the entitlements are undecided, and requests to these clouds wait.
//! 4. Switch each traffic thread to the dialects of the new configuration.
//! 5. Decide the pods' entitlements under the new configuration.
//!
//! If a new file removes an entitlement of a pod, the pod loses the entitlement in step 3, unless the agent refuses the file. If the
//! agent must first fetch leases, step 3 begins after at most [`prefetch::TIME_LIMIT`]. Otherwise step 3 begins at once.
//!
//! Reloads run one at a time: if the file changes during a reload, the reloader reads the new file after the reload. A shutdown
//! ends the checks of the file, but the reloader completes a reload in progress, because pods' requests wait between its steps.
//! The module does not depend on pods or on the meaning of keys.

mod digest;
mod file_watch;
mod prefetch;
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
use seawall_core::kubernetes_events::EventReason;
use seawall_core::shutdown::StopSignal;
use seawall_core::{Clock, Moment, PodUid, disk_thread};
use seawall_server::thread::{BuildDialectsFn, ClientLimits, ThreadUpdate};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::config;
use crate::config::{AgentConfig, ConfigFileError, DownwardApi};
use crate::log::LogLevelHandle;
use digest::Digest;
use file_watch::{FileStamp, FileWatcher};
use prefetch::FailedCloud;
use seawall_identity::entitlement_swap;
use seawall_identity::entitlement_swap::{PreSwapFetchTasks, SwapCommand};
pub(crate) use status::ReloadStatus;
use status::{RefusedConfig, ReloadOutcome, format_time};

/// The time limit for a traffic thread to switch to another configuration. The switch takes microseconds, or longer if the CPU
/// quota is used up.
const SPEAKING: Duration = Duration::from_secs(10);

/// A configuration and the file from which it was read.
#[derive(Debug)]
pub(crate) struct LoadedConfig {
    pub(crate) path: PathBuf,
    pub(crate) digest: Digest,
    pub(crate) config: AgentConfig,
}

impl LoadedConfig {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes; the error lists all of them.
    pub(crate) fn from_file(path: &Path) -> Result<Self, ConfigFileError> {
        let text = config::read_text(path)?;
        let config = AgentConfig::from_text(&text, path, &DownwardApi::from_env())?;
        Ok(Self { path: path.into(), digest: Digest::of_text(&text), config })
    }
}

/// The function that takes a configuration and its clouds, and returns the dialect builder of one thread and the limits of one
/// client.
pub(crate) type DialectBuilderFactory =
    Box<dyn Fn(&AgentConfig, &Arc<Clouds>) -> (BuildDialectsFn<PodEntry>, ClientLimits) + Send + Sync>;

/// The parts of the agent that a reload changes.
pub(crate) struct ReloadTargets {
    pub(crate) clouds: Arc<CurrentClouds>,
    pub(crate) swap_command_sender: mpsc::Sender<SwapCommand>,
    pub(crate) thread_update_senders: Vec<mpsc::UnboundedSender<ThreadUpdate<PodEntry>>>,
    pub(crate) dialect_builder_factory: DialectBuilderFactory,
    pub(crate) log_level: LogLevelHandle,
    pub(crate) status: Arc<ReloadStatus>,
    /// The client that reports a refused file as a Kubernetes event, in addition to the log.
    pub(crate) cluster_client: Option<Arc<ClusterClient>>,
    pub(crate) clock: Clock,
    pub(crate) runtime: Handle,
}

/// Reloads the configuration in force.
pub(crate) struct Reloader {
    reach: ReloadTargets,
    path: PathBuf,
    digest: Digest,
    in_force: AgentConfig,
    /// The annotations that the agent has watched since its start.
    watched: Vec<AnnotationKeys>,
    own_pod: Option<PodUid>,
    refused: Option<RefusedFile>,
}

/// The last refused file.
struct RefusedFile {
    digest: Digest,
    /// The event that the agent has not reported yet.
    event: Option<DueEvent>,
    /// The next try; `None` if only another file or a restart can help.
    retry: Option<Retry>,
}

struct DueEvent {
    message: String,
    at: Moment,
}

/// The time after which an event reports a change that needs a restart. `helm upgrade` makes such a change and then replaces the agents one
/// after another, so an event at once would report an ordinary upgrade as a failure on each node. The log, metrics and `/readyz` report it
/// at once.
const RESTART_EXPECTED: Duration = Duration::from_mins(10);

/// The next try of a file that can succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Retry {
    at: Moment,
    /// The time from the last try until then. It doubles, because a try can send a call for each credential, from all nodes.
    after: Duration,
    /// The first time at which no fetch succeeded with the file.
    fetches_fail_since: Option<Moment>,
}

impl Retry {
    const FIRST: Duration = Duration::from_mins(1);
    const LONGEST: Duration = Duration::from_mins(16);

    /// The time for which a single namespace can delay a file. The first try after that is 31 minutes after the first one.
    const LATE: Duration = Duration::from_mins(30);

    /// Returns the retry of a file that the agent has just refused. `last` is the retry after an earlier refusal of the same file.
    fn after_refusal(
        last: Option<Self>,
        refusal: &ReloadError,
        cause: ReadCause,
        now: Moment,
    ) -> Option<Self> {
        let fails_now = match refusal {
            ReloadError::Mistaken(_) | ReloadError::NeedsRestart(_) => return None,
            ReloadError::Failed(_) => None,
            ReloadError::FetchesFailed(_) => Some(now),
        };
        let fetches_fail_since = last.and_then(|last| last.fetches_fail_since).or(fails_now);
        let (at, after) = match last {
            None => (now + Self::FIRST, Self::FIRST),
            Some(last) if cause == ReadCause::Retry => {
                let after = (2 * last.after).min(Self::LONGEST);
                (now + after, after)
            }
            Some(last) => (last.at, last.after),
        };
        Some(Self { at, after, fetches_fail_since })
    }

    /// True if a single namespace can delay the file no longer.
    fn is_late(self, now: Moment) -> bool {
        self.fetches_fail_since.is_some_and(|since| now.since(since) >= Self::LATE)
    }
}

/// The reason for a read of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadCause {
    /// The file has changed.
    Change,
    /// A signal asks for it.
    Signal,
    /// A retry is due.
    Retry,
}

/// The reason why the agent refuses a file.
enum ReloadError {
    Mistaken(ConfigFileError),
    NeedsRestart(Vec<String>),
    Failed(anyhow::Error),
    FetchesFailed(Vec<FailedCloud>),
}

impl From<anyhow::Error> for ReloadError {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl ReloadError {
    fn outcome(&self) -> ReloadOutcome {
        match self {
            Self::Mistaken(_) => ReloadOutcome::Invalid,
            Self::NeedsRestart(_) => ReloadOutcome::NeedsRestart,
            Self::Failed(_) => ReloadOutcome::ApplyFailed,
            Self::FetchesFailed(_) => ReloadOutcome::FetchesFailed,
        }
    }

    /// Returns the full reason, as `check` prints it.
    fn in_full(&self) -> String {
        match self {
            Self::Mistaken(error) => error.to_string(),
            Self::FetchesFailed(clouds) => retried(clouds, FailedCloud::in_full),
            Self::NeedsRestart(_) | Self::Failed(_) => self.in_short(),
        }
    }

    /// Returns the reason without the file's content, for readers who are not allowed to read the file.
    fn in_short(&self) -> String {
        match self {
            Self::Mistaken(error) => error.redacted(),
            Self::NeedsRestart(keys) => {
                format!(
                    "{}: only a restart applies this change, so the agent refuses the whole file; restart the agent",
                    keys.join(", ")
                )
            }
            Self::Failed(error) => format!("{error:#}"),
            Self::FetchesFailed(clouds) => retried(clouds, FailedCloud::in_short),
        }
    }
}

fn retried(clouds: &[FailedCloud], told: impl Fn(&FailedCloud) -> String) -> String {
    let told: Vec<_> = clouds.iter().map(told).collect();
    format!(
        "{}; pods keep their credentials, and the agent tries the file again after {} to {} min",
        told.join("; "),
        Retry::FIRST.as_secs() / 60,
        Retry::LONGEST.as_secs() / 60
    )
}

impl Reloader {
    /// Returns a reloader. At first, the configuration from the start of the agent is in force.
    pub(crate) fn new(loaded: LoadedConfig, reach: ReloadTargets) -> Self {
        let LoadedConfig { path, digest, config } = loaded;
        let (watched, own_pod) =
            (config.clouds.annotation_keys(), DownwardApi::from_env().own_pod().cloned());
        Self { reach, path, digest, in_force: config, watched, own_pod, refused: None }
    }

    /// Runs until shutdown begins.
    pub(crate) async fn run(mut self, asked: Arc<Notify>, mut stop: StopSignal) {
        let (clock, mut looks) = (self.reach.clock.clone(), FileWatcher::default());
        loop {
            tokio::select! {
                () = stop.wait() => return,
                () = clock.sleep(file_watch::POLL_INTERVAL) => {
                    let path = self.path.clone();
                    // If the disk does not respond, the check has no result.
                    if let Ok(seen) = disk_thread::run_with_timeout(move || FileStamp::at(&path)).await && looks.should_read(seen) && !self.read(ReadCause::Change).await {
                        looks.reset();
                    }
                }
                () = wait_for_retry(&clock, self.retry()) => {
                    // If this read brings no result, the same retry must not be due again at once.
                    if let Some(due) = self.refused.as_mut().and_then(|refused| refused.retry.as_mut()) {
                        due.at = clock.now() + due.after;
                    }
                    if !self.read(ReadCause::Retry).await {
                        looks.reset();
                    }
                }
                () = asked.notified() => {
                    // SIGHUP requests an immediate read. A file with a mistake may be only half written, so read such a file
                    // again later.
                    if !self.read(ReadCause::Signal).await {
                        looks.reset();
                    }
                }
            }
            self.report_refusal();
        }
    }

    /// Reads the file, and applies or refuses it. Returns false if the agent must read the file again.
    /// Another read is necessary if the read timed out, or if the file has a mistake and the cause is not a change. The function
    /// does not report such a mistake yet. It reports every other result.
    async fn read(&mut self, cause: ReadCause) -> bool {
        let path = self.path.clone();
        let loaded = match disk_thread::run_with_timeout(move || load(path)).await {
            Ok(loaded) => loaded,
            Err(slow) => {
                tracing::warn!(
                    reason = slow,
                    "cannot check the configuration file; the agent keeps the current configuration"
                );
                return false;
            }
        };
        match loaded {
            // The file has changed meanwhile, and may be only half written.
            Ok(next) if cause == ReadCause::Retry && !self.is_refused(next.digest) => return false,
            Ok(next) if next.digest == self.digest => self.is_back(cause),
            Ok(next) => {
                if let Err((digest, refusal)) = self.take(next, cause).await {
                    self.refuse(digest, &refusal, cause);
                }
            }
            Err(_) if cause != ReadCause::Change => return false,
            Err((digest, error)) => self.refuse(digest, &ReloadError::Mistaken(error), cause),
        }
        true
    }

    fn is_back(&mut self, cause: ReadCause) {
        if self.refused.take().is_some() || cause == ReadCause::Signal {
            tracing::info!(config = ?self.digest, "the agent runs with the current content of the configuration file");
        }
        self.reach.status.clear_refusal();
    }

    /// Applies a configuration or refuses it.
    async fn take(&mut self, next: LoadedConfig, cause: ReadCause) -> Result<(), (Digest, ReloadError)> {
        let LoadedConfig { digest, config, .. } = next;
        if cause == ReadCause::Change && self.is_refused(digest) {
            return Ok(());
        }
        let needing = self.in_force.keys_needing_restart(&config, &self.watched);
        if !needing.is_empty() {
            return Err((digest, ReloadError::NeedsRestart(needing)));
        }
        let changed = self.in_force.changed_keys(&config);
        let now = self.reach.clock.now();
        let is_late = cause == ReadCause::Retry && self.retry().is_some_and(|retry| retry.is_late(now));
        self.apply(&config, is_late).await.map_err(|error| (digest, error))?;
        (self.in_force, self.digest, self.refused) = (config, digest, None);
        self.reach.status.record_applied(digest, self.reach.clock.wall_time());
        tracing::info!(config = ?digest, ?changed, "a new configuration is in force");
        Ok(())
    }

    fn retry(&self) -> Option<Retry> {
        self.refused.as_ref()?.retry
    }

    fn is_refused(&self, digest: Digest) -> bool {
        self.refused.as_ref().is_some_and(|refused| refused.digest == digest)
    }

    fn refuse(&mut self, digest: Digest, refusal: &ReloadError, cause: ReadCause) {
        if self.is_refused(digest) && cause == ReadCause::Change {
            return;
        }
        let (reason, at) = (refusal.in_short(), self.reach.clock.wall_time());
        let outcome = refusal.outcome();
        tracing::error!(
            config = ?digest, in_force = ?self.digest, reason = refusal.in_full(),
            "the agent refuses the changed configuration; the old configuration stays in force"
        );
        let now = self.reach.clock.now();
        match &mut self.refused {
            Some(refused) if refused.digest == digest => {
                refused.retry = Retry::after_refusal(refused.retry, refusal, cause, now);
            }
            refused => {
                let message = format!(
                    "The agent refused the changed configuration at {}; the old configuration stays in force. {reason}",
                    format_time(at)
                );
                let delay = match refusal {
                    ReloadError::NeedsRestart(_) => RESTART_EXPECTED,
                    _ => Duration::ZERO,
                };
                let event = Some(DueEvent { message, at: now + delay });
                let retry = Retry::after_refusal(None, refusal, cause, now);
                *refused = Some(RefusedFile { digest, event, retry });
            }
        }
        self.reach.status.record_refused(outcome, RefusedConfig { digest, refused_at: at, reason });
    }

    /// Reports the refusal as a Kubernetes event on the agent's pod or on the agent's node.
    /// If the event queue is full, the next check of the file tries to report the refusal again.
    fn report_refusal(&mut self) {
        let event = self.refused.as_ref().and_then(|refused| refused.event.as_ref());
        let due = event.filter(|event| self.reach.clock.now() >= event.at);
        let (Some(cluster), Some(DueEvent { message, .. })) = (&self.reach.cluster_client, due) else {
            return;
        };
        let snapshot = cluster.pods().snapshot();
        let own = self.own_pod.as_ref().and_then(|uid| snapshot.pod_by_uid(&uid.0));
        let is_told = cluster.event_reporter().report_on_agent(
            own.map(|own| &**own),
            EventReason::ConfigReloadFailed,
            message,
        );
        if let Some(refused) = self.refused.as_mut().filter(|_| is_told) {
            refused.event = None;
        }
    }
}

/// Loads the file. On failure, returns the mistakes and a digest that identifies the refused content.
fn load(path: PathBuf) -> Result<LoadedConfig, (Digest, ConfigFileError)> {
    let text = config::read_text(&path).map_err(|error| (Digest::of_text(&error.to_string()), error))?;
    let digest = Digest::of_text(&text);
    let config = AgentConfig::from_text(&text, &path, &DownwardApi::from_env());
    config.map(|config| LoadedConfig { path, digest, config }).map_err(|error| (digest, error))
}

/// The steps of a reload.
impl Reloader {
    /// Applies a configuration. If `is_late` is true, fetches that failed for a single namespace do not keep the agent from it.
    async fn apply(&self, next: &AgentConfig, is_late: bool) -> Result<(), ReloadError> {
        let ReloadTargets { clouds, clock, runtime, log_level: loudness, .. } = &self.reach;
        let changed = self.in_force.clouds.changed_clouds(&next.clouds);
        if changed.is_empty() {
            if self.in_force.limits != next.limits {
                self.speak(next, &clouds.current()).await?;
            }
        } else {
            // `with_config` reads the files that the sections name, so it runs on a disk thread.
            let (before, sections, those) = (clouds.current(), next.clouds.clone(), changed.clone());
            let (clock, runtime) = (clock.clone(), runtime.clone());
            let others = disk_thread::run_with_timeout(move || {
                before.with_config(&sections, &those, &clock, &runtime)
            });
            let others = others.await.map_err(anyhow::Error::msg)??;
            self.change(next, Arc::new(others), changed, is_late).await?;
        }
        loudness.set(next.log_level);
        Ok(())
    }

    async fn change(
        &self,
        next: &AgentConfig,
        clouds: Arc<Clouds>,
        changed: Vec<CloudName>,
        is_late: bool,
    ) -> Result<(), ReloadError> {
        self.prefetch(&clouds, is_late).await?;
        let ((closed, is_closed), (spoken, is_spoken)) = (oneshot::channel(), oneshot::channel());
        let (made, is_made) = oneshot::channel();
        let change = entitlement_swap::EntitlementSwap {
            clouds: clouds.clone(),
            changed_clouds: changed,
            entitlements_cleared_sender: closed,
            dialects_replaced_receiver: is_spoken,
            completion_sender: made,
        };
        self.reach.swap_command_sender.send(SwapCommand::Swap(change)).await.context(STOPPED)?;
        is_closed.await.context(STOPPED)?;
        let is_spoken = self.speak(next, &clouds).await;
        if is_spoken.is_ok() {
            self.reach.clouds.replace(clouds);
            spoken.send(()).map_err(|()| anyhow::anyhow!(STOPPED))?;
        } else {
            // The dropped sender tells the entitlement store that the pods keep their old entitlements.
            drop(spoken);
        }
        is_made.await.context(STOPPED)?;
        Ok(is_spoken?)
    }

    async fn prefetch(&self, clouds: &Arc<Clouds>, is_late: bool) -> Result<(), ReloadError> {
        let (tasks, listed) = oneshot::channel();
        let swaps = &self.reach.swap_command_sender;
        swaps.send(SwapCommand::Prepare(clouds.clone(), tasks)).await.context(STOPPED)?;
        let PreSwapFetchTasks(tasks) = listed.await.context(STOPPED)?;
        let Err(failed) = prefetch::run(tasks, &self.reach.clock).await else { return Ok(()) };
        if !is_late || failed.iter().any(|cloud| !cloud.is_of_one_namespace()) {
            swaps.send(SwapCommand::Discard).await.context(STOPPED)?;
            return Err(ReloadError::FetchesFailed(failed));
        }
        for cloud in failed {
            tracing::warn!(
                failure = cloud.in_full(),
                "the agent applies the configuration although no fetch succeeded, because one namespace alone must not prevent it"
            );
        }
        Ok(())
    }

    /// Switches each thread to a configuration. If a thread does not switch in time, all threads return to the configuration in
    /// force. During the switch, pods receive no response for the changed clouds.
    async fn speak(&self, next: &AgentConfig, clouds: &Arc<Clouds>) -> anyhow::Result<()> {
        let ReloadTargets {
            thread_update_senders: threads, dialect_builder_factory: speaking, clock, ..
        } = &self.reach;
        if told_all(threads, || speaking(next, clouds), clock).await {
            return Ok(());
        }
        told_all(threads, || speaking(&self.in_force, &self.reach.clouds.current()), clock).await;
        anyhow::bail!(
            "a traffic thread did not apply the configuration within {} s, so all threads keep the old configuration",
            SPEAKING.as_secs()
        )
    }
}

/// Never returns without a retry.
async fn wait_for_retry(clock: &Clock, retry: Option<Retry>) {
    match retry {
        Some(retry) => clock.sleep_until(retry.at).await,
        None => std::future::pending().await,
    }
}

/// The error text if the thread that stores the pods' entitlements has ended.
const STOPPED: &str = "the agent is shutting down";

/// Sends an update to each thread, and waits at most [`SPEAKING`] until all threads have applied the update. Returns false after
/// a timeout. Ignores a thread that has ended, because such a thread serves no client. A slow thread later applies all its
/// updates in order.
async fn told_all(
    threads: &[mpsc::UnboundedSender<ThreadUpdate<PodEntry>>],
    speaks: impl Fn() -> (BuildDialectsFn<PodEntry>, ClientLimits),
    clock: &Clock,
) -> bool {
    let order = |thread: &mpsc::UnboundedSender<ThreadUpdate<PodEntry>>| {
        let (made, is_made) = oneshot::channel();
        let (speak, allowance) = speaks();
        thread
            .send(ThreadUpdate { build_dialects: speak, client_limits: allowance, applied_sender: made })
            .ok()
            .map(|()| is_made)
    };
    tokio::select! {
        _ = join_all(threads.iter().filter_map(order)) => true,
        () = clock.sleep(SPEAKING) => false,
    }
}

#[cfg(test)]
mod tests;
