//! Receives the changes that the watches report, updates the index and publishes snapshots.
//!
//! The writer applies all queued events before it publishes a snapshot, so a storm of events costs few snapshots. Separate
//! small tasks fetch ServiceAccounts and namespaces, so a slow response delays no pod.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use seawall_core::annotations::RelatedAnnotations;
use seawall_core::{Clock, Moment};
use seawall_kube::request::{self, ObjectRepresentation};
use seawall_kube::{KubeError, RetryBackoff, TimedKubeClient};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tracing::{debug, info};

use crate::cluster_view::ClusterView;
use crate::index::{ObjectFetch, PodIndex};
use crate::object::{self, KeptAnnotationKeys, PartialObject, PodObject};
use crate::related_objects::{RelatedObjectKind, SelectedAnnotationKeys};
use crate::watch::WatchChange;

/// A message to the snapshot writer.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most messages carry pods, and a box would cost an allocation for each event"
)]
pub(crate) enum ViewUpdate {
    Pods(WatchChange<PodObject>),
    Related(RelatedObjectKind, WatchChange<PartialObject>),
    Fetched(ObjectFetch, RelatedAnnotations),
}

/// The maximum number of queued updates. When the queue is full, the watches stop reading, and TCP flow control makes the API
/// server wait.
pub(crate) const MAX_QUEUED_UPDATES: usize = 256;

/// The maximum number of concurrent reads of ServiceAccounts and namespaces.
const READING: usize = 4;

/// The time after the machine's start during which the agent ignores addresses in statuses from before the start. A starting
/// kubelet writes the status of all its pods in far less time (two calls for each pod, 50 calls per second). [`crate::index`]
/// explains why the rule ends.
const REBUILT: Duration = Duration::from_secs(3600);

/// The maximum time for which the writer waits without an update.
const FAR: Duration = Duration::from_secs(3600);

pub(crate) struct SnapshotWriter {
    index: PodIndex,
    link: TimedKubeClient,
    selected: SelectedAnnotationKeys,
    shared: Arc<ClusterView>,
    updates: mpsc::Receiver<ViewUpdate>,
    answers: mpsc::Sender<ViewUpdate>,
    readers: JoinSet<()>,
    permits: Arc<Semaphore>,
    /// The number of applied pod changes that are not published yet.
    unpublished: u64,
    /// True if the next snapshot would differ from the last snapshot.
    is_news: bool,
    /// The time at which the last snapshot becomes outdated without any event.
    outdated: Option<SystemTime>,
}

impl SnapshotWriter {
    pub(crate) fn new(
        link: TimedKubeClient,
        selected: SelectedAnnotationKeys,
        shared: Arc<ClusterView>,
    ) -> (Self, mpsc::Sender<ViewUpdate>) {
        let (sender, updates) = mpsc::channel(MAX_QUEUED_UPDATES);
        let index = match &selected.namespace {
            Some(_) => PodIndex::tracking_namespaces(),
            None => PodIndex::default(),
        };
        let writer = Self {
            index,
            link,
            selected,
            shared,
            updates,
            answers: sender.clone(),
            readers: JoinSet::new(),
            permits: Arc::new(Semaphore::new(READING)),
            unpublished: 0,
            is_news: false,
            outdated: None,
        };
        (writer, sender)
    }

    /// Runs until the future is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            self.wait().await;
            while let Ok(update) = self.updates.try_recv() {
                self.apply(update);
            }
            // Most events about ServiceAccounts and namespaces concern no pod of this node, so they cause no snapshot.
            let wall = self.link.clock.wall_time();
            if self.is_news || self.outdated.is_some_and(|end| wall >= end) {
                self.publish();
            }
            self.start_reads();
        }
    }

    /// Waits until an update arrives, and applies it. Returns earlier if the last snapshot becomes outdated.
    async fn wait(&mut self) {
        let due = self.link.clock.now() + until(self.outdated, &self.link.clock);
        let update = tokio::select! {
            update = self.updates.recv() => update,
            () = self.link.clock.sleep_until(due) => None,
        };
        self.is_news |= self.index.set_boot_time(recent_boot(&self.link.clock));
        if let Some(update) = update {
            self.apply(update);
        }
    }

    fn apply(&mut self, update: ViewUpdate) {
        self.is_news |= match update {
            ViewUpdate::Pods(change) => {
                self.unpublished += 1;
                match change {
                    WatchChange::Started(pods) => self.index.replace_pods(pods),
                    WatchChange::Applied(pod) => self.index.apply_pod(&pod),
                    WatchChange::Deleted(pod) => self.index.remove_pod(&pod),
                }
                true
            }
            ViewUpdate::Related(kind, WatchChange::Started(_)) => {
                self.index.refetch_objects(kind);
                false
            }
            ViewUpdate::Related(kind, WatchChange::Applied(PartialObject { metadata })) => {
                let object = kind.object_from_metadata(&metadata);
                self.index.apply_object(&object, &RelatedAnnotations::of_object(metadata.annotations))
            }
            ViewUpdate::Related(kind, WatchChange::Deleted(PartialObject { metadata })) => {
                self.index.apply_object(
                    &kind.object_from_metadata(&metadata),
                    &RelatedAnnotations::of_missing_object(),
                )
            }
            ViewUpdate::Fetched(fetch, told) => self.index.apply_fetched(&fetch, &told),
        };
    }

    fn publish(&mut self) {
        let wall = self.link.clock.wall_time();
        let new = Arc::new(self.index.build_snapshot(wall));
        (self.is_news, self.outdated) = (false, self.index.next_change_at(wall));
        let version = new.version();
        // Store the snapshot before the version. A reader that wakes up because of the new version then sees at least this
        // snapshot.
        self.shared.snapshot.store(new);
        self.shared.version_sender.send_replace(version);
        self.shared.pod_watch.freshness.add_published_changes(std::mem::take(&mut self.unpublished));
    }

    fn start_reads(&mut self) {
        while self.readers.try_join_next().is_some() {}
        for fetch in self.index.take_related_object_fetches() {
            let reader = Reader {
                link: self.link.clone(),
                annotations: self.selected.keys_of_kind(fetch.object.kind()),
                fetch,
            };
            let (permits, answers) = (self.permits.clone(), self.answers.clone());
            self.readers.spawn(async move {
                if let Some(told) = reader.read_until_known(&permits).await {
                    let _ = answers.send(ViewUpdate::Fetched(reader.fetch, told)).await;
                }
            });
        }
    }
}

/// Returns the time until `end` or until the end of [`REBUILT`], whichever comes first. Adds 1 s, so that the wall clock is
/// past that moment when the wait ends.
fn until(end: Option<SystemTime>, clock: &Clock) -> Duration {
    let now = clock.wall_time();
    let end = end.map(|end| end.duration_since(now).unwrap_or_default());
    // When `rebuilt` has passed, statuses from before the machine's start count again.
    let rebuilt = REBUILT.checked_sub(uptime(clock));
    let left = end.into_iter().chain(rebuilt).min();
    left.map_or(FAR, |left| (left + Duration::from_secs(1)).min(FAR))
}

/// Returns the wall-clock time of this machine's start; `None` if the start is at least [`REBUILT`] ago.
fn recent_boot(clock: &Clock) -> Option<SystemTime> {
    let uptime = uptime(clock);
    clock.wall_time().checked_sub(uptime).filter(|_| uptime < REBUILT)
}

/// Returns the time since the machine's start, which is the origin of the clock.
fn uptime(clock: &Clock) -> Duration {
    clock.now().since(Moment::from_nanos(0))
}

/// Reads one ServiceAccount or namespace.
struct Reader {
    link: TimedKubeClient,
    annotations: KeptAnnotationKeys,
    fetch: ObjectFetch,
}

impl Reader {
    /// Retries until it knows the object's annotations or knows that the object does not exist. Returns `None` if the fetch's
    /// ticket is no longer valid.
    async fn read_until_known(&self, permits: &Semaphore) -> Option<RelatedAnnotations> {
        let Self { link, fetch, .. } = self;
        let mut pauses = RetryBackoff::new(&link.timeouts);
        loop {
            let permit = permits.acquire().await.ok()?;
            fetch.ticket.upgrade()?;
            let failure = match self.read().await {
                Ok(object) => return Some(RelatedAnnotations::of_object(object.metadata.annotations)),
                Err(KubeError::NotFound { .. }) => return Some(RelatedAnnotations::of_missing_object()),
                Err(failure) => failure,
            };
            drop(permit);
            info!(object = %fetch.object, reason = %failure, "cannot read the ServiceAccount or namespace of a pod; the agent tries again");
            link.clock.sleep(pauses.delay_after(&failure)).await;
        }
    }

    async fn read(&self) -> Result<PartialObject, KubeError> {
        let Self { link, fetch: ObjectFetch { object, .. }, annotations } = self;
        debug!(%object, "reading the ServiceAccount or namespace of a pod");
        let answer = link
            .client
            .call_raw(
                request::build_get(&object.path(), ObjectRepresentation::Metadata),
                link.timeouts.response,
            )
            .await?;
        Ok(object::decode_selected(&answer, annotations)?)
    }
}

#[cfg(test)]
mod tests {
    use seawall_core::ManualClock;
    use seawall_core::annotations::Annotations;
    use serde_json::json;

    use super::*;
    use crate::NodePods;
    use crate::fake_api_server::{FakeCall, client_of_fake_server};

    /// Starts a writer. Returns the view, a sender of updates to the writer, the writer's API calls, and the clock.
    fn writer() -> (NodePods, mpsc::Sender<ViewUpdate>, mpsc::UnboundedReceiver<FakeCall>, ManualClock) {
        selecting(SelectedAnnotationKeys::default())
    }

    fn selecting(
        selected: SelectedAnnotationKeys,
    ) -> (NodePods, mpsc::Sender<ViewUpdate>, mpsc::UnboundedReceiver<FakeCall>, ManualClock) {
        let (clock, hand) = Clock::manual();
        let (link, asked) = client_of_fake_server(clock.clone());
        let shared = Arc::new(ClusterView::new(&selected));
        let (writer, updates) = SnapshotWriter::new(link, selected, shared.clone());
        tokio::spawn(writer.run());
        (NodePods { shared, clock }, updates, asked, hand)
    }

    fn pod(name: &str, rest: serde_json::Value) -> PodObject {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "reef", "uid": name},
            "spec": {"serviceAccountName": "coral"},
            "status": {"phase": "Running", "podIP": "10.244.0.1"},
        });
        if let serde_json::Value::Object(more) = rest {
            more.into_iter().for_each(|(key, value)| pod["metadata"][key] = value);
        }
        serde_json::from_value(pod).unwrap()
    }

    /// A change of a ServiceAccount without pods here once created a new snapshot of all pods and woke each task that waits for
    /// one.
    #[tokio::test]
    async fn what_concerns_no_pod_here_makes_no_snapshot() {
        let (pods, updates, _asked, _hand) = writer();
        updates.send(ViewUpdate::Pods(WatchChange::Started(vec![pod("cart", json!({}))]))).await.unwrap();
        let version = pods.wait_for_newer(0).await.version();
        let account = |name: &str| {
            let object = json!({"metadata": {"name": name, "namespace": "reef", "uid": name}});
            ViewUpdate::Related(
                RelatedObjectKind::ServiceAccount,
                WatchChange::Applied(serde_json::from_value(object).unwrap()),
            )
        };
        for name in ["kelp", "anemone", "kelp"] {
            updates.send(account(name)).await.unwrap();
        }
        while updates.capacity() < MAX_QUEUED_UPDATES {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        assert_eq!(pods.snapshot().version(), version);
        updates.send(account("coral")).await.unwrap();
        assert_eq!(pods.wait_for_newer(version).await.version(), version + 1);
    }

    #[tokio::test]
    async fn a_pod_that_nobody_says_is_gone_ends_by_the_clock() {
        let (pods, updates, _asked, hand) = writer();
        // The pod ends one minute after the start of the manual clock, plus the leeway.
        let dying = pod("dying", json!({"deletionTimestamp": "2026-01-01T00:01:00Z"}));
        updates.send(ViewUpdate::Pods(WatchChange::Started(vec![dying]))).await.unwrap();
        let before = pods.wait_for_newer(0).await;
        assert!(before.pod_by_uid("dying").is_some_and(|record| record.is_terminating));
        while hand.next_deadline().is_none() {
            tokio::task::yield_now().await;
        }
        hand.advance(Duration::from_secs(121));
        let after = pods.wait_for_newer(before.version()).await;
        assert!(after.pod_by_uid("dying").is_none());
    }

    /// The manual clock's machine starts at 2026-01-01T00:00:00Z.
    #[tokio::test]
    async fn for_an_hour_a_status_from_before_the_machines_start_names_nobody() {
        let (pods, updates, _asked, hand) = writer();
        let address: std::net::IpAddr = "10.244.0.1".parse().unwrap();
        let told = |name: &str, started: &str| {
            let mut pod = pod(name, json!({}));
            pod.status.start_time = Some(serde_json::from_value(json!(started)).unwrap());
            ViewUpdate::Pods(WatchChange::Applied(pod))
        };
        updates.send(told("old", "2025-12-31T23:59:59Z")).await.unwrap();
        let before = pods.wait_for_newer(0).await;
        assert!(before.pod_at(address).is_err() && before.pod_by_uid("old").is_some());
        // Another pod has the address now, so the old pod does not.
        updates.send(told("new", "2026-01-01T00:00:05Z")).await.unwrap();
        let between = pods.wait_for_newer(before.version()).await;
        assert_eq!(&*between.pod_at(address).unwrap().pod.uid.0, "new");
        let gone = pod("new", json!({}));
        updates.send(ViewUpdate::Pods(WatchChange::Deleted(gone))).await.unwrap();
        let mut snapshot = pods.wait_for_newer(between.version()).await;
        while snapshot.pod_at(address).is_err() {
            hand.advance(Duration::from_secs(30));
            tokio::task::yield_now().await;
            snapshot = pods.snapshot();
        }
        assert!(pods.clock.now() >= Moment::from_nanos(0) + REBUILT);
    }

    #[tokio::test]
    async fn events_that_wait_together_become_few_snapshots() {
        let (pods, updates, _asked, _hand) = writer();
        for i in 0..MAX_QUEUED_UPDATES {
            updates
                .try_send(ViewUpdate::Pods(WatchChange::Applied(pod(&format!("pod-{i}"), json!({})))))
                .unwrap();
        }
        let mut snapshot = pods.wait_for_newer(0).await;
        while snapshot.pods().len() < MAX_QUEUED_UPDATES {
            snapshot = pods.wait_for_newer(snapshot.version()).await;
        }
        assert!(snapshot.version() <= 3, "{}", snapshot.version());
    }

    #[tokio::test]
    async fn an_account_is_read_once_for_many_pods_and_again_when_that_fails() {
        let (pods, updates, mut asked, hand) = writer();
        updates
            .send(ViewUpdate::Related(RelatedObjectKind::ServiceAccount, WatchChange::Started(vec![])))
            .await
            .unwrap();
        for name in ["a", "b", "c"] {
            updates.send(ViewUpdate::Pods(WatchChange::Applied(pod(name, json!({}))))).await.unwrap();
        }
        let first = asked.recv().await.unwrap();
        assert_eq!(first.method_and_uri, "GET /api/v1/namespaces/reef/serviceaccounts/coral");
        first.answer(500, &json!({"kind": "Status", "apiVersion": "v1", "code": 500, "status": "Failure"}));
        // Advance the clock through the pause before the next attempt.
        let second = loop {
            match asked.try_recv() {
                Ok(asked) => break asked,
                Err(_) => hand.advance(Duration::from_millis(50)),
            }
            tokio::task::yield_now().await;
        };
        second.answer(200, &json!({"metadata": {"name": "coral", "namespace": "reef"}}));
        let mut snapshot = pods.snapshot();
        let read = RelatedAnnotations::of_object(Annotations::default());
        while !snapshot.pods().all(|record| record.annotations.service_account == read)
            || snapshot.pods().len() < 3
        {
            snapshot = pods.wait_for_newer(snapshot.version()).await;
        }
        assert!(asked.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_namespace_is_read_once_for_its_pods_and_told_of_by_its_watch() {
        let keys = KeptAnnotationKeys::from(["cloud/of-namespace".into()]);
        let (pods, updates, mut asked, _hand) = selecting(SelectedAnnotationKeys {
            namespace: Some(keys.clone()),
            ..SelectedAnnotationKeys::default()
        });
        updates
            .send(ViewUpdate::Related(RelatedObjectKind::Namespace, WatchChange::Started(vec![])))
            .await
            .unwrap();
        for name in ["a", "b"] {
            updates.send(ViewUpdate::Pods(WatchChange::Applied(pod(name, json!({}))))).await.unwrap();
        }
        let reef = |value: &str| {
            let annotations = json!({"cloud/of-namespace": value, "other": "x"});
            json!({"metadata": {"name": "reef", "annotations": annotations}})
        };
        let says = |value: &str| {
            RelatedAnnotations::of_object([("cloud/of-namespace", value.into())].into_iter().collect())
        };
        let read = asked.recv().await.unwrap();
        assert_eq!(read.method_and_uri, "GET /api/v1/namespaces/reef");
        read.answer(200, &reef("first"));
        told(&pods, &says("first")).await;
        let changed = object::decode_selected(reef("second").to_string().as_bytes(), &keys).unwrap();
        updates
            .send(ViewUpdate::Related(RelatedObjectKind::Namespace, WatchChange::Applied(changed)))
            .await
            .unwrap();
        told(&pods, &says("second")).await;
        assert!(asked.try_recv().is_err());
    }

    /// Waits until both pods have these annotations of their namespace.
    async fn told(pods: &NodePods, what: &RelatedAnnotations) {
        let mut snapshot = pods.snapshot();
        while snapshot.pods().len() < 2 || !snapshot.pods().all(|pod| pod.annotations.namespace == *what) {
            snapshot = pods.wait_for_newer(snapshot.version()).await;
        }
    }
}
