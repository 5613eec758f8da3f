//! Proves that the latest snapshot contains all watch data that has reached this machine.
//!
//! The agent decides once for each connection which pod has the connection's source address. For the decision it uses the
//! *view*, the latest snapshot of the node's pods. The API server reports a pod's end before the next pod at the same address
//! can run. But on a machine that is short of CPU, the agent can leave this report unread in the socket for a while. If a
//! traffic thread then accepted the next pod's first connection, the next pod would get the previous pod's credentials. So the
//! agent decides only with a *current* view: a view that contains everything that had reached this machine shortly before. The
//! watch thread proves that the view is current, and stores the time of the last proof as one number. A traffic thread reads
//! this number. If the last proof is older than [`MAX_PROOF_AGE`], the traffic thread requests a new proof. Meanwhile the
//! client's request waits. A request waits in the same way while the agent does not know the client's pod. While connections
//! arrive, the watch thread renews the proof before the proof is too old.
//!
//! The proof depends on tokio's current-thread runtime. The watch, its connection, the snapshot writer and the prover share one
//! such runtime ([`crate::watch_thread`]). A task that yields runs again only after the runtime has asked the kernel for input.
//! Suppose that the prover yields a few times, and that meanwhile the watch reads nothing and the writer has nothing to
//! publish. Then the runtime has read everything that had arrived before the first yield.
//!
//! While the watch has no connection, it receives nothing, so its silence proves nothing. The view does not count as current
//! for the time [`RESUMING`] after a connection has ended. After that time, the agent assumes an outage of the API server and
//! serves the pods of the last view. This is safe: during an outage, the kubelet does not receive new pods from the API server,
//! so it starts no pods on the node. The agent also assumes an outage if the API server responds with 5xx. An API server that
//! refuses the agent (permission, token, rate limit) still serves the kubelet, and the kubelet starts pods. So the view is not
//! current until the API server accepts the agent's requests again.
//!
//! A list shows the pods at one moment, and only a watch that starts at that moment reports later changes. So the view is not
//! current until the API server has opened the first watch. The view is also not current while the watch restarts because the
//! API server no longer has the watch's position (a resource version). In this case the agent does not assume an outage. The
//! API server reported the lost position, so it responds, and the kubelet can get new pods from it. If the API server later
//! stops responding, the agent assumes an outage.
//!
//! The proof does not cover data that the API server has not sent yet; see THREAT-MODEL.md, "A limit of `source-ip`".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use seawall_core::{Clock, Moment};
use tokio::sync::Notify;

/// The maximum age of a proof.
///
/// The value is far below the time between a pod's end and the first process of the next pod at the same address. Between these
/// two events, the node sets up the network namespace, the pod's network and the container. This setup takes hundreds of
/// milliseconds. The value is far above the time that a proof takes. One proof serves all connections of the next 20 ms, so a
/// storm of new connections costs about 100 proofs per second ([`RENEWAL`]).
pub(crate) const MAX_PROOF_AGE: Duration = Duration::from_millis(20);

/// The interval at which the prover renews the proof while connections arrive. The interval is half of [`MAX_PROOF_AGE`]. The
/// prover has the other half to finish a new proof, so connections rarely wait for a proof. Each wait costs two thread
/// switches. On a busy machine, these switches cause most of the latency of the slowest connections of a pod with few requests.
const RENEWAL: Duration = Duration::from_millis(10);

/// The prover stops after this many renewals if no connection checks the proof meanwhile. These renewals take 0.5 s.
const UNSEEN: u32 = 50;

/// The agent assumes an outage if the watch has not resumed this long after the end of its last stream. The watch makes its
/// first two attempts within 0.1 s and 0.3 s. A client's request may wait longer than this time. So an outage does not make the
/// agent refuse the requests of known pods.
const RESUMING: Duration = Duration::from_millis(300);

/// The number of times that the prover yields in one check. During the first yield, the runtime asks the kernel for input.
/// During the second yield, the input passes through the connection, the watch and the writer. The third yield is a reserve.
const ROUNDS: usize = 3;

/// Holds the time of the last proof, and the signals for the next proof.
#[derive(Debug, Default)]
pub(crate) struct ViewFreshness {
    /// The start time of the last proof, in nanoseconds; 0 means that there is no proof yet.
    proven: AtomicU64,
    /// True if a connection has checked the proof since the prover last read this flag.
    looked: AtomicBool,
    wanted: Notify,
    renewed: Notify,
    /// The time at which the last stream of the watch ended, in nanoseconds; or [`OPEN`], [`FIRST`] or [`ANEW`].
    unwatched: AtomicU64,
    /// Signals a change of `unwatched`.
    rewatched: Notify,
    /// The number of stream pieces that the watch has read. A large event has many pieces and takes effect with its last piece.
    heard: AtomicU64,
    /// The number of changes that the watch has sent to the writer.
    told: AtomicU64,
    published: AtomicU64,
    /// Signals that the writer has published.
    publication: Notify,
}

/// The state in which no stream has ever been open.
const FIRST: u64 = 0;
/// The state after the API server lost the watch's position or refused the agent. The API server still responds.
const ANEW: u64 = 1;
/// The state in which a stream is open.
const OPEN: u64 = 2;

impl ViewFreshness {
    /// True if, at `then`, the view contained everything that had arrived shortly before. If the result is false, the function
    /// also requests a new proof.
    pub(crate) fn is_fresh_at(&self, then: Moment) -> bool {
        if !self.looked.load(Ordering::Relaxed) {
            self.looked.store(true, Ordering::Relaxed);
        }
        let proven = self.proven.load(Ordering::Acquire);
        let is_proven = proven != 0 && then.since(Moment::from_nanos(proven)) <= MAX_PROOF_AGE;
        if !is_proven {
            self.wanted.notify_one();
        }
        is_proven
    }

    /// Waits until [`Self::is_fresh_at`] is true for the time of the call. The proof can be older than [`MAX_PROOF_AGE`] when
    /// this function returns. If the function failed in this case, no connection would get a response on a machine with long
    /// scheduling delays.
    pub(crate) async fn wait_until_fresh(&self, clock: &Clock) {
        let since = clock.now();
        loop {
            let renewed = self.renewed.notified();
            if self.is_fresh_at(since) {
                return;
            }
            renewed.await;
        }
    }

    /// Records that a stream of the watch is open.
    pub(crate) fn record_stream_opened(&self) {
        self.unwatched.store(OPEN, Ordering::Release);
        self.rewatched.notify_one();
    }

    /// Records the time at which the stream ended. Failed attempts to open the next stream do not change this time.
    pub(crate) fn record_stream_ended(&self, now: Moment) {
        self.turn(OPEN, now.as_nanos().max(OPEN + 1));
    }

    /// Records that the API server responds but sends no changes: the watch must restart, or the server refuses the agent.
    pub(crate) fn record_changes_unavailable(&self) {
        let _ = self
            .unwatched
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |seen| (seen != FIRST).then_some(ANEW));
    }

    /// Records that the API server does not respond.
    pub(crate) fn record_unreachable(&self, now: Moment) {
        self.turn(ANEW, now.as_nanos().max(OPEN + 1));
    }

    fn turn(&self, from: u64, to: u64) {
        let _ = self.unwatched.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        self.rewatched.notify_one();
    }

    /// Records that a piece of the stream has been read.
    pub(crate) fn record_stream_chunk_read(&self) {
        self.heard.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that the watch is about to send a change to the writer.
    pub(crate) fn record_change_before_send(&self) {
        self.told.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that the writer has published this many more changes.
    pub(crate) fn add_published_changes(&self, changes: u64) {
        self.published.fetch_add(changes, Ordering::AcqRel);
        self.publication.notify_one();
    }

    /// Waits until a stream is open or the agent assumes an outage.
    async fn watched(&self, clock: &Clock) {
        loop {
            let rewatched = self.rewatched.notified();
            match self.unwatched.load(Ordering::Acquire) {
                OPEN => return,
                FIRST | ANEW => rewatched.await,
                since => {
                    let outage = Moment::from_nanos(since) + RESUMING;
                    if clock.now() >= outage {
                        return;
                    }
                    tokio::select! { () = rewatched => {}, () = clock.sleep_until(outage) => {} }
                }
            }
        }
    }

    /// Calls [`Self::drain`] and returns the time at which the drain began. All data that had arrived before this time is then
    /// published. If the watch's stream ends or opens meanwhile, the function starts again, because a watch without a stream
    /// receives nothing.
    async fn drained_in_one_watch(&self, clock: &Clock) -> Moment {
        loop {
            self.watched(clock).await;
            let watch = self.unwatched.load(Ordering::Acquire);
            let began = clock.now();
            self.drain().await;
            if self.unwatched.load(Ordering::Acquire) == watch {
                return began;
            }
        }
    }

    async fn renew(&self, clock: &Clock) {
        let began = self.drained_in_one_watch(clock).await;
        self.proven.store(began.as_nanos().max(1), Ordering::Release);
        self.renewed.notify_waiters();
    }

    /// Waits until everything that had arrived at the time of the call is read and published.
    async fn drain(&self) {
        loop {
            let (heard, before) = (self.heard.load(Ordering::Acquire), self.told.load(Ordering::Acquire));
            for _ in 0..ROUNDS {
                tokio::task::yield_now().await;
            }
            if self.heard.load(Ordering::Acquire) != heard || self.told.load(Ordering::Acquire) != before {
                continue;
            }
            if self.published.load(Ordering::Acquire) == before {
                return;
            }
            // Wait until the writer publishes. If the writer has published since the check above, the stored permit ends this
            // wait at once.
            self.publication.notified().await;
        }
    }
}

/// Makes a proof on request, and renews the proof while connections check it. Never returns. The function must run on the
/// runtime of the watch and the writer; [`crate::watch_thread`] ensures this.
pub(crate) async fn run_freshness_prover(current: Arc<ViewFreshness>, clock: Clock) {
    loop {
        current.wanted.notified().await;
        let mut unseen = 0;
        while unseen < UNSEEN {
            current.renew(&clock).await;
            tokio::select! { () = current.wanted.notified() => {}, () = clock.sleep(RENEWAL) => {} }
            unseen = if current.looked.swap(false, Ordering::Relaxed) { 0 } else { unseen + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use seawall_core::ManualClock;
    use serde_json::{Value, json};
    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;
    use crate::cluster_view::ClusterView;
    use crate::fake_api_server::{FakeCall, FakeWatchStream, client_of_fake_server};
    use crate::object::KeptAnnotationKeys;
    use crate::related_objects::SelectedAnnotationKeys;
    use crate::snapshot_writer::SnapshotWriter;
    use crate::watch_thread::new_pod_watch;
    use crate::{NodeName, NodePods};

    /// The pods' watch, the writer and the prover on a runtime like the agent's.
    struct World {
        pods: NodePods,
        asked: UnboundedReceiver<FakeCall>,
        hand: ManualClock,
    }

    const ADDRESS: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 7));

    fn world() -> World {
        let (clock, hand) = Clock::manual();
        let (link, asked) = client_of_fake_server(clock.clone());
        let shared = Arc::new(ClusterView::new(&SelectedAnnotationKeys::default()));
        let (writer, updates) =
            SnapshotWriter::new(link.clone(), SelectedAnnotationKeys::default(), shared.clone());
        tokio::spawn(writer.run());
        let node = NodeName::parse("node1").unwrap();
        tokio::spawn(new_pod_watch(&node, KeptAnnotationKeys::default(), &link, &shared, updates).run());
        tokio::spawn(run_freshness_prover(shared.pod_watch.freshness.clone(), clock.clone()));
        World { pods: NodePods { shared, clock }, asked, hand }
    }

    impl World {
        /// Answers the list with one pod, opens the watch, and waits until the view shows the pod.
        async fn with_one_pod(&mut self) -> FakeWatchStream {
            let feed = self.asked.recv().await.unwrap().answer_streamed_list(7, &[pod("old", ADDRESS)]);
            self.pods.wait_for_newer(0).await;
            feed
        }

        /// Responds to the next call with this status.
        async fn answer(&mut self, status: u16) {
            let asked = self.asked.recv().await.unwrap();
            asked.answer(status, &json!({"kind": "Status", "status": "Failure", "code": status}));
        }

        fn name(&self) -> Option<String> {
            let snapshot = self.pods.snapshot();
            snapshot.pod_at(ADDRESS).ok().map(|record| record.pod.name.to_string())
        }
    }

    fn pod(name: &str, address: std::net::IpAddr) -> Value {
        json!({"metadata": {"name": name, "namespace": "reef", "uid": name, "resourceVersion": "8"},
               "spec": {"serviceAccountName": name}, "status": {"phase": "Running", "podIP": address}})
    }

    fn event(kind: &str, object: &Value) -> Value {
        json!({"type": kind, "object": object})
    }

    /// The agent lacks CPU: the API server's report lies unread while the next pod at the address connects.
    #[tokio::test]
    async fn a_reused_address_is_not_the_last_pods_though_the_word_of_its_end_lies_unread() {
        let mut world = world();
        let feed = world.with_one_pod().await;
        world.pods.wait_until_current().await;
        assert_eq!(world.name().unwrap(), "old");

        world.hand.advance(MAX_PROOF_AGE + Duration::from_millis(1));
        feed.send_event(&event("DELETED", &pod("old", ADDRESS)));
        feed.send_event(&event("ADDED", &pod("new", ADDRESS)));
        // The thread that accepts the new pod's connection runs before the thread that reads the watch.
        assert_eq!(world.name().unwrap(), "old", "the test needs an outdated view");
        assert!(!world.pods.is_current(), "the view must not count as current");
        world.pods.wait_until_current().await;
        assert_eq!(world.name().unwrap(), "new");
        assert!(world.pods.is_current());
    }

    #[tokio::test]
    async fn while_connections_come_none_waits_for_a_proof_and_without_them_none_is_made() {
        let mut world = world();
        let _feed = world.with_one_pod().await;
        world.pods.wait_until_current().await;
        let step = async || {
            world.hand.advance(Duration::from_millis(5));
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        };
        for millis in (0..2000).step_by(5) {
            step().await;
            assert!(millis % 100 != 0 || world.pods.is_current(), "after {millis} ms");
        }
        for _ in 0..200 {
            step().await;
        }
        assert!(!world.pods.is_current(), "renewals stop when no connection checks the proof for a second");
    }

    /// On a busy machine, the agent once requested proofs again and again until the client gave up.
    #[tokio::test]
    async fn a_proof_that_is_looked_at_late_is_still_one() {
        let mut world = world();
        let _feed = world.with_one_pod().await;
        world.hand.advance(MAX_PROOF_AGE * 10);
        let mut current = std::pin::pin!(world.pods.wait_until_current());
        assert!(is_pending(current.as_mut()).await);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        world.hand.advance(MAX_PROOF_AGE * 10);
        assert!(!is_pending(current.as_mut()).await);
    }

    #[tokio::test]
    async fn a_storm_that_lies_unread_is_read_to_its_end() {
        let mut world = world();
        let feed = world.with_one_pod().await;
        world.hand.advance(MAX_PROOF_AGE + Duration::from_millis(1));
        for n in 0..2000u16 {
            let [high, low] = n.to_be_bytes();
            let address = std::net::Ipv4Addr::new(10, 245, high, low).into();
            feed.send_event(&event("ADDED", &pod(&format!("pod-{n}"), address)));
        }
        feed.send_event(&event("DELETED", &pod("old", ADDRESS)));
        world.pods.wait_until_current().await;
        assert_eq!(world.name(), None);
        assert_eq!(world.pods.snapshot().pods().len(), 2000);
    }

    /// The watch reads a large event in several pieces. The test sends one event in 100 pieces.
    #[tokio::test]
    async fn an_event_that_has_come_in_part_is_read_to_its_end() {
        let mut world = world();
        let feed = world.with_one_pod().await;
        world.pods.wait_until_current().await;
        world.hand.advance(MAX_PROOF_AGE + Duration::from_millis(1));
        feed.send_event_in_pieces(&event("DELETED", &pod("old", ADDRESS)), 100);
        world.pods.wait_until_current().await;
        assert_eq!(world.name(), None);
    }

    #[tokio::test]
    async fn between_two_watches_nothing_is_current_and_in_an_outage_what_is_known_is_served() {
        let mut world = world();
        let feed = world.with_one_pod().await;
        feed.send_event(&event("MODIFIED", &pod("old", ADDRESS)));
        world.pods.wait_until_current().await;
        drop(feed);
        // The API server ends each watch after a few minutes. The next stream reports the changes since then.
        let next = world.asked.recv().await.unwrap();
        world.hand.advance(MAX_PROOF_AGE + Duration::from_millis(1));
        assert!(!world.pods.is_current());
        let feed = next.answer_stream();
        feed.send_event(&event("DELETED", &pod("old", ADDRESS)));
        tokio::select! { () = world.pods.wait_until_current() => {}, () = advancing(&world.hand) => {} }
        assert_eq!(world.name(), None);

        // The outage lasts longer than [`RESUMING`].
        feed.send_event(&event("ADDED", &pod("old", ADDRESS)));
        tokio::select! { () = current_and_named(&world) => {}, () = advancing(&world.hand) => {} }
        drop(feed);
        while let Ok(asked) = world.asked.try_recv() {
            drop(asked);
        }
        tokio::select! { () = world.pods.wait_until_current() => {}, () = advancing(&world.hand) => {} }
        assert_eq!(world.name().unwrap(), "old");
    }

    /// A list shows the pods at the time of the list's response. Only a watch reports later changes.
    #[tokio::test]
    async fn before_the_first_watch_is_open_nothing_is_current_however_long_that_takes() {
        let mut world = world();
        // With pages, the view exists before the watch.
        world.answer(422).await;
        let list = json!({"metadata": {"resourceVersion": "7"}, "items": [pod("old", ADDRESS)]});
        world.asked.recv().await.unwrap().answer(200, &list);
        world.pods.wait_for_newer(0).await;
        for _ in 0..3 {
            let unanswered = world.asked.recv().await.unwrap();
            assert!(is_never(world.pods.wait_until_current(), &world.hand).await);
            drop(unanswered);
            tokio::select! { () = advancing(&world.hand) => {}, () = until_asked(&world.asked) => {} }
        }
        assert_eq!(world.name().unwrap(), "old", "the view exists but must not decide connections");
        let _feed = world.asked.recv().await.unwrap().answer_stream();
        tokio::select! { () = world.pods.wait_until_current() => {}, () = advancing(&world.hand) => {} }
        assert!(world.pods.is_current());
    }

    /// The stream of a streamed list is open before the list is whole.
    #[tokio::test]
    async fn while_a_streamed_list_is_not_whole_nothing_is_current() {
        let mut world = world();
        let feed = world.with_one_pod().await;
        world.pods.wait_until_current().await;
        feed.send_event(&event("ERROR", &json!({"kind": "Status", "status": "Failure", "code": 410})));
        tokio::select! { () = advancing(&world.hand) => {}, () = until_asked(&world.asked) => {} }
        let anew = world.asked.recv().await.unwrap().answer_stream();
        anew.send_event(&event("ADDED", &pod("new", ADDRESS)));
        world.hand.advance(MAX_PROOF_AGE + Duration::from_millis(1));
        assert!(is_never(world.pods.wait_until_current(), &world.hand).await);
        assert_eq!(world.name().unwrap(), "old");
        let end = json!({"resourceVersion": "30", "annotations": {"k8s.io/initial-events-end": "true"}});
        anew.send_event(&event("BOOKMARK", &json!({ "metadata": end })));
        world.pods.wait_until_current().await;
        assert_eq!(world.name().unwrap(), "new");
    }

    /// An API server that answers serves the kubelet, too, so the agent must not assume an outage.
    #[tokio::test]
    async fn a_streamed_list_that_ends_early_or_hangs_is_no_outage() {
        for ends_early in [true, false] {
            let mut world = world();
            let feed = world.with_one_pod().await;
            world.pods.wait_until_current().await;
            feed.send_event(&event("ERROR", &json!({"kind": "Status", "status": "Failure", "code": 410})));
            tokio::select! { () = advancing(&world.hand) => {}, () = until_asked(&world.asked) => {} }
            // The server is away for one try.
            drop(world.asked.recv().await.unwrap());
            tokio::select! { () = advancing(&world.hand) => {}, () = until_asked(&world.asked) => {} }
            let anew = world.asked.recv().await.unwrap().answer_stream();
            anew.send_event(&event("ADDED", &pod("new", ADDRESS)));
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let _open = (!ends_early).then_some(anew);
            world.hand.advance(MAX_PROOF_AGE + Duration::from_millis(1));
            assert!(is_never(world.pods.wait_until_current(), &world.hand).await, "ends early: {ends_early}");
        }
    }

    #[tokio::test]
    async fn while_the_watch_begins_anew_nothing_is_current_unless_the_api_server_falls_silent() {
        let mut world = world();
        let feed = world.with_one_pod().await;
        world.pods.wait_until_current().await;
        feed.send_event(&event("ERROR", &json!({"kind": "Status", "status": "Failure", "code": 410})));
        tokio::select! { () = advancing(&world.hand) => {}, () = until_asked(&world.asked) => {} }
        let anew = world.asked.recv().await.unwrap();
        assert!(anew.method_and_uri.contains("sendInitialEvents=true"), "{}", anew.method_and_uri);
        world.hand.advance(MAX_PROOF_AGE + Duration::from_millis(1));
        assert!(
            is_never(world.pods.wait_until_current(), &world.hand).await,
            "the view is not current while the list is pending"
        );
        drop(anew);
        tokio::select! { () = world.pods.wait_until_current() => {}, () = advancing(&world.hand) => {} }
        assert_eq!(world.name().unwrap(), "old");
    }

    #[tokio::test]
    async fn while_the_api_server_refuses_the_agent_alone_nothing_is_current() {
        for status in [401, 403, 429, 400] {
            let mut world = world();
            let feed = world.with_one_pod().await;
            feed.send_event(&event("MODIFIED", &pod("old", ADDRESS)));
            world.pods.wait_until_current().await;
            drop(feed);
            world.answer(status).await;
            world.hand.advance(MAX_PROOF_AGE + Duration::from_millis(1));
            assert!(
                is_never(world.pods.wait_until_current(), &world.hand).await,
                "a server that refuses the agent still serves the kubelet: {status}"
            );
        }
    }

    #[tokio::test]
    async fn an_api_server_that_fails_is_away_and_what_is_known_is_served() {
        let mut world = world();
        let feed = world.with_one_pod().await;
        feed.send_event(&event("MODIFIED", &pod("old", ADDRESS)));
        world.pods.wait_until_current().await;
        drop(feed);
        world.answer(503).await;
        tokio::select! { () = world.pods.wait_until_current() => {}, () = advancing(&world.hand) => {} }
        assert_eq!(world.name().unwrap(), "old");
    }

    /// True if the future is still pending after ten times [`RESUMING`]. This time is shorter than the timeout of each request to
    /// the API server.
    async fn is_never(future: impl Future<Output = ()>, hand: &ManualClock) -> bool {
        let mut future = std::pin::pin!(future);
        for _ in 0..RESUMING.as_millis() {
            if !is_pending(future.as_mut()).await {
                return false;
            }
            tokio::task::yield_now().await;
            hand.advance(Duration::from_millis(10));
        }
        true
    }

    async fn until_asked(asked: &UnboundedReceiver<FakeCall>) {
        while asked.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_end_of_the_watch_that_lies_unread_is_no_proof() {
        let mut world = world();
        let feed = world.with_one_pod().await;
        world.pods.wait_until_current().await;
        world.hand.advance(MAX_PROOF_AGE + Duration::from_millis(1));
        // The prover runs before the watch.
        assert!(!world.pods.is_current());
        feed.send_event(&event("MODIFIED", &pod("old", ADDRESS)));
        drop(feed);
        let mut current = std::pin::pin!(world.pods.wait_until_current());
        for _ in 0..1000 {
            assert!(is_pending(current.as_mut()).await);
            tokio::task::yield_now().await;
        }
    }

    /// Polls the future once. Returns `true` if the future is pending.
    async fn is_pending(mut future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_pending()))
            .await
    }

    async fn current_and_named(world: &World) {
        while world.name().is_none() {
            world.pods.wait_for_newer(world.pods.snapshot().version()).await;
        }
    }

    /// Advances the clock without end, because the prover waits on the clock.
    async fn advancing(hand: &ManualClock) {
        loop {
            hand.advance(Duration::from_millis(5));
            tokio::task::yield_now().await;
        }
    }
}
