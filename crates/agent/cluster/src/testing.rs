//! Provides tests with a view of pods that the test itself writes. The client sends no request, and no watch runs.

#![expect(clippy::unwrap_used, reason = "for tests alone")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use seawall_core::annotations::{Annotations, RelatedAnnotations};
use seawall_core::{Clock, ServiceAccount};
use seawall_kube::{ApiServerTransport, KubeClient, KubeTimeouts, ResponseFuture, TimedKubeClient};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::cluster_view::ClusterView;
use crate::index::PodIndex;
use crate::kubernetes_events::EventReporter;
use crate::related_objects::{RelatedObject, RelatedObjectKind, SelectedAnnotationKeys};
use crate::{ClusterClient, NodeName, NodePods};

/// A cluster client that gets its pods from a test.
#[derive(Debug)]
pub struct ManualCluster {
    /// The client. Its requests never get a response.
    pub client: Arc<ClusterClient>,
    index: PodIndex,
    clock: Clock,
}

struct Silent;

impl ApiServerTransport for Silent {
    fn send_request(&self, _: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(std::future::pending())
    }
}

impl ManualCluster {
    /// Creates a cluster without pods. The client's tasks run on the runtime of the calling thread.
    pub fn new(clock: &Clock) -> Self {
        let client = KubeClient::with_transport(Arc::new(Silent), clock.clone());
        let link = TimedKubeClient { client, clock: clock.clone(), timeouts: KubeTimeouts::default() };
        let (reporter, poster) = EventReporter::new(link.clone(), "node1".into());
        let mut tasks = JoinSet::new();
        tasks.spawn(poster);
        let shared = Arc::new(ClusterView::new(&SelectedAnnotationKeys::default()));
        let client = ClusterClient {
            pods: NodePods { shared, clock: clock.clone() },
            reporter,
            link: Arc::new(link),
            node: NodeName::parse("node1").unwrap(),
            taint: None,
            pod_token_lifetime: Duration::from_secs(3600),
            _tasks: tasks,
        };
        let mut index = PodIndex::default();
        index.refetch_objects(RelatedObjectKind::ServiceAccount);
        Self { client: Arc::new(client), index, clock: clock.clone() }
    }

    /// Publishes a snapshot in which the node's pods are exactly these API objects. Their ServiceAccounts have no annotations.
    pub fn publish_pods(&mut self, pods: &[Value]) {
        let pods: Vec<_> = pods.iter().map(|pod| serde_json::from_value(pod.clone()).unwrap()).collect();
        self.index.replace_pods(pods);
        for fetch in self.index.take_related_object_fetches() {
            self.index.apply_fetched(&fetch, &RelatedAnnotations::of_object(Annotations::default()));
        }
        self.publish();
    }

    /// Publishes a snapshot in which this ServiceAccount has these annotations.
    pub fn publish_annotations(&mut self, account: ServiceAccount, annotations: Annotations) {
        self.index.apply_object(
            &RelatedObject::ServiceAccount(account),
            &RelatedAnnotations::of_object(annotations),
        );
        self.publish();
    }

    fn publish(&mut self) {
        let shared = &self.client.pods.shared;
        let snapshot = Arc::new(self.index.build_snapshot(self.clock.wall_time()));
        let version = snapshot.version();
        shared.snapshot.store(snapshot);
        shared.version_sender.send_replace(version);
    }
}
