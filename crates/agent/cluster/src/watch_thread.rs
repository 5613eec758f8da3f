//! The part that hears the API server, on a thread that does nothing else: the watches, the writer of the view, and the
//! prover.
//!
//! Whether a connection can be decided at all hangs on this thread ([`crate::view_freshness`]), so nothing that takes long, or that
//! somebody else can make take long, may run on it: no calls for tokens, no events, no pages for operators.
//!
//! **The proof needs one runtime for watch and prover.** What the prover proves is that this runtime has read all that had
//! arrived; a watch whose connection another runtime drives would be proven by nothing. hyper drives a connection on the
//! runtime that opened it, and a client hands a connection that fell idle to whoever asks next. A client that two threads share
//! would therefore, sooner or later, carry the watch over a connection of the other thread. That cannot be written here:
//! [`Hearing`] holds no client, only how to make one; [`Hearing::run`] makes the runtime and, inside it, the client, and keeps both
//! to itself; and [`crate::Cluster`], which asks on the control thread, has no watch, writer or prover to give its own to.

use std::sync::Arc;

use seawall_core::Clock;
use seawall_kube::request::Form;
use seawall_kube::{Client, Connector, Link, Patience};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::config::{Config, NodeName};
use crate::latest_snapshot::Shared;
use crate::object::Keys;
use crate::related_objects::{Kind, Selected};
use crate::snapshot_writer::{Update, Writer};
use crate::watch::{Source, Start, Watch};
use crate::watch_health::Pulse;
use crate::{StartError, object, view_freshness};

/// What is to hear. Nothing of it runs before [`Hearing::run`].
pub struct Hearing {
    /// Makes the client, where it is called.
    connect: Box<dyn FnOnce() -> Result<Client, StartError> + Send>,
    node: NodeName,
    selected: Selected,
    patience: Patience,
    shared: Arc<Shared>,
    clock: Clock,
}

impl std::fmt::Debug for Hearing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hearing").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Why nobody hears the API server any more.
#[derive(Debug, thiserror::Error)]
pub enum Unheard {
    /// The kernel gives no poller.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// The credentials, which were good a moment ago.
    #[error(transparent)]
    Access(#[from] StartError),
    /// A panic, which was said where it happened.
    #[error("a watch, the writer or the prover ended, and none of them may")]
    Ended,
}

impl Hearing {
    pub(crate) fn new(connector: Connector, config: &Config, shared: &Arc<Shared>, clock: &Clock) -> Self {
        let (patience, clock_of_client) = (config.patience, clock.clone());
        let connect = Box::new(move || connector.client(&patience, clock_of_client));
        Self {
            connect,
            node: config.node.clone(),
            selected: Selected::of(&config.selections),
            patience,
            shared: shared.clone(),
            clock: clock.clone(),
        }
    }

    /// Hears, on the calling thread and nowhere else, until `end`. `beside` runs on the same thread: what must be in step with
    /// the view, is quick, and asks nobody.
    ///
    /// # Errors
    /// It cannot begin, or a part of it has ended. What was last told stays to be read, but is proven no more.
    pub fn run(self, beside: impl Future<Output = ()>, end: impl Future<Output = ()>) -> Result<(), Unheard> {
        // The API server's name is looked up on a blocking thread; each costs a stack.
        let runtime =
            Builder::new_current_thread().enable_io().enable_time().max_blocking_threads(1).build()?;
        let ended = runtime.block_on(async {
            let mut parts = self.parts()?;
            tokio::select! {
                () = end => Ok(()),
                () = beside => Err(Unheard::Ended),
                _ = parts.join_next() => Err(Unheard::Ended),
            }
        });
        // Dropping it would wait for a look-up, which takes half a minute where no name server answers.
        runtime.shutdown_background();
        ended
    }

    /// All of it at work, on this very runtime.
    fn parts(self) -> Result<JoinSet<()>, StartError> {
        let Self { connect, node, selected, patience, shared, clock } = self;
        let link = Link { client: connect()?, clock: clock.clone(), patience };
        let (writer, updates) = Writer::new(link.clone(), selected.clone(), shared.clone());
        let mut parts = JoinSet::new();
        parts.spawn(writer.run());
        parts.spawn(view_freshness::prove(shared.pods.current.clone(), clock));
        parts.spawn(watch_pods(&node, selected.pod.clone(), &link, &shared, updates.clone()).run());
        for (kind, pulse) in shared.beside() {
            let keys = selected.keys(kind);
            parts.spawn(watch_beside(kind, keys, &link, pulse.clone(), updates.clone()).run());
        }
        Ok(parts)
    }
}

/// Pods that have ended are filtered by the server: a node may keep hundreds of finished jobs.
pub(crate) fn watch_pods(
    node: &NodeName,
    annotations: Keys,
    link: &Link,
    shared: &Shared,
    updates: mpsc::Sender<Update>,
) -> Watch<object::PodObject, Update> {
    let source = Source {
        path: "/api/v1/pods",
        fields: Some(format!("spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed", node.as_str())),
        form: Form::Whole,
        annotations,
        start: Start::List,
    };
    Watch::new(source, link.clone(), shared.pods.clone(), updates, Update::Pods)
}

fn watch_beside(
    kind: Kind,
    annotations: Keys,
    link: &Link,
    pulse: Arc<Pulse>,
    updates: mpsc::Sender<Update>,
) -> Watch<object::PartialObject, Update> {
    let path = kind.path();
    let source = Source { path, fields: None, form: Form::Metadata, annotations, start: Start::Position };
    let wrap = match kind {
        Kind::ServiceAccount => |change| Update::Beside(Kind::ServiceAccount, change),
        Kind::Namespace => |change| Update::Beside(Kind::Namespace, change),
    };
    Watch::new(source, link.clone(), pulse, updates, wrap)
}

#[cfg(test)]
mod tests {
    use std::thread::JoinHandle;

    use seawall_core::facts::Selection;
    use serde_json::json;
    use tokio::sync::mpsc::UnboundedReceiver;
    use tokio::sync::oneshot;

    use super::*;
    use crate::Pods;
    use crate::fake::{Asked, fake};

    /// The agent's thread that hears, and the API server's end of it. Nothing else runs anywhere.
    struct World {
        pods: Pods,
        asked: UnboundedReceiver<Asked>,
        end: Option<oneshot::Sender<()>>,
        thread: JoinHandle<Result<(), Unheard>>,
    }

    fn hearing(beside: impl Future<Output = ()> + Send + 'static) -> World {
        selecting(Selected::default(), beside)
    }

    fn selecting(selected: Selected, beside: impl Future<Output = ()> + Send + 'static) -> World {
        let clock = Clock::system();
        let shared = Arc::new(Shared::new(&selected));
        let (connect, asked) = fake(clock.clone());
        let hearing = Hearing {
            connect: Box::new(move || Ok(connect())),
            node: NodeName::parse("node1").unwrap(),
            selected,
            patience: Patience::default(),
            shared: shared.clone(),
            clock: clock.clone(),
        };
        let (end, ended) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || hearing.run(beside, async move { drop(ended.await) }));
        World { pods: Pods { shared, clock }, asked, end: Some(end), thread }
    }

    impl World {
        /// Answers the lists, and the watches with streams that stay open.
        fn open(&mut self) -> Vec<crate::fake::Feed> {
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

        fn end(mut self) -> std::thread::Result<Result<(), Unheard>> {
            drop(self.end.take());
            self.thread.join()
        }
    }

    /// Watches, writer and prover used to be tasks of the control thread, which also speaks TLS to clouds and writes pages for
    /// operators: whatever took long there held up every new connection.
    #[test]
    fn a_view_is_proven_by_the_thread_that_hears_alone() {
        let mut world = hearing(std::future::pending());
        let _feeds = world.open();
        // This runtime waits and drives nothing; the thread that would ask is this one, and it is busy.
        let waiting = Builder::new_current_thread().build().unwrap();
        waiting.block_on(world.pods.current());
        assert!(world.pods.snapshot().is_complete());
        assert!(matches!(world.end(), Ok(Ok(()))));
    }

    #[test]
    fn it_ends_when_told_and_takes_everything_along() {
        let mut world = hearing(std::future::pending());
        let _feeds = world.open();
        drop(world.end.take());
        // The last client is gone when nobody can ask any more.
        while world.asked.blocking_recv().is_some() {}
        assert!(matches!(world.end(), Ok(Ok(()))));
    }

    #[test]
    fn a_part_that_ends_ends_the_thread() {
        assert!(matches!(hearing(async {}).thread.join(), Ok(Err(Unheard::Ended))));
        let panicking = hearing(async { std::panic::resume_unwind(Box::new("died")) });
        assert!(panicking.thread.join().is_err());
    }

    /// The namespaces' watch would be refused without a permission that nothing needs.
    #[test]
    fn namespaces_are_asked_about_only_if_somebody_selects_a_key_on_them() {
        let some = Selection { namespace: &["cloud/of-namespace"], ..Selection::default() };
        for (selections, kinds) in [
            (vec![Selection::default()], vec!["pods", "serviceaccounts"]),
            (vec![Selection::default(), some], vec!["pods", "serviceaccounts", "namespaces"]),
        ] {
            let mut world = selecting(Selected::of(&selections), std::future::pending());
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
            // All watches wait for their first answer, and nobody else asks.
            assert!(world.asked.try_recv().is_err());
            assert!(matches!(world.end(), Ok(Ok(()))));
        }
    }
}
