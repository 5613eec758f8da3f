//! Another configuration while the agent runs: no connection ends for it, no request fails, and a bad one changes nothing.
//!
//! Runs on the control thread and is the only one that changes what is in force. A file is looked at once a second ([`file_watch`]), and when
//! SIGHUP asks for it. What is read is in force as a whole or not at all: it is refused for a mistake, for a key that only another process
//! can take ([`Config::needing_restart`]), and for a file that it names and that cannot be used; then the one in force stays, and that is said in
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
use seawall_clouds::pod::PodCaller;
use seawall_clouds::{Clouds, CloudsInForce};
use seawall_cluster::Cluster;
use seawall_core::cloud::CloudName;
use seawall_core::events::Complaint;
use seawall_core::facts::Selection;
use seawall_core::shutdown::Stop;
use seawall_core::{Clock, PodUid};
use seawall_server::thread::{Allowance, Change, Speak};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::config;
use crate::config::{Config, ConfigError, Downward};
use crate::log::Loudness;
use digest::Digest;
use file_watch::{Looks, Seen};
use seawall_identity::entitlement_swap;
use seawall_identity::entitlement_swap::{CatchUps, Order};
pub(crate) use status::{Bulletin, BulletinCollector};
use status::{Outcome, Refused, stamp};

/// How long credentials are fetched ahead that pods hold and must have anew: a full node's at the pace of a broker's start. What has not come
/// by then is fetched for who asks for it, as at a first request.
const AHEAD: Duration = Duration::from_secs(10);

/// A configuration and the file that it was read of.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    pub(crate) digest: Digest,
    pub(crate) config: Config,
}

impl Loaded {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, or every mistake in it.
    pub(crate) fn of(path: &Path) -> Result<Self, ConfigError> {
        let text = config::text_of(path)?;
        let config = Config::of_text(&text, path, &Downward::here())?;
        Ok(Self { path: path.into(), digest: Digest::of(&text), config })
    }
}

/// How traffic threads speak by a configuration and its clouds: what makes the dialects of one thread, and what one caller may.
pub(crate) type Speaking = Box<dyn Fn(&Config, &Arc<Clouds>) -> (Speak<PodCaller>, Allowance) + Send + Sync>;

/// Everything that a change reaches.
pub(crate) struct Reach {
    pub(crate) clouds: Arc<CloudsInForce>,
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) threads: Vec<mpsc::UnboundedSender<Change<PodCaller>>>,
    pub(crate) speaking: Speaking,
    pub(crate) loudness: Loudness,
    pub(crate) bulletin: Arc<Bulletin>,
    /// Where the agent's owner hears of a file that was refused, besides the log.
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) clock: Clock,
    pub(crate) runtime: Handle,
}

/// Who changes what is in force.
pub(crate) struct Reloader {
    reach: Reach,
    path: PathBuf,
    digest: Digest,
    in_force: Config,
    /// The annotations that are heard of since the start.
    watched: Vec<Selection>,
    own_pod: Option<PodUid>,
    /// The content that was refused last, and what is still to be told of it as an event.
    refused: Option<(Digest, Option<String>)>,
}

/// Why a file is refused.
enum Refusal {
    Mistaken(ConfigError),
    NeedsRestart(Vec<String>),
    Failed(anyhow::Error),
}

impl Refusal {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Mistaken(_) => Outcome::Mistaken,
            Self::NeedsRestart(_) => Outcome::NeedsRestart,
            Self::Failed(_) => Outcome::Failed,
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
            Self::Mistaken(error) => error.in_short(),
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
    pub(crate) fn new(loaded: Loaded, reach: Reach) -> Self {
        let Loaded { path, digest, config } = loaded;
        let (watched, own_pod) = (config.clouds.selections(), Downward::here().own_pod().cloned());
        Self { reach, path, digest, in_force: config, watched, own_pod, refused: None }
    }

    /// Until the stop has begun.
    pub(crate) async fn run(mut self, asked: Arc<Notify>, mut stop: Stop) {
        let (clock, mut looks) = (self.reach.clock.clone(), Looks::default());
        loop {
            tokio::select! {
                () = stop.begun() => return,
                () = clock.sleep(file_watch::EVERY) => {
                    if looks.found(Seen::at(&self.path)) {
                        self.read(false).await;
                    }
                }
                () = asked.notified() => {
                    // Somebody says that it is whole. If it is not good, it may be so in a moment.
                    if !self.read(true).await {
                        looks.forget();
                    }
                }
            }
            self.tell_the_owner();
        }
    }

    /// Reads the file and makes of it what is right. Where somebody `is_asking`, a mistake is not said yet, and everything else is; whether it
    /// had none.
    async fn read(&mut self, is_asking: bool) -> bool {
        match self.load() {
            Ok(next) if next.digest == self.digest => self.is_back(is_asking),
            Ok(next) => {
                if let Err((digest, refusal)) = self.take(next, is_asking).await {
                    self.refuse(digest, &refusal, is_asking);
                }
            }
            Err(_) if is_asking => return false,
            Err((digest, error)) => self.refuse(digest, &Refusal::Mistaken(error), false),
        }
        true
    }

    /// The file as it is, or its mistakes and what tells it from others that have some.
    fn load(&self) -> Result<Loaded, (Digest, ConfigError)> {
        let text = config::text_of(&self.path).map_err(|error| (Digest::of(&error.to_string()), error))?;
        let digest = Digest::of(&text);
        let config = Config::of_text(&text, &self.path, &Downward::here());
        let path = self.path.clone();
        config.map(|config| Loaded { path, digest, config }).map_err(|error| (digest, error))
    }

    fn is_back(&mut self, is_asking: bool) {
        if self.refused.take().is_some() || is_asking {
            tracing::info!(config = ?self.digest, "the configuration's file is the one in force");
        }
        self.reach.bulletin.is_back();
    }

    /// Has it in force.
    async fn take(&mut self, next: Loaded, is_asking: bool) -> Result<(), (Digest, Refusal)> {
        let Loaded { digest, config, .. } = next;
        if !is_asking && self.is_refused(digest) {
            return Ok(());
        }
        let needing = self.in_force.needing_restart(&config, &self.watched);
        if !needing.is_empty() {
            return Err((digest, Refusal::NeedsRestart(needing)));
        }
        let changed = self.in_force.changed_keys(&config);
        self.apply(&config).await.map_err(|error| (digest, Refusal::Failed(error)))?;
        (self.in_force, self.digest, self.refused) = (config, digest, None);
        self.reach.bulletin.applied(digest, self.reach.clock.wall());
        tracing::info!(config = ?digest, ?changed, "another configuration is in force");
        Ok(())
    }

    fn is_refused(&self, digest: Digest) -> bool {
        self.refused.as_ref().is_some_and(|(known, _)| *known == digest)
    }

    fn refuse(&mut self, digest: Digest, refusal: &Refusal, is_asking: bool) {
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
                stamp(at)
            );
            self.refused = Some((digest, Some(told)));
        }
        self.reach.bulletin.refused(outcome, Refused { digest, at, reason });
    }

    /// As an event on the agent's own pod, or on its node; again at the next look where there was no room for it.
    fn tell_the_owner(&mut self) {
        let (Some(cluster), Some((_, Some(message)))) = (&self.reach.cluster, &self.refused) else { return };
        let snapshot = cluster.pods().snapshot();
        let own = self.own_pod.as_ref().and_then(|uid| snapshot.by_uid(&uid.0));
        let is_told =
            cluster.reporter().tell(own.map(|own| &**own), Complaint::ConfigurationRefused, message);
        if let Some((_, told)) = self.refused.as_mut().filter(|_| is_told) {
            *told = None;
        }
    }
}

/// The steps of a change.
impl Reloader {
    async fn apply(&self, next: &Config) -> anyhow::Result<()> {
        let Reach { clouds, clock, runtime, loudness, .. } = &self.reach;
        let changed = self.in_force.clouds.changed(&next.clouds);
        if changed.is_empty() {
            if self.in_force.limits != next.limits {
                self.speak(next, &clouds.now()).await;
            }
        } else {
            let others = clouds.now().succeeded_by(&next.clouds, &changed, clock, runtime)?;
            self.change(next, Arc::new(others), changed).await.context("the agent is being stopped")?;
        }
        loudness.set(next.log_level);
        Ok(())
    }

    /// Nothing where nobody keeps pods any more: the agent is being stopped.
    async fn change(&self, next: &Config, clouds: Arc<Clouds>, changed: Vec<CloudName>) -> Option<()> {
        self.fetch_ahead(&clouds).await?;
        let ((closed, is_closed), (spoken, is_spoken)) = (oneshot::channel(), oneshot::channel());
        let (made, is_made) = oneshot::channel();
        let change =
            entitlement_swap::Change { clouds: clouds.clone(), changed, closed, spoken: is_spoken, made };
        self.reach.orders.send(Order::Change(change)).await.ok()?;
        is_closed.await.ok()?;
        self.speak(next, &clouds).await;
        self.reach.clouds.replace(clouds);
        spoken.send(()).ok()?;
        is_made.await.ok()
    }

    async fn fetch_ahead(&self, clouds: &Arc<Clouds>) -> Option<()> {
        let (catch_ups, listed) = oneshot::channel();
        self.reach.orders.send(Order::Prepare(clouds.clone(), catch_ups)).await.ok()?;
        let CatchUps(catch_ups) = listed.await.ok()?;
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

    /// Has each thread speak by a configuration, and waits until all do. One that has ended answers nobody.
    async fn speak(&self, next: &Config, clouds: &Arc<Clouds>) {
        let order = |thread: &mpsc::UnboundedSender<Change<PodCaller>>| {
            let (made, is_made) = oneshot::channel();
            let (speak, allowance) = (self.reach.speaking)(next, clouds);
            thread.send(Change { speak, allowance, made }).ok().map(|()| is_made)
        };
        join_all(self.reach.threads.iter().filter_map(order)).await;
    }
}
