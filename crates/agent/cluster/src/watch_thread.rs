//! The watch thread: it runs the watches, the snapshot writer and the prover, and nothing else.
//!
//! Without this thread the agent cannot decide a connection ([`crate::view_freshness`]). So no slow work may run on it, nor work
//! that others can make slow: no token requests, no events, no pages for operators.
//!
//! **The proof needs one runtime for watch and prover.** The prover proves that this runtime has read everything that had
//! arrived. It would prove nothing about a watch whose connection another runtime drives. hyper drives a connection on the
//! runtime that opened it, and a client gives an idle connection to the next request from any thread. So a client that two threads
//! share would, sooner or later, carry the watch over a connection of the other thread. The types rule this out.
//! [`WatchThread`] holds no client, only a function that makes one. [`WatchThread::run`] makes the runtime and, inside it, the
//! client, and keeps both to itself. [`crate::ClusterClient`], which sends requests on the control thread, has no watch, writer or
//! prover to which it could give its own client.

use std::sync::Arc;

use seawall_core::Clock;
use seawall_kube::request::ObjectRepresentation;
use seawall_kube::{Connector, KubeClient, KubeTimeouts, TimedKubeClient};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::config::{ClusterConfig, NodeName};
use crate::latest_snapshot::ClusterView;
use crate::object::ParsedAnnotationKeys;
use crate::related_objects::{RelatedKind, SelectedKeys};
use crate::snapshot_writer::{SnapshotWriter, ViewUpdate};
use crate::watch::{ListWatch, WatchOrigin, WatchedCollection};
use crate::watch_health::WatchState;
use crate::{KubeAccessError, object, view_freshness};

/// The watches, writer and prover before their start. None of them runs before [`WatchThread::run`].
pub struct WatchThread {
    /// Makes the client, on the runtime that calls it.
    connect: Box<dyn FnOnce() -> Result<KubeClient, KubeAccessError> + Send>,
    node: NodeName,
    selected: SelectedKeys,
    patience: KubeTimeouts,
    shared: Arc<ClusterView>,
    clock: Clock,
}

impl std::fmt::Debug for WatchThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchThread").field("node", &self.node).finish_non_exhaustive()
    }
}

/// The reason why the watch thread ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchThreadError {
    /// The kernel provides no poller for the runtime.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// The credentials cannot be used any more, although they were valid a moment ago.
    #[error(transparent)]
    Access(#[from] KubeAccessError),
    /// A part panicked; the panic was logged where it happened.
    #[error("a watch, the snapshot writer or the prover ended unexpectedly")]
    Ended,
}

impl WatchThread {
    pub(crate) fn new(
        connector: Connector,
        config: &ClusterConfig,
        shared: &Arc<ClusterView>,
        clock: &Clock,
    ) -> Self {
        let (patience, clock_of_client) = (config.timeouts, clock.clone());
        let connect = Box::new(move || connector.client(&patience, clock_of_client));
        Self {
            connect,
            node: config.node.clone(),
            selected: SelectedKeys::of(&config.selections),
            patience,
            shared: shared.clone(),
            clock: clock.clone(),
        }
    }

    /// Runs the watches on the calling thread, and nowhere else, until `end`. `beside` runs on the same thread: work that must be in
    /// step with the view, is quick and sends no requests.
    ///
    /// # Errors
    /// The thread cannot start, or a part of it has ended. The last view stays readable but is no longer proven current.
    pub fn run(
        self,
        beside: impl Future<Output = ()>,
        end: impl Future<Output = ()>,
    ) -> Result<(), WatchThreadError> {
        // The API server's name is looked up on a blocking thread; each costs a stack.
        let runtime =
            Builder::new_current_thread().enable_io().enable_time().max_blocking_threads(1).build()?;
        let ended = runtime.block_on(async {
            let mut parts = self.parts()?;
            tokio::select! {
                () = end => Ok(()),
                () = beside => Err(WatchThreadError::Ended),
                _ = parts.join_next() => Err(WatchThreadError::Ended),
            }
        });
        // Dropping it would wait for a look-up, which takes half a minute where no name server answers.
        runtime.shutdown_background();
        ended
    }

    /// Starts all parts on the runtime of this call.
    fn parts(self) -> Result<JoinSet<()>, KubeAccessError> {
        let Self { connect, node, selected, patience, shared, clock } = self;
        let link = TimedKubeClient { client: connect()?, clock: clock.clone(), timeouts: patience };
        let (writer, updates) = SnapshotWriter::new(link.clone(), selected.clone(), shared.clone());
        let mut parts = JoinSet::new();
        parts.spawn(writer.run());
        parts.spawn(view_freshness::run_freshness_checks(shared.pod_watch.freshness.clone(), clock));
        parts.spawn(watch_pods(&node, selected.pod.clone(), &link, &shared, updates.clone()).run());
        for (kind, pulse) in shared.related_watches() {
            let keys = selected.keys(kind);
            parts.spawn(watch_related(kind, keys, &link, pulse.clone(), updates.clone()).run());
        }
        Ok(parts)
    }
}

/// Makes the pods' watch. The server filters out pods that have ended, because a node may keep hundreds of finished jobs.
pub(crate) fn watch_pods(
    node: &NodeName,
    annotations: ParsedAnnotationKeys,
    link: &TimedKubeClient,
    shared: &ClusterView,
    updates: mpsc::Sender<ViewUpdate>,
) -> ListWatch<object::PodObject, ViewUpdate> {
    let source = WatchedCollection {
        path: "/api/v1/pods",
        fields: Some(format!("spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed", node.as_str())),
        form: ObjectRepresentation::Whole,
        annotations,
        start: WatchOrigin::List,
    };
    ListWatch::new(source, link.clone(), shared.pod_watch.clone(), updates, ViewUpdate::Pods)
}

fn watch_related(
    kind: RelatedKind,
    annotations: ParsedAnnotationKeys,
    link: &TimedKubeClient,
    pulse: Arc<WatchState>,
    updates: mpsc::Sender<ViewUpdate>,
) -> ListWatch<object::PartialObject, ViewUpdate> {
    let path = kind.path();
    let source = WatchedCollection {
        path,
        fields: None,
        form: ObjectRepresentation::Metadata,
        annotations,
        start: WatchOrigin::Position,
    };
    let wrap = match kind {
        RelatedKind::ServiceAccount => |change| ViewUpdate::Related(RelatedKind::ServiceAccount, change),
        RelatedKind::Namespace => |change| ViewUpdate::Related(RelatedKind::Namespace, change),
    };
    ListWatch::new(source, link.clone(), pulse, updates, wrap)
}

#[cfg(test)]
mod tests {
    use std::thread::JoinHandle;

    use seawall_core::annotations::AnnotationKeys;
    use serde_json::json;
    use tokio::sync::mpsc::UnboundedReceiver;
    use tokio::sync::oneshot;

    use super::*;
    use crate::NodePods;
    use crate::fake::{FakeCall, fake};

    /// The agent's watch thread, and the API server's side of it. Nothing else runs.
    struct World {
        pods: NodePods,
        asked: UnboundedReceiver<FakeCall>,
        end: Option<oneshot::Sender<()>>,
        thread: JoinHandle<Result<(), WatchThreadError>>,
    }

    fn hearing(beside: impl Future<Output = ()> + Send + 'static) -> World {
        selecting(SelectedKeys::default(), beside)
    }

    fn selecting(selected: SelectedKeys, beside: impl Future<Output = ()> + Send + 'static) -> World {
        let clock = Clock::system();
        let shared = Arc::new(ClusterView::new(&selected));
        let (connect, asked) = fake(clock.clone());
        let hearing = WatchThread {
            connect: Box::new(move || Ok(connect())),
            node: NodeName::parse("node1").unwrap(),
            selected,
            patience: KubeTimeouts::default(),
            shared: shared.clone(),
            clock: clock.clone(),
        };
        let (end, ended) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || hearing.run(beside, async move { drop(ended.await) }));
        World { pods: NodePods { shared, clock }, asked, end: Some(end), thread }
    }

    impl World {
        /// Answers the lists, and the watches with streams that stay open.
        fn open(&mut self) -> Vec<crate::fake::FakeWatchStream> {
            let mut feeds = Vec::new();
            while feeds.len() < self.pods.shared.health(self.pods.clock.now()).len() {
                let asked = self.asked.blocking_recv().unwrap();
                if asked.what.contains("watch=true") {
                    feeds.push(asked.answer_stream());
                } else {
                    asked.answer(200, &json!({"metadata": {"resourceVersion": "7"}, "items": []}));
                }
            }
            feeds
        }

        fn end(mut self) -> std::thread::Result<Result<(), WatchThreadError>> {
            drop(self.end.take());
            self.thread.join()
        }
    }

    /// Watches, writer and prover used to be tasks of the control thread, which also speaks TLS to clouds and writes pages for
    /// operators, so slow work there delayed every new connection.
    #[test]
    fn a_view_is_proven_by_the_thread_that_hears_alone() {
        let mut world = hearing(std::future::pending());
        let _feeds = world.open();
        // This runtime waits and drives nothing; the thread that would ask is this one, and it is busy.
        let waiting = Builder::new_current_thread().build().unwrap();
        waiting.block_on(world.pods.wait_until_current());
        assert!(world.pods.snapshot().is_complete());
        assert!(matches!(world.end(), Ok(Ok(()))));
    }

    #[test]
    fn it_ends_when_told_and_takes_everything_along() {
        let mut world = hearing(std::future::pending());
        let _feeds = world.open();
        drop(world.end.take());
        // The channel closes once the last client is gone.
        while world.asked.blocking_recv().is_some() {}
        assert!(matches!(world.end(), Ok(Ok(()))));
    }

    #[test]
    fn a_part_that_ends_ends_the_thread() {
        assert!(matches!(hearing(async {}).thread.join(), Ok(Err(WatchThreadError::Ended))));
        let panicking = hearing(async { std::panic::resume_unwind(Box::new("died")) });
        assert!(panicking.thread.join().is_err());
    }

    /// An unneeded watch of namespaces would be refused for lack of a permission that nothing else needs.
    #[test]
    fn namespaces_are_asked_about_only_if_somebody_selects_a_key_on_them() {
        let some = AnnotationKeys { namespace: &["cloud/of-namespace"], ..AnnotationKeys::default() };
        for (selections, kinds) in [
            (vec![AnnotationKeys::default()], vec!["pods", "serviceaccounts"]),
            (vec![AnnotationKeys::default(), some], vec!["pods", "serviceaccounts", "namespaces"]),
        ] {
            let mut world = selecting(SelectedKeys::of(&selections), std::future::pending());
            let health = world.pods.shared.health(world.pods.clock.now());
            assert!(health.iter().map(|watch| watch.kind).eq(kinds.iter().copied()));
            let mut asked = Vec::new();
            for _ in 0..kinds.len() {
                asked.push(world.asked.blocking_recv().unwrap());
            }
            for kind in kinds {
                let path = format!("GET /api/v1/{kind}?");
                assert!(asked.iter().any(|asked| asked.what.starts_with(&path)), "{asked:?}");
            }
            // All watches wait for their first answer, and there is no other request.
            assert!(world.asked.try_recv().is_err());
            assert!(matches!(world.end(), Ok(Ok(()))));
        }
    }
}
