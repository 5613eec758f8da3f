//! From the configured strategy to the [`Callers`] that connections ask, and what keeps them current.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use seawall_attest::{Attested, StaticIdentity};
use seawall_broker::google::{self, Broker, HolderSpec};
use seawall_cluster::{Access, Cluster, Hearing};
use seawall_core::Clock;
use tokio::runtime::Runtime;

use crate::callers::{Callers, Federated, Roster, Standing};
use crate::complain::Complainer;
use crate::config::{Config, Identity, SourceIp};
use crate::federation::Federation;
use crate::follow::{Follower, Terms};
use crate::lifecycle::{self, Stop, Stopper};
use crate::ready::ProbeAddress;

/// A strategy whose files are read and nothing of which runs.
#[derive(Debug)]
pub(crate) enum Strategy {
    File(StaticIdentity),
    Cluster(SourceIp),
    Anyone,
}

/// Credentials of pods' own, in `federate`.
pub(crate) type Credentials = Option<(Broker, Federation)>;

impl Strategy {
    /// # Errors
    /// Every mistake in the identity file.
    pub(crate) fn load(config: &Config) -> anyhow::Result<Self> {
        Ok(match &config.identity {
            Identity::Static { file } => Self::File(StaticIdentity::load(file)?),
            Identity::SourceIp(source) => Self::Cluster((**source).with_readable_files()?),
            Identity::Anyone => Self::Anyone,
        })
    }

    /// Whether the credentials for the API server can be read, for `check`. Asks nobody.
    ///
    /// # Errors
    /// What cannot be read.
    pub(crate) fn check(&self, control: &Runtime) -> anyhow::Result<()> {
        if let Self::Cluster(source) = self {
            control.block_on(Cluster::start(cluster(source), Clock::system()))?;
        }
        Ok(())
    }

    /// Its name in the configuration.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "static",
            Self::Cluster(_) => "source-ip",
            Self::Anyone => "anyone",
        }
    }

    /// Starts it, with a thread of its own where there is something to be heard; the rest on the control thread's runtime.
    ///
    /// # Errors
    /// The credentials for the API server cannot be read. That nobody answers there is none.
    pub(crate) fn start(
        self,
        credentials: Credentials,
        probe: ProbeAddress,
        clock: &Clock,
        control: &Runtime,
        stopper: &Stopper,
    ) -> anyhow::Result<(Who, Option<ClusterThread>)> {
        match self {
            Self::Anyone => Ok((Who::fixed(Callers::anyone(probe)), None)),
            Self::File(identity) => {
                let standing = |attested: &Attested| standing(attested, credentials.as_ref());
                Ok((Who::fixed(Callers::of_file(&identity, probe, standing)), None))
            }
            Self::Cluster(source) => {
                let (who, hearing, follower) = Who::of_cluster(&source, credentials, probe, clock, control)?;
                Ok((who, Some(ClusterThread::start(hearing, follower, stopper)?)))
            }
        }
    }
}

fn standing(attested: &Attested, credentials: Option<&(Broker, Federation)>) -> Standing {
    let Some((broker, federation)) = credentials else { return Standing::Passthrough };
    let account = attested.google_account.clone();
    let spec = HolderSpec {
        pod: attested.pod.clone(),
        entitlement: account.clone(),
        subject: attested.subject.clone(),
    };
    let (tree, holder) = (federation.tree(account.as_ref()), broker.holder(spec));
    Standing::Federated(Federated { tree, holder, account, complainer: Complainer::default() })
}

fn cluster(source: &SourceIp) -> seawall_cluster::Config {
    let access = source.kubeconfig.clone().map_or(Access::InCluster, Access::Kubeconfig);
    let defaults = seawall_cluster::Config::for_node(source.node.clone());
    seawall_cluster::Config {
        access,
        taint: source.taint.clone(),
        token_lifetime: source.token_lifetime,
        ..defaults
    }
}

/// The thread that hears the API server and follows it. No connection can be decided without it, so it does nothing else, and
/// the agent ends with it.
#[derive(Debug)]
pub(crate) struct ClusterThread {
    end: Stopper,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl ClusterThread {
    fn start(hearing: Hearing, follower: Follower, stopper: &Stopper) -> anyhow::Result<Self> {
        Self::spawn(stopper, move |mut end| {
            hearing.run(follower.run(), end.begun()).context("nobody hears the API server any more")
        })
    }

    fn spawn(
        stopper: &Stopper,
        body: impl FnOnce(Stop) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        // Not among the threads whose end the drain waits for: what is answered in the drain is decided by it, too.
        let (alive, _) = lifecycle::threads(1, stopper);
        let (end, ended) = lifecycle::switch();
        let body = move || {
            let _alive = alive;
            body(ended)
        };
        let thread = std::thread::Builder::new()
            .name("cluster".into())
            .spawn(body)
            .context("cannot start the cluster thread")?;
        Ok(Self { end, thread })
    }

    /// Ends it, once nobody is to be answered any more, and waits for that.
    ///
    /// # Errors
    /// It had ended by itself.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        self.end.stop();
        self.thread.join().map_err(|_| anyhow::anyhow!("the cluster thread ended in a panic"))?
    }
}

/// Everything about who is calling.
#[derive(Debug)]
pub(crate) struct Who {
    pub(crate) callers: Arc<Callers>,
    /// What tells of the pods, in `source-ip`.
    pub(crate) cluster: Option<Arc<Cluster>>,
    token_lifetime: Option<Duration>,
}

impl Who {
    fn fixed(callers: Callers) -> Self {
        Self { callers: Arc::new(callers), cluster: None, token_lifetime: None }
    }

    fn of_cluster(
        source: &SourceIp,
        credentials: Credentials,
        probe: ProbeAddress,
        clock: &Clock,
        control: &Runtime,
    ) -> anyhow::Result<(Self, Hearing, Follower)> {
        let (cluster, hearing) = control.block_on(Cluster::start(cluster(source), clock.clone()))?;
        let cluster = Arc::new(cluster);
        let roster = Arc::<Roster>::default();
        let token_lifetime = credentials.is_some().then_some(source.token_lifetime);
        let passthrough: HashSet<_> = source.passthrough.iter().cloned().collect();
        let terms = match credentials {
            Some((broker, federation)) => {
                Terms::Federate { broker, federation: Box::new(federation), passthrough }
            }
            None => Terms::Conceal,
        };
        let (follower, fetching_ahead) = Follower::new(cluster.clone(), roster.clone(), terms);
        control.spawn(fetching_ahead);
        let callers = Arc::new(Callers::of_cluster(cluster.pods(), roster, probe));
        let who = Self { callers, cluster: Some(cluster), token_lifetime };
        who.floor_remark().inspect(|remark| tracing::warn!("{remark}"));
        Ok((who, hearing, follower))
    }

    /// Why no pod is known, where pods are to be known from a cluster.
    pub(crate) fn obstacle(&self) -> Option<String> {
        let cluster = self.cluster.as_ref()?;
        (!cluster.pods().snapshot().is_complete()).then(|| {
            let trouble = troubles(cluster).join("; ");
            format!("the API server has not told of this node's pods yet: {trouble}")
        })
    }

    /// What an operator should see though the agent serves.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> = self.floor_remark().into_iter().collect();
        if let Some(cluster) = &self.cluster {
            remarks.extend(troubles(cluster));
        }
        remarks
    }

    /// Whether the configuration lets credentials be kept above the floor, where it says something about it.
    pub(crate) fn meets_the_floor(&self) -> bool {
        self.token_lifetime.is_none_or(is_long_enough)
    }

    fn floor_remark(&self) -> Option<String> {
        let lifetime = self.token_lifetime.filter(|lifetime| !is_long_enough(*lifetime))?;
        Some(format!(
            "identity.tokenLifetime of {} s leaves a Kubernetes token too little life before its renewal to keep \
             credentials that end with it above the floor of {} s",
            lifetime.as_secs(),
            google::FLOOR.hard.as_secs()
        ))
    }
}

/// A Kubernetes token is renewed when a fifth of its life is left (`cluster`'s rule, the kubelet's), and a cloud may end a
/// credential with the token that it was exchanged for.
fn is_long_enough(token: Duration) -> bool {
    google::FLOOR.is_reachable_with(token / 5)
}

/// What is wrong with the watches right now.
fn troubles(cluster: &Cluster) -> Vec<String> {
    let trouble = |watch: seawall_cluster::WatchHealth| {
        let trouble = watch.trouble?;
        let age =
            watch.age.map_or("never heard".to_owned(), |age| format!("last heard {} s ago", age.as_secs()));
        Some(format!("the watch of {} is interrupted ({age}): {trouble}", watch.kind))
    };
    cluster.health().into_iter().filter_map(trouble).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_agent_ends_with_its_cluster_thread_however_that_ends() {
        let panics = |_| std::panic::resume_unwind(Box::new("died"));
        let fails = |_| Err(anyhow::anyhow!("a watch has ended"));
        let (stopper, mut stop) = lifecycle::switch();
        let thread = ClusterThread::spawn(&stopper, panics).unwrap();
        stop.begun().await;
        assert!(thread.end().unwrap_err().to_string().contains("panic"));
        let (stopper, mut stop) = lifecycle::switch();
        let thread = ClusterThread::spawn(&stopper, fails).unwrap();
        stop.begun().await;
        assert_eq!(thread.end().unwrap_err().to_string(), "a watch has ended");
    }

    #[tokio::test]
    async fn the_cluster_thread_outlives_the_stop_and_ends_when_told() {
        let (stopper, stop) = lifecycle::switch();
        let until_ended = |mut end: Stop| {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(end.begun());
            Ok(())
        };
        let thread = ClusterThread::spawn(&stopper, until_ended).unwrap();
        stopper.stop();
        assert!(
            stop.has_begun() && !thread.thread.is_finished(),
            "who is answered in the drain is decided by it"
        );
        thread.end().unwrap();
    }

    #[test]
    fn an_hour_of_a_kubernetes_token_meets_the_floor_and_less_does_not() {
        assert!(is_long_enough(Duration::from_secs(3600)));
        assert!(!is_long_enough(Duration::from_secs(3000)));
        assert!(!is_long_enough(Duration::from_secs(600)));
    }
}
