//! Runs the watch thread: the watches, the snapshot writer, the prover, and one task of the caller.
//!
//! Without this thread the agent cannot identify the pod of a new connection ([`crate::view_freshness`]). So the thread must
//! not do slow work, or work that pods, clouds or operators can slow down. It sends no token requests and no events, and it
//! serves no pages for operators.
//!
//! **The proof needs one runtime for watch and prover.** The prover proves that its runtime has read everything that had
//! arrived. If another runtime drives the watch's connection, the proof does not cover the watch. The library hyper drives a
//! connection on the runtime that opened the connection. A client reuses an idle connection for requests from any thread. So if
//! two threads shared a client, the watch could run over a connection that the other thread drives. The types prevent this.
//! [`WatchThread`] contains no client, only a function that creates a client. [`WatchThread::run`] creates the runtime and then
//! the client inside the runtime, and shares neither with another thread. [`crate::ClusterClient`] has a separate client on the
//! control thread, and no watch, writer or prover uses that client.

use std::sync::Arc;

use seawall_core::Clock;
use seawall_kube::request::ObjectRepresentation;
use seawall_kube::{KubeClient, KubeConnector, KubeTimeouts, TimedKubeClient};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cluster_view::ClusterView;
use crate::config::{ClusterConfig, NodeName};
use crate::object::KeptAnnotationKeys;
use crate::related_objects::{RelatedObjectKind, SelectedAnnotationKeys};
use crate::snapshot_writer::{SnapshotWriter, ViewUpdate};
use crate::watch::{ListWatch, WatchOrigin, WatchedCollection};
use crate::watch_health::WatchState;
use crate::{ClientConfigError, object, view_freshness};

/// Holds the watches, the writer and the prover until [`WatchThread::run`] starts them.
pub struct WatchThread {
    /// Creates the client on the runtime of the calling thread.
    connect: Box<dyn FnOnce() -> Result<KubeClient, ClientConfigError> + Send>,
    node: NodeName,
    selected: SelectedAnnotationKeys,
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
    /// The kernel provides no I/O poller for the runtime.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// The credentials became invalid after they were checked.
    #[error(transparent)]
    ClientConfig(#[from] ClientConfigError),
    /// A task ended or panicked. The log contains the panic.
    #[error("a task on the watch thread ended unexpectedly")]
    Ended,
}

impl WatchThread {
    pub(crate) fn new(
        connector: KubeConnector,
        config: &ClusterConfig,
        shared: &Arc<ClusterView>,
        clock: &Clock,
    ) -> Self {
        let (patience, clock_of_client) = (config.timeouts, clock.clone());
        let connect = Box::new(move || connector.new_client(&patience, clock_of_client));
        Self {
            connect,
            node: config.node.clone(),
            selected: SelectedAnnotationKeys::merge(&config.annotation_keys),
            patience,
            shared: shared.clone(),
            clock: clock.clone(),
        }
    }

    /// Runs the watches on the calling thread only, until `end` is ready. `beside` is a task of the caller that must see each
    /// new snapshot at once. The task runs on the same thread, so it must be quick and must send no requests.
    ///
    /// # Errors
    /// The client or the runtime cannot be created, or one of the tasks has ended. The last snapshot stays readable, but it no
    /// longer counts as current.
    pub fn run(
        self,
        beside: impl Future<Output = ()>,
        end: impl Future<Output = ()>,
    ) -> Result<(), WatchThreadError> {
        // hyper resolves the API server's name on a blocking thread. One such thread is enough, and each thread costs a stack.
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
        // Dropping the runtime would wait for a running name lookup. The lookup takes 30 s if no name server responds.
        runtime.shutdown_background();
        ended
    }

    /// Starts all tasks on the runtime of the calling thread.
    fn parts(self) -> Result<JoinSet<()>, ClientConfigError> {
        let Self { connect, node, selected, patience, shared, clock } = self;
        let link = TimedKubeClient { client: connect()?, clock: clock.clone(), timeouts: patience };
        let (writer, updates) = SnapshotWriter::new(link.clone(), selected.clone(), shared.clone());
        let mut parts = JoinSet::new();
        parts.spawn(writer.run());
        parts.spawn(view_freshness::run_freshness_prover(shared.pod_watch.freshness.clone(), clock));
        parts.spawn(new_pod_watch(&node, selected.pod.clone(), &link, &shared, updates.clone()).run());
        for (kind, pulse) in shared.related_watches() {
            let keys = selected.keys_of_kind(kind);
            parts.spawn(watch_related(kind, keys, &link, pulse.clone(), updates.clone()).run());
        }
        Ok(parts)
    }
}

/// Creates the watch of pods. Its selector excludes pods that have ended, because a node can have hundreds of pods of finished
/// Jobs.
pub(crate) fn new_pod_watch(
    node: &NodeName,
    annotations: KeptAnnotationKeys,
    link: &TimedKubeClient,
    shared: &ClusterView,
    updates: mpsc::Sender<ViewUpdate>,
) -> ListWatch<object::PodObject, ViewUpdate> {
    let source = WatchedCollection {
        path: "/api/v1/pods",
        field_selector: Some(format!(
            "spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed",
            node.as_str()
        )),
        representation: ObjectRepresentation::Whole,
        annotation_keys: annotations,
        watch_start: WatchOrigin::StreamedList,
    };
    ListWatch::new(source, link.clone(), shared.pod_watch.clone(), updates, ViewUpdate::Pods)
}

fn watch_related(
    kind: RelatedObjectKind,
    annotations: KeptAnnotationKeys,
    link: &TimedKubeClient,
    pulse: Arc<WatchState>,
    updates: mpsc::Sender<ViewUpdate>,
) -> ListWatch<object::PartialObject, ViewUpdate> {
    let path = kind.path();
    let source = WatchedCollection {
        path,
        field_selector: None,
        representation: ObjectRepresentation::Metadata,
        annotation_keys: annotations,
        watch_start: WatchOrigin::Position,
    };
    let wrap = match kind {
        RelatedObjectKind::ServiceAccount => {
            |change| ViewUpdate::Related(RelatedObjectKind::ServiceAccount, change)
        }
        RelatedObjectKind::Namespace => |change| ViewUpdate::Related(RelatedObjectKind::Namespace, change),
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
    use crate::fake_api_server::{FakeCall, fake_client_factory};

    /// The agent's watch thread and a fake API server. Nothing else runs.
    struct World {
        pods: NodePods,
        asked: UnboundedReceiver<FakeCall>,
        end: Option<oneshot::Sender<()>>,
        thread: JoinHandle<Result<(), WatchThreadError>>,
    }

    fn hearing(beside: impl Future<Output = ()> + Send + 'static) -> World {
        selecting(SelectedAnnotationKeys::default(), beside)
    }

    fn selecting(
        selected: SelectedAnnotationKeys,
        beside: impl Future<Output = ()> + Send + 'static,
    ) -> World {
        let clock = Clock::system();
        let shared = Arc::new(ClusterView::new(&selected));
        let (connect, asked) = fake_client_factory(clock.clone());
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
        /// Responds to the lists, and opens a stream for each watch.
        fn open(&mut self) -> Vec<crate::fake_api_server::FakeWatchStream> {
            let mut feeds = Vec::new();
            while feeds.len() < self.pods.shared.health_per_watch(self.pods.clock.now()).len() {
                let asked = self.asked.blocking_recv().unwrap();
                if asked.method_and_uri.contains("sendInitialEvents=true") {
                    feeds.push(asked.answer_streamed_list(7, &[]));
                } else if asked.method_and_uri.contains("watch=true") {
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

    /// The watches, the writer and the prover once ran on the control thread. That thread also speaks TLS to clouds and writes
    /// pages for operators, so slow work there delayed every new connection.
    #[test]
    fn a_view_is_proven_by_the_thread_that_hears_alone() {
        let mut world = hearing(std::future::pending());
        let _feeds = world.open();
        // This thread plays a busy control thread: its runtime waits for the proof and runs no watch, writer or prover.
        let waiting = Builder::new_current_thread().build().unwrap();
        waiting.block_on(world.pods.wait_until_current());
        assert!(world.pods.snapshot().has_complete_pod_list());
        assert!(matches!(world.end(), Ok(Ok(()))));
    }

    #[test]
    fn it_ends_when_told_and_takes_everything_along() {
        let mut world = hearing(std::future::pending());
        let _feeds = world.open();
        drop(world.end.take());
        // The channel closes when the last client is dropped.
        while world.asked.blocking_recv().is_some() {}
        assert!(matches!(world.end(), Ok(Ok(()))));
    }

    #[test]
    fn a_part_that_ends_ends_the_thread() {
        assert!(matches!(hearing(async {}).thread.join(), Ok(Err(WatchThreadError::Ended))));
        let panicking = hearing(async { std::panic::resume_unwind(Box::new("died")) });
        assert!(panicking.thread.join().is_err());
    }

    /// A watch of namespaces needs a permission that the agent otherwise does not need.
    #[test]
    fn namespaces_are_asked_about_only_if_somebody_selects_a_key_on_them() {
        let some =
            AnnotationKeys { namespace: vec!["cloud/of-namespace".into()], ..AnnotationKeys::default() };
        for (selections, kinds) in [
            (vec![AnnotationKeys::default()], vec!["pods", "serviceaccounts"]),
            (vec![AnnotationKeys::default(), some], vec!["pods", "serviceaccounts", "namespaces"]),
        ] {
            let mut world = selecting(SelectedAnnotationKeys::merge(&selections), std::future::pending());
            let health = world.pods.shared.health_per_watch(world.pods.clock.now());
            assert!(health.iter().map(|watch| watch.kind).eq(kinds.iter().copied()));
            let mut asked = Vec::new();
            for _ in 0..kinds.len() {
                asked.push(world.asked.blocking_recv().unwrap());
            }
            for kind in kinds {
                let path = format!("GET /api/v1/{kind}?");
                assert!(asked.iter().any(|asked| asked.method_and_uri.starts_with(&path)), "{asked:?}");
            }
            // All watches wait for their first response, and there is no other request.
            assert!(world.asked.try_recv().is_err());
            assert!(matches!(world.end(), Ok(Ok(()))));
        }
    }
}
