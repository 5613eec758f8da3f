//! Posts events on pods, so that `kubectl describe pod` shows why a pod got no credentials. Posts events about the agent itself
//! on the agent's own pod or, if that pod is unknown, on the node.
//!
//! A pod can send thousands of requests per second that the agent refuses. So the agent posts at most one event per pod and
//! reason in 600 s, and limits the rate for the whole node. The agent remembers a limited number of events and does not retry a
//! failed post. A call that reports an event never blocks: it puts the event into a short queue, or drops the event if the
//! queue is full.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_core::kubernetes_events::{EventBackend, EventReason, PodEventRecorder};
use seawall_core::{Gcra, Moment, Pod};
use seawall_kube::{KubeError, TimedKubeClient, request};
use serde::de::IgnoredAny;
use tokio::sync::mpsc;
use tracing::warn;

use crate::index::PodRecord;

/// The minimum time between two events with the same pod and reason.
const QUIET: Duration = Duration::from_secs(600);

/// The maximum rate of events for the whole node: sustained events per second, and burst size.
const RATE: (u32, u32) = (1, 10);

/// The maximum number of remembered events. A full node has a few hundred pods.
const REMEMBERED: usize = 1024;

/// The maximum number of queued events.
const QUEUE: usize = 32;

/// The maximum message length, in characters. The API server accepts a note of at most 1024 bytes (events.k8s.io/v1).
const LONGEST: usize = 500;

/// Posts refusals as Kubernetes events. The reporter is cheap to clone and usable from any thread.
#[derive(Clone, Debug)]
pub struct EventReporter(Arc<Inner>);

/// A handle that posts events on one pod.
#[derive(Debug)]
struct PodEventHandle {
    reporter: EventReporter,
    record: Arc<PodRecord>,
}

impl EventBackend for PodEventHandle {
    fn record(&self, complaint: EventReason, message: &str) -> bool {
        self.reporter.report(&self.record, complaint, message)
    }
}

#[derive(Debug)]
struct Inner {
    link: TimedKubeClient,
    queue: mpsc::Sender<QueuedEvent>,
    rate: Gcra,
    said: Mutex<HashMap<(Arc<str>, EventReason), Moment>>,
    posted: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct QueuedEvent {
    /// The pod to which the event belongs; `None` for the node.
    pod: Option<Pod>,
    complaint: EventReason,
    message: String,
}

impl EventReporter {
    pub(crate) fn new(
        link: TimedKubeClient,
        node: String,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, reports) = mpsc::channel(QUEUE);
        let inner = Arc::new(Inner {
            link,
            queue,
            rate: Gcra::new(RATE.0, RATE.1),
            said: Mutex::default(),
            posted: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        // The poster holds only a weak reference to `Inner`. When the last reporter is dropped, the queue closes and the poster
        // ends.
        let poster = Poster { node, link: inner.link.clone(), tally: Arc::downgrade(&inner) };
        (Self(inner), poster.run(reports))
    }

    /// Returns the recorder for events on this pod.
    pub fn for_pod(&self, record: Arc<PodRecord>) -> PodEventRecorder {
        PodEventRecorder::with_backend(Arc::new(PodEventHandle { reporter: self.clone(), record }))
    }

    /// Reports that the agent refused a pod's request, unless the same refusal was reported within the last 600 s. Returns at
    /// once.
    ///
    /// Returns `true` if the event is queued or was reported recently. Returns `false` if the event exceeds the rate limit or
    /// the limit of remembered events, or if the queue is full. The message is for the pod's owner: it says what to fix, and it
    /// mentions nothing internal to the agent.
    pub fn report(&self, record: &PodRecord, complaint: EventReason, message: &str) -> bool {
        match self.0.admit(&record.pod, complaint) {
            Admission::SaidLately => return true,
            Admission::NoRoom => return false,
            Admission::News => {}
        }
        let is_queued = self.0.post(Some(record.pod.clone()), complaint, message);
        if !is_queued {
            self.0.forget(&record.pod, complaint);
        }
        is_queued
    }

    /// Reports an event on the agent's own pod or, if that pod is unknown, on the node. Returns at once.
    ///
    /// Returns `true` if the event is queued. Returns `false` if the event exceeds the rate limit or if the queue is full. The
    /// calling code must suppress repetitions.
    pub fn report_on_agent(&self, own: Option<&PodRecord>, complaint: EventReason, message: &str) -> bool {
        if self.0.rate.take(self.0.link.clock.now()).is_err() {
            return false;
        }
        self.0.post(own.map(|record| record.pod.clone()), complaint, message)
    }

    /// Returns the number of posted events and the number of dropped events. The agent drops an event if the event exceeds a
    /// limit (rate, remembered events, queue length) or if the post fails. A skipped repetition counts in neither number.
    pub fn posted_and_dropped_counts(&self) -> (u64, u64) {
        (self.0.posted.load(Ordering::Relaxed), self.0.dropped.load(Ordering::Relaxed))
    }
}

/// The decision about an event: post it, skip a repetition, or drop it because of a limit.
enum Admission {
    News,
    SaidLately,
    NoRoom,
}

impl Inner {
    fn post(&self, pod: Option<Pod>, complaint: EventReason, message: &str) -> bool {
        let message = message.chars().take(LONGEST).collect();
        let is_queued = self.queue.try_send(QueuedEvent { pod, complaint, message }).is_ok();
        if !is_queued {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        is_queued
    }

    fn admit(&self, pod: &Pod, complaint: EventReason) -> Admission {
        let now = self.link.clock.now();
        let mut said = self.said();
        let key = (pod.uid.0.clone(), complaint);
        if said.get(&key).is_some_and(|when| now.since(*when) < QUIET) {
            return Admission::SaidLately;
        }
        if said.len() >= REMEMBERED {
            said.retain(|_, when| now.since(*when) < QUIET);
        }
        if said.len() >= REMEMBERED || self.rate.take(now).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return Admission::NoRoom;
        }
        said.insert(key, now);
        Admission::News
    }

    fn forget(&self, pod: &Pod, complaint: EventReason) {
        self.said().remove(&(pod.uid.0.clone(), complaint));
    }

    /// Locks the map of reported events. The map needs a lock because every traffic thread reports refusals. Callers hold the
    /// lock only for a few operations on a small map.
    fn said(&self) -> MutexGuard<'_, HashMap<(Arc<str>, EventReason), Moment>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Poster {
    node: String,
    link: TimedKubeClient,
    tally: std::sync::Weak<Inner>,
}

impl Poster {
    async fn run(self, mut reports: mpsc::Receiver<QueuedEvent>) {
        while let Some(report) = reports.recv().await {
            let posted = self.post(&report).await;
            if let Err(failure) = &posted {
                // An operator who misses an event finds the reason in the log. The rate limit of events also limits these
                // warnings.
                warn!(reason = %failure, complaint = report.complaint.as_str(), "cannot post a Kubernetes event; the agent drops it");
            }
            let Some(tally) = self.tally.upgrade() else { return };
            let counter = if posted.is_ok() { &tally.posted } else { &tally.dropped };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn post(&self, report: &QueuedEvent) -> Result<(), KubeError> {
        let request = request::build_create(&path(report), &self.event(report));
        self.link.client.call::<IgnoredAny>(request, self.link.timeouts.response).await.map(drop)
    }

    /// Builds the Event object. Source: Kubernetes API reference, Event v1 core.
    fn event(&self, report: &QueuedEvent) -> serde_json::Value {
        let QueuedEvent { pod, complaint, message } = report;
        let node = &*self.node;
        // In an event about a node, kubelets write the node's name in place of its UID, and tools expect the name there.
        let (kind, namespace, name, uid) = pod.as_ref().map_or(("Node", None, node, node), |pod| {
            ("Pod", Some(&*pod.service_account.namespace), &*pod.name, &*pod.uid.0)
        });
        let now = jiff::Timestamp::try_from(self.link.clock.wall_time()).unwrap_or_default();
        // Kubernetes' `metav1.Time` has no fractions of a second.
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": format!("{name}."), "namespace": namespace.unwrap_or(OF_NODES)},
            "involvedObject": {
                "apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name, "uid": uid,
            },
            "type": "Warning",
            "reason": complaint.as_str(),
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": AGENT, "host": self.node},
            "reportingComponent": AGENT,
            "reportingInstance": self.node,
        })
    }
}

fn path(report: &QueuedEvent) -> String {
    let namespace = report.pod.as_ref().map_or(OF_NODES, |pod| &*pod.service_account.namespace);
    format!("/api/v1/namespaces/{namespace}/events")
}

/// The namespace for events on objects without a namespace (kubernetes, pkg/apis/core/validation, `ValidateEventCreate`).
const OF_NODES: &str = "default";

/// The component name under which the agent posts events.
const AGENT: &str = "seawall-agent";

#[cfg(test)]
mod tests {
    use seawall_core::annotations::{Annotations, RelatedAnnotations};
    use seawall_core::credential_variables::CredentialVariables;
    use seawall_core::{Clock, PodAnnotations, PodUid, ServiceAccount};

    use super::*;
    use crate::fake_api_server::client_of_fake_server;
    use crate::index::PodRecord;

    fn record(uid: usize) -> PodRecord {
        let service_account = ServiceAccount { namespace: "reef".into(), name: "coral".into() };
        PodRecord {
            pod: Pod { uid: PodUid(format!("uid-{uid}").into()), name: "web-0".into(), service_account },
            addresses: Box::default(),
            uses_host_network: false,
            running_since_seconds: None,
            credential_variables: CredentialVariables::default(),
            is_terminating: false,
            annotations: PodAnnotations {
                own_annotations: Annotations::default(),
                service_account: RelatedAnnotations::NotRead,
                namespace: RelatedAnnotations::NotRead,
            },
            token_cache: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_storm_of_refusals_is_one_event_and_said_again_much_later() {
        let (clock, hand) = Clock::manual();
        let (link, mut asked) = client_of_fake_server(clock);
        let (reporter, poster) = EventReporter::new(link, "node1".into());
        tokio::spawn(poster);
        for expected in 1..=2 {
            for _ in 0..10_000 {
                reporter.report(&record(1), EventReason::RefusedByPolicy, "not in the list");
            }
            let event = asked.recv().await.unwrap();
            assert_eq!(event.method_and_uri, "POST /api/v1/namespaces/reef/events");
            assert_eq!(event.body["involvedObject"]["uid"], "uid-1");
            assert_eq!(event.body["firstTimestamp"].as_str().unwrap().len(), "2026-01-01T00:00:00Z".len());
            event.answer(201, &serde_json::json!({}));
            while reporter.posted_and_dropped_counts() != (expected, 0) {
                tokio::task::yield_now().await;
            }
            assert!(asked.try_recv().is_err());
            hand.advance(QUIET);
        }
    }

    #[tokio::test]
    async fn what_concerns_the_agent_is_told_on_its_pod_or_on_the_node() {
        let (clock, _hand) = Clock::manual();
        let (link, mut asked) = client_of_fake_server(clock);
        let (reporter, poster) = EventReporter::new(link, "node1".into());
        tokio::spawn(poster);
        let own = record(7);
        for (pod, namespace, kind, uid) in
            [(Some(&own), "reef", "Pod", "uid-7"), (None, "default", "Node", "node1")]
        {
            assert!(reporter.report_on_agent(pod, EventReason::ConfigReloadFailed, "no"));
            let event = asked.recv().await.unwrap();
            assert_eq!(event.method_and_uri, format!("POST /api/v1/namespaces/{namespace}/events"));
            let object = &event.body["involvedObject"];
            assert_eq!((&object["kind"], &object["uid"]), (&kind.into(), &uid.into()));
            assert_eq!(event.body["reason"], "ConfigReloadFailed");
            event.answer(201, &serde_json::json!({}));
        }
        let is_said = |_: &u32| reporter.report_on_agent(None, EventReason::ConfigReloadFailed, "no");
        assert!((0..100).filter(is_said).count() <= 8, "within the node's rate");
    }

    #[tokio::test]
    async fn many_pods_share_one_rate_and_one_memory() {
        let (clock, hand) = Clock::manual();
        let (link, _asked) = client_of_fake_server(clock);
        let (reporter, _poster) = EventReporter::new(link, "node1".into());
        for uid in 0..10_000 {
            let is_said = reporter.report(&record(uid), EventReason::RefusedByCloud, "no");
            assert!(is_said || uid >= 10, "there is room for {uid}");
            hand.advance(Duration::from_millis(100));
        }
        assert!(reporter.0.said.lock().unwrap().len() <= REMEMBERED);
        let (_, dropped) = reporter.posted_and_dropped_counts();
        assert!(dropped >= 8_990, "{dropped}");
        assert!(
            !reporter.report(&record(0), EventReason::RenewalFailing, "no"),
            "the caller learns that the event was dropped"
        );
    }

    #[tokio::test]
    async fn an_event_that_is_not_taken_is_not_tried_again() {
        let (clock, _hand) = Clock::manual();
        let (link, mut asked) = client_of_fake_server(clock);
        let (reporter, poster) = EventReporter::new(link, "node1".into());
        tokio::spawn(poster);
        reporter.report(&record(1), EventReason::TokenFailed, &"x".repeat(100_000));
        let event = asked.recv().await.unwrap();
        assert_eq!(event.body["message"].as_str().unwrap().len(), LONGEST);
        event.answer(403, &serde_json::json!({"kind": "Status", "status": "Failure", "code": 403}));
        while reporter.posted_and_dropped_counts() != (0, 1) {
            tokio::task::yield_now().await;
        }
        assert!(asked.try_recv().is_err());
    }

    /// The agent once logged a dropped event at `debug` only, so an operator found no reason for a missing event.
    #[tokio::test]
    async fn a_dropped_event_is_a_warning() {
        let said = tempfile::NamedTempFile::new().unwrap();
        let writer = Mutex::new(said.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(writer);
        let _heard = tracing::subscriber::set_default(subscriber.finish());
        let (link, mut asked) = client_of_fake_server(Clock::manual().0);
        let (reporter, poster) = EventReporter::new(link, "node1".into());
        tokio::spawn(poster);
        reporter.report(&record(1), EventReason::TokenFailed, "no");
        let refusal =
            serde_json::json!({"kind": "Status", "status": "Failure", "code": 403, "message": "forbidden"});
        asked.recv().await.unwrap().answer(403, &refusal);
        while reporter.posted_and_dropped_counts() != (0, 1) {
            tokio::task::yield_now().await;
        }
        let said = std::fs::read_to_string(said.path()).unwrap();
        assert!(
            said.contains("WARN")
                && said.contains("cannot post a Kubernetes event; the agent drops it")
                && said.contains("forbidden"),
            "{said}"
        );
    }
}
