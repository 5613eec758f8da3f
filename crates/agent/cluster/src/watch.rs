//! Lists and watches the objects of one kind, and reports each change.
//!
//! Each kind has its own task, connection and back-off, so that a stuck or forbidden watch delays no other watch. Bookmarks
//! show that a quiet watch still works.
//!
//! The rules come from the Kubernetes documentation "Efficient detection of changes":
//! - The watch begins with a consistent list and continues from the list's version. Each event and bookmark moves the position,
//!   which is the version from which the watch can resume.
//! - Pods are listed as the first events of their watch (a streamed list), which the API server takes from its cache. A paged list
//!   by node can read all pods of the cluster from etcd, which has no index by node. A server without streamed lists refuses the
//!   request, and the agent lists in pages.
//! - After a broken connection, the watch resumes from its position. If the position has expired (410), the watch starts again
//!   with a list.
//! - After any other error *event*, the watch also starts again with a list, because the list contains the changes that the
//!   watch could not deliver.
//! - A watch that is silent for longer than the interval between bookmarks counts as dead, even if its TCP connection is open.

use std::sync::Arc;

use seawall_kube::request::{self, BuildRequestResult, ObjectRepresentation};
use seawall_kube::{KubeError, LineReader, RetryBackoff, TimedKubeClient};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::object::{self, KeptAnnotationKeys, ListPage, Versioned, WatchEvent};
use crate::watch_health::WatchState;

/// A change that a watch reports.
#[derive(Debug)]
pub(crate) enum WatchChange<T> {
    /// Contains all objects at the start or restart of the watch. The list is empty for [`WatchOrigin::Position`].
    Started(Vec<T>),
    Applied(T),
    Deleted(T),
}

/// Defines how a watch starts: with a list of all objects, or with a position only.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WatchOrigin {
    /// The watch starts with a list of all objects, in pages.
    List,
    /// The watch starts with a streamed list of all objects, or with a list in pages if the API server has no streamed lists.
    StreamedList,
    /// The watch starts without objects. The agent requests only the collection's present version.
    Position,
}

/// Names the collection to watch and the part of each object to read.
#[derive(Clone, Debug)]
pub(crate) struct WatchedCollection {
    /// The collection's path.
    pub(crate) path: &'static str,
    /// The field selector; `None` selects everything.
    pub(crate) field_selector: Option<String>,
    /// The representation of each object: the whole object, or its metadata only.
    pub(crate) representation: ObjectRepresentation,
    /// The annotation keys to keep from each object.
    pub(crate) annotation_keys: KeptAnnotationKeys,
    pub(crate) watch_start: WatchOrigin,
}

/// The number of objects in a page of a list. The page is small because the agent holds it as text (about 10 KiB per pod) and
/// then as objects. With pages of 100 objects, a list of 2,000 pods increased the agent's resident memory by 700 more bytes per
/// pod. Since Kubernetes 1.34 the API server serves pages from its cache (ListFromCacheSnapshot), so smaller pages cost the
/// server nothing extra.
const PAGE: u32 = 25;

/// The time for which the agent asks the API server to keep a watch open, in seconds. The agent draws a random time from this
/// range, so that the nodes of a cluster do not all reconnect at once.
const OPEN: std::ops::Range<u32> = 240..290;

/// One running watch.
pub(crate) struct ListWatch<T, U> {
    source: WatchedCollection,
    link: TimedKubeClient,
    state: Arc<WatchState>,
    updates: mpsc::Sender<U>,
    wrap: fn(WatchChange<T>) -> U,
    /// The version from which to continue; `None` means that the watch must start again.
    position: Option<String>,
    pauses: RetryBackoff,
}

/// The reason why a round of the watch (one list or one stream) ended early.
enum WatchRoundError {
    /// The round failed. The next round continues from the position.
    Failed(KubeError),
    /// The position is no longer valid.
    PositionExpired(KubeError),
    /// The receiver of the changes has been dropped.
    Closed,
}

impl From<KubeError> for WatchRoundError {
    fn from(failure: KubeError) -> Self {
        match failure {
            // After `Unreadable` and `TooLarge`, the watch must restart, because from the same position the server would send
            // the same event again.
            KubeError::Expired | KubeError::Unreadable(_) | KubeError::TooLarge(_) => {
                Self::PositionExpired(failure)
            }
            _ => Self::Failed(failure),
        }
    }
}

impl<T: Versioned + DeserializeOwned + Clone, U> ListWatch<T, U> {
    pub(crate) fn new(
        source: WatchedCollection,
        link: TimedKubeClient,
        state: Arc<WatchState>,
        updates: mpsc::Sender<U>,
        wrap: fn(WatchChange<T>) -> U,
    ) -> Self {
        let pauses = RetryBackoff::new(&link.timeouts);
        Self { source, link, state, updates, wrap, position: None, pauses }
    }

    /// Runs until the receiver of the changes is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let round = match self.position.clone() {
                None => self.begin().await,
                Some(version) => self.follow(&version).await,
            };
            match round {
                Ok(()) => {}
                Err(WatchRoundError::Closed) => return,
                Err(WatchRoundError::Failed(failure)) => self.pause(&failure).await,
                Err(WatchRoundError::PositionExpired(failure)) => {
                    self.position = None;
                    self.state.freshness.record_changes_unavailable();
                    self.pause(&failure).await;
                }
            }
        }
    }

    /// Requests a list, or only the position, and sends the result to the receiver of the changes.
    async fn begin(&mut self) -> Result<(), WatchRoundError> {
        let (items, version) = match self.source.watch_start {
            WatchOrigin::StreamedList => return self.begin_with_stream().await,
            WatchOrigin::List => self.list().await?,
            WatchOrigin::Position => (Vec::new(), self.page(1, &None).await?.metadata.resource_version),
        };
        self.state.record_start();
        self.record_activity();
        self.send_change(WatchChange::Started(items)).await?;
        self.position = Some(version);
        Ok(())
    }

    /// Reads all objects as the first events of a watch, and then follows this watch until it ends.
    ///
    /// If the API server refuses a streamed list, or ends it early, the next round lists in pages.
    async fn begin_with_stream(&mut self) -> Result<(), WatchRoundError> {
        let TimedKubeClient { client, timeouts: patience, .. } = self.link.clone();
        let mut lines = match client.watch(self.source.streamed_list(), patience.response).await {
            Ok(lines) => lines,
            Err(KubeError::Refused { code, message }) => {
                debug!(
                    watch = self.state.kind(),
                    code, message, "the API server has no streamed lists; the agent lists in pages"
                );
                self.source.watch_start = WatchOrigin::List;
                return Ok(());
            }
            Err(failure) => return Err(failure.into()),
        };
        // The API server answers, so it also serves the kubelet: the last view must not count as current until the list is whole.
        self.state.freshness.record_changes_unavailable();
        let initial = match self.read_initial_events(&mut lines).await {
            Err(WatchRoundError::Failed(KubeError::TimedOut(_))) => Ok(None),
            read => read,
        };
        let Some((items, version)) = initial? else {
            self.source.watch_start = WatchOrigin::List;
            // Not an outage: `KubeError::is_unreachable` is false for this error.
            return Err(KubeError::Unreadable("the streamed list did not end".to_owned()).into());
        };
        self.state.record_start();
        self.record_activity();
        self.send_change(WatchChange::Started(items)).await?;
        self.position = Some(version);
        // Only now does the view contain the list. A piece that was read together with the last bookmark can contain more events;
        // nothing else runs on this thread before the next lines apply them or wait for their rest.
        self.state.freshness.record_stream_opened();
        let round = self.read_stream(lines).await;
        self.state.freshness.record_stream_ended(self.link.clock.now());
        round
    }

    /// Returns the objects that existed when the stream began, and the version after them. Returns `None` if the stream ends before.
    async fn read_initial_events(
        &self,
        lines: &mut LineReader,
    ) -> Result<Option<(Vec<T>, String)>, WatchRoundError> {
        let TimedKubeClient { client, timeouts: patience, .. } = self.link.clone();
        let mut items = Vec::new();
        while let Some(line) = client.run_with_timeout(patience.watch_idle, lines.next_line(|| {})).await?? {
            match object::decode_selected(&line, &self.source.annotation_keys) {
                Ok(WatchEvent::Added(item)) => items.push(item),
                Ok(WatchEvent::Bookmark(bookmark)) if bookmark.ends_initial_events() => {
                    return Ok(Some((items, bookmark.metadata.resource_version)));
                }
                Ok(WatchEvent::Error(status)) => {
                    return Err(WatchRoundError::PositionExpired(KubeError::from_status(&status)));
                }
                // The server sends no changes before the bookmark. If it does, the list would be wrong.
                Ok(WatchEvent::Modified(_) | WatchEvent::Deleted(_) | WatchEvent::Bookmark(_)) => {
                    return Ok(None);
                }
                Err(error) if error.is_eof() => return Ok(None),
                Err(error) => return Err(KubeError::from(error).into()),
            }
        }
        Ok(None)
    }

    async fn list(&self) -> Result<(Vec<T>, String), KubeError> {
        let (mut items, mut next, mut limit) = (Vec::new(), None, PAGE);
        loop {
            let page = match self.page(limit, &next).await {
                // The objects are very large. Retry with half the page size, down to one object, before the list fails.
                Err(KubeError::TooLarge(_)) if limit > 1 => {
                    limit /= 2;
                    continue;
                }
                page => page?,
            };
            items.extend(page.items);
            next = page.metadata.continue_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok((items, page.metadata.resource_version));
            }
        }
    }

    async fn page(&self, limit: u32, next: &Option<String>) -> Result<ListPage<T>, KubeError> {
        let request = self.source.list(limit, next.as_deref());
        let page = self.link.client.call_raw(request, self.link.timeouts.list_page).await?;
        Ok(object::decode_selected(&page, &self.source.annotation_keys)?)
    }

    /// Watches from `version` until the stream ends, which happens every few minutes.
    async fn follow(&mut self, version: &str) -> Result<(), WatchRoundError> {
        let TimedKubeClient { client, timeouts: patience, .. } = self.link.clone();
        let lines = client.watch(self.source.watch(version), patience.response).await?;
        self.state.freshness.record_stream_opened();
        let round = self.read_stream(lines).await;
        self.state.freshness.record_stream_ended(self.link.clock.now());
        round
    }

    /// Reads and applies the events of a stream until it ends.
    async fn read_stream(&mut self, mut lines: LineReader) -> Result<(), WatchRoundError> {
        let TimedKubeClient { client, timeouts: patience, .. } = self.link.clone();
        let mut told = false;
        let pulse = self.state.clone();
        let heard = || pulse.freshness.record_stream_chunk_read();
        while let Some(line) = client.run_with_timeout(patience.watch_idle, lines.next_line(heard)).await?? {
            match object::decode_selected(&line, &self.source.annotation_keys) {
                Ok(event) => self.apply_event(event).await?,
                // The stream ended within an event. The next stream sends the whole event again.
                Err(error) if error.is_eof() => break,
                Err(error) => return Err(KubeError::from(error).into()),
            }
            told = true;
        }
        // A watch normally ends after some events. A stream without any event counts as a failure, so that the agent pauses
        // before the next attempt.
        if told { Ok(()) } else { Err(KubeError::WatchEndedBeforeFirstEvent.into()) }
    }

    async fn apply_event(&mut self, event: WatchEvent<T>) -> Result<(), WatchRoundError> {
        let (version, change) = match event {
            WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                (item.version().to_owned(), Some(WatchChange::Applied(item)))
            }
            WatchEvent::Deleted(item) => (item.version().to_owned(), Some(WatchChange::Deleted(item))),
            WatchEvent::Bookmark(bookmark) => (bookmark.metadata.resource_version, None),
            WatchEvent::Error(status) => {
                return Err(WatchRoundError::PositionExpired(KubeError::from_status(&status)));
            }
        };
        self.record_activity();
        self.pauses.reset();
        if let Some(change) = change {
            self.send_change(change).await?;
        }
        self.position = Some(version);
        Ok(())
    }

    async fn send_change(&self, change: WatchChange<T>) -> Result<(), WatchRoundError> {
        self.state.freshness.record_change_before_send();
        self.updates.send((self.wrap)(change)).await.map_err(|_| WatchRoundError::Closed)
    }

    fn record_activity(&self) {
        if self.state.record_activity(self.link.clock.now()) {
            info!(watch = self.state.kind(), "the watch runs again");
        }
    }

    async fn pause(&mut self, failure: &KubeError) {
        let pause = self.pauses.delay_after(failure);
        if failure.is_unreachable() {
            self.state.freshness.record_unreachable(self.link.clock.now());
        } else if failure.is_refusal() {
            self.state.freshness.record_changes_unavailable();
        }
        if self.state.record_failure(failure) {
            warn!(watch = self.state.kind(), reason = %failure, "the watch is interrupted; the agent tries again");
        } else {
            debug!(watch = self.state.kind(), reason = %failure, ?pause, "the watch is still interrupted");
        }
        self.link.clock.sleep(pause).await;
    }
}

impl WatchedCollection {
    fn list(&self, limit: u32, next: Option<&str>) -> BuildRequestResult {
        request::build_list(self.path, self.representation, self.field_selector.as_deref(), limit, next)
    }

    fn streamed_list(&self) -> BuildRequestResult {
        request::build_streamed_list(
            self.path,
            self.representation,
            self.field_selector.as_deref(),
            fastrand::u32(OPEN),
        )
    }

    fn watch(&self, version: &str) -> BuildRequestResult {
        request::build_watch(
            self.path,
            self.representation,
            self.field_selector.as_deref(),
            version,
            fastrand::u32(OPEN),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seawall_core::{Clock, ManualClock};
    use serde_json::{Value, json};
    use tokio::sync::mpsc::{Receiver, UnboundedReceiver};

    use super::*;
    use crate::fake_api_server::{FakeCall, client_of_fake_server};
    use crate::object::PodObject;
    use seawall_kube::KubeTimeouts;

    struct World {
        asked: UnboundedReceiver<FakeCall>,
        told: Receiver<WatchChange<PodObject>>,
        pulse: Arc<WatchState>,
        clock: Clock,
        hand: ManualClock,
    }

    fn watching() -> World {
        watching_from(WatchOrigin::List)
    }

    fn watching_from(watch_start: WatchOrigin) -> World {
        let (clock, hand) = Clock::manual();
        let (link, asked) = client_of_fake_server(clock.clone());
        let (updates, told) = mpsc::channel(64);
        let pulse = Arc::new(WatchState::new("pods"));
        let source = WatchedCollection {
            path: "/api/v1/pods",
            field_selector: None,
            representation: ObjectRepresentation::Whole,
            annotation_keys: KeptAnnotationKeys::default(),
            watch_start,
        };
        let watch: ListWatch<PodObject, _> =
            ListWatch::new(source, link, pulse.clone(), updates, |change| change);
        tokio::spawn(watch.run());
        World { asked, told, pulse, clock, hand }
    }

    impl World {
        /// Returns the next call. Moves the clock until the call arrives.
        async fn call(&mut self) -> FakeCall {
            loop {
                match self.asked.try_recv() {
                    Ok(asked) => return asked,
                    Err(_) => self.hand.advance(Duration::from_millis(10)),
                }
                tokio::task::yield_now().await;
            }
        }

        async fn names(&mut self) -> Vec<String> {
            match self.told.recv().await.unwrap() {
                WatchChange::Started(pods) => pods.into_iter().map(|pod| pod.metadata.name).collect(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn pod(name: &str, version: u32) -> Value {
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()}})
    }

    fn list(version: u32, next: &str, pods: &[Value]) -> Value {
        json!({"metadata": {"resourceVersion": version.to_string(), "continue": next}, "items": pods})
    }

    fn event(kind: &str, object: &Value) -> Value {
        json!({"type": kind, "object": object})
    }

    fn bookmark(version: u32) -> Value {
        let metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
        event("BOOKMARK", &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}))
    }

    fn error(code: u16) -> Value {
        event("ERROR", &json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"}))
    }

    #[tokio::test]
    async fn pages_make_one_list_and_bookmarks_move_the_position() {
        let mut world = watching();
        let first = world.call().await;
        assert!(
            first.method_and_uri.contains("limit=25") && !first.method_and_uri.contains("continue="),
            "{}",
            first.method_and_uri
        );
        first.answer(200, &list(7, "more", &[pod("a", 5)]));
        let second = world.call().await;
        assert!(second.method_and_uri.contains("continue=more"), "{}", second.method_and_uri);
        second.answer(200, &list(7, "", &[pod("b", 6)]));
        assert_eq!(world.names().await, ["a", "b"]);

        let watch = world.call().await;
        assert!(
            watch.method_and_uri.contains("watch=true")
                && watch.method_and_uri.contains("allowWatchBookmarks=true")
        );
        assert!(watch.method_and_uri.contains("resourceVersion=7"), "{}", watch.method_and_uri);
        watch.answer_lines(200, &[event("ADDED", &pod("c", 9)), bookmark(30)]);
        assert!(
            matches!(world.told.recv().await, Some(WatchChange::Applied(pod)) if pod.metadata.name == "c")
        );
        let resumed = world.call().await;
        assert!(resumed.method_and_uri.contains("resourceVersion=30"), "{}", resumed.method_and_uri);
    }

    #[tokio::test]
    async fn a_streamed_list_is_one_list_and_the_same_stream_goes_on_as_the_watch() {
        let mut world = watching_from(WatchOrigin::StreamedList);
        let call = world.call().await;
        for parameter in ["watch=true", "sendInitialEvents=true", "resourceVersionMatch=NotOlderThan"] {
            assert!(call.method_and_uri.contains(parameter), "{}", call.method_and_uri);
        }
        assert!(!call.method_and_uri.contains("resourceVersion="), "{}", call.method_and_uri);
        let stream = call.answer_streamed_list(7, &[pod("a", 5), pod("b", 6)]);
        assert_eq!(world.names().await, ["a", "b"]);
        stream.send_event(&event("DELETED", &pod("a", 9)));
        assert!(matches!(world.told.recv().await, Some(WatchChange::Deleted(_))));
        drop(stream);
        let resumed = world.call().await;
        assert!(resumed.method_and_uri.contains("resourceVersion=9"), "{}", resumed.method_and_uri);
        resumed.answer(410, &json!({"kind": "Status", "status": "Failure", "code": 410}));
        world.call().await.answer_streamed_list(20, &[]);
        assert!(world.names().await.is_empty());
    }

    /// Kubernetes before 1.32, or without the feature gate WatchList.
    #[tokio::test]
    async fn a_server_without_streamed_lists_is_asked_for_pages_at_once_and_from_then_on() {
        let mut world = watching_from(WatchOrigin::StreamedList);
        let refusal = json!({"kind": "Status", "status": "Failure", "code": 422, "message": "sendInitialEvents is forbidden"});
        world.call().await.answer(422, &refusal);
        let paged = world.call().await;
        assert!(paged.method_and_uri.contains("limit=25"), "{}", paged.method_and_uri);
        paged.answer(200, &list(7, "", &[pod("a", 5)]));
        assert_eq!(world.names().await, ["a"]);
        world.call().await.answer_lines(200, &[error(410)]);
        let anew = world.call().await;
        assert!(anew.method_and_uri.contains("limit=25"), "{}", anew.method_and_uri);
    }

    /// A list that is not whole would make the agent forget pods that run.
    #[tokio::test]
    async fn a_streamed_list_that_ends_early_is_no_list() {
        for lines in [
            vec![event("ADDED", &pod("a", 5))],
            vec![event("ADDED", &pod("a", 5)), bookmark(6)],
            vec![event("ADDED", &pod("a", 5)), event("DELETED", &pod("a", 6))],
            vec![],
        ] {
            let mut world = watching_from(WatchOrigin::StreamedList);
            world.call().await.answer_lines(200, &lines);
            let paged = world.call().await;
            assert!(paged.method_and_uri.contains("limit=25"), "{}", paged.method_and_uri);
            paged.answer(200, &list(7, "", &[pod("b", 5)]));
            assert_eq!(world.names().await, ["b"]);
        }
        let mut world = watching_from(WatchOrigin::StreamedList);
        world.call().await.answer_lines(200, &[event("ADDED", &pod("a", 5)), error(500)]);
        world.call().await.answer_streamed_list(9, &[pod("c", 5)]);
        assert_eq!(world.names().await, ["c"]);
    }

    /// A server that never ends a streamed list is listed in pages, too.
    #[tokio::test]
    async fn a_streamed_list_that_never_ends_is_given_up() {
        let mut world = watching_from(WatchOrigin::StreamedList);
        let stream = world.call().await.answer_stream();
        stream.send_event(&event("ADDED", &pod("a", 5)));
        let paged = world.call().await;
        assert!(paged.method_and_uri.contains("limit=25"), "{}", paged.method_and_uri);
    }

    #[tokio::test]
    async fn a_broken_connection_resumes_and_an_error_event_lists_anew() {
        let mut world = watching();
        world.call().await.answer(200, &list(7, "", &[pod("a", 5)]));
        assert_eq!(world.names().await, ["a"]);
        drop(world.call().await);
        let resumed = world.call().await;
        assert!(resumed.method_and_uri.contains("resourceVersion=7"), "{}", resumed.method_and_uri);
        resumed.answer_lines(200, &[event("DELETED", &pod("a", 8)), error(500)]);
        assert!(matches!(world.told.recv().await, Some(WatchChange::Deleted(_))));
        for code in [410, 500] {
            let anew = world.call().await;
            assert!(!anew.method_and_uri.contains("watch=true"), "{}", anew.method_and_uri);
            anew.answer(200, &list(20, "", &[]));
            assert!(world.names().await.is_empty());
            world.call().await.answer_lines(200, &[error(code)]);
        }
    }

    #[tokio::test]
    async fn an_expired_position_in_the_answer_itself_lists_anew() {
        let mut world = watching();
        world.call().await.answer(200, &list(7, "", &[]));
        world.names().await;
        world.call().await.answer(410, &json!({"kind": "Status", "status": "Failure", "code": 410}));
        assert!(!world.call().await.method_and_uri.contains("watch=true"));
    }

    #[tokio::test]
    async fn a_server_that_ends_every_watch_at_once_is_not_asked_in_a_loop() {
        let mut world = watching();
        world.call().await.answer(200, &list(7, "", &[]));
        world.names().await;
        let mut asked = 0;
        // Pass one minute in steps far shorter than any pause.
        for _ in 0..6000 {
            world.hand.advance(Duration::from_millis(10));
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            while let Ok(watch) = world.asked.try_recv() {
                asked += 1;
                watch.answer_lines(200, &[]);
            }
        }
        assert!((15..40).contains(&asked), "{asked}");
        assert!(world.pulse.health(seawall_core::Moment::from_nanos(0)).current_failure.is_some());
    }

    #[tokio::test]
    async fn nothing_is_heard_while_nothing_is_said() {
        let mut world = watching();
        assert_eq!(world.pulse.time_since_activity(seawall_core::Moment::from_nanos(0)), None);
        world.call().await.answer(200, &list(7, "", &[]));
        world.names().await;
        let heard = world.pulse.time_since_activity(seawall_core::Moment::from_nanos(u64::MAX)).unwrap();
        // The server is silent for longer than any interval between bookmarks. The watch gives up, resumes, and still receives
        // nothing.
        let silent = world.call().await;
        let resumed = world.call().await;
        assert!(resumed.method_and_uri.contains("resourceVersion=7"), "{}", resumed.method_and_uri);
        assert_eq!(
            world.pulse.time_since_activity(seawall_core::Moment::from_nanos(u64::MAX)).unwrap(),
            heard
        );
        drop(silent);
    }

    #[tokio::test]
    async fn a_list_that_fails_at_the_start_is_tried_again_after_growing_pauses() {
        let mut world = watching();
        let mut asked_at = Vec::new();
        let clock = world.clock.clone();
        for _ in 0..8 {
            let asked = world.call().await;
            asked_at.push(clock.now());
            asked.answer(500, &json!({"kind": "Status", "status": "Failure", "code": 500}));
        }
        let pauses: Vec<Duration> = asked_at.windows(2).map(|two| two[1].since(two[0])).collect();
        assert!(pauses[0] < Duration::from_millis(700), "{pauses:?}");
        assert!(pauses[6] > Duration::from_secs(15) && pauses[6] < Duration::from_secs(35), "{pauses:?}");
        assert!(world.told.try_recv().is_err(), "the watch reports no pods before a list");
        assert!(world.pulse.health(clock.now()).current_failure.is_some());
        world.call().await.answer(200, &list(7, "", &[pod("a", 5)]));
        assert_eq!(world.names().await, ["a"]);
        assert!(world.pulse.health(clock.now()).current_failure.is_none());
    }

    #[tokio::test]
    async fn a_list_whose_pages_expire_on_the_way_begins_anew_and_tells_no_half() {
        let mut world = watching();
        world.call().await.answer(200, &list(7, "more", &[pod("a", 5)]));
        world.call().await.answer(410, &json!({"kind": "Status", "status": "Failure", "code": 410}));
        let anew = world.call().await;
        assert!(!anew.method_and_uri.contains("continue="), "{}", anew.method_and_uri);
        anew.answer(200, &list(9, "", &[pod("b", 8)]));
        assert_eq!(world.names().await, ["b"]);
    }

    #[tokio::test]
    async fn a_page_that_is_too_large_is_asked_for_in_parts() {
        let mut world = watching();
        for limit in [25, 12, 6, 3, 1] {
            let page = world.call().await;
            assert!(page.method_and_uri.ends_with(&format!("limit={limit}")), "{}", page.method_and_uri);
            if limit > 1 {
                page.answer_text(200, " ".repeat(seawall_kube::MAX_RESPONSE_BYTES + 1));
            } else {
                page.answer(200, &list(7, "more", &[pod("a", 5)]));
            }
        }
        let rest = world.call().await;
        assert!(rest.method_and_uri.ends_with("limit=1&continue=more"), "{}", rest.method_and_uri);
        rest.answer(200, &list(7, "", &[pod("b", 6)]));
        assert_eq!(world.names().await, ["a", "b"]);
    }

    #[tokio::test]
    async fn an_event_that_the_end_cuts_short_is_told_again() {
        let mut world = watching();
        world.call().await.answer(200, &list(7, "", &[]));
        world.names().await;
        let whole = event("ADDED", &pod("a", 9)).to_string();
        let half = event("ADDED", &pod("b", 10)).to_string();
        world.call().await.answer_text(200, format!("{whole}\n{}", &half[..half.len() / 2]));
        assert!(
            matches!(world.told.recv().await, Some(WatchChange::Applied(pod)) if pod.metadata.name == "a")
        );
        let resumed = world.call().await;
        assert!(resumed.method_and_uri.contains("resourceVersion=9"), "{}", resumed.method_and_uri);
    }

    #[tokio::test]
    async fn a_refusal_that_is_no_status_counts_by_its_code() {
        let mut world = watching();
        world.call().await.answer_text(502, "<html>secret</html>".into());
        let _again = world.call().await;
        let trouble = world.pulse.health(world.clock.now()).current_failure.unwrap();
        assert!(trouble.contains("502") && !trouble.contains("secret"), "{trouble}");
    }

    #[tokio::test]
    async fn a_watch_that_falls_silent_is_given_up_and_resumed_from_what_it_said_last() {
        let mut world = watching();
        world.call().await.answer(200, &list(7, "", &[]));
        world.names().await;
        let feed = world.call().await.answer_stream();
        feed.send_event(&event("ADDED", &pod("a", 9)));
        assert!(matches!(world.told.recv().await, Some(WatchChange::Applied(_))));
        // The connection stays open, but a firewall on its path may have dropped the connection's state.
        let clock = world.clock.clone();
        let spoke = clock.now();
        let resumed = world.call().await;
        assert!(resumed.method_and_uri.contains("resourceVersion=9"), "{}", resumed.method_and_uri);
        assert!(clock.now().since(spoke) >= KubeTimeouts::default().watch_idle);
        drop(feed);
    }

    #[tokio::test]
    async fn events_on_a_live_stream_put_its_end_off() {
        let mut world = watching();
        world.call().await.answer(200, &list(7, "", &[]));
        world.names().await;
        let feed = world.call().await.answer_stream();
        for version in 10..20 {
            feed.send_event(&bookmark(version));
            // Advance the clock by 80 s. The watch allows 90 s of silence.
            for _ in 0..80 {
                tokio::task::yield_now().await;
                world.hand.advance(Duration::from_secs(1));
            }
            assert!(world.asked.try_recv().is_err(), "the watch gave up at version {version}");
        }
    }
}
