//! Removes the agents of a cluster, and waits until their nodes are clean. A clean node has no metadata redirect. Afterwards,
//! the operator can delete Seawall's other objects from the cluster. Only the uninstall command uses this module; a serving
//! agent never does.
//!
//! **The order matters.**
//!
//! 1. Delete the agents' DaemonSet. Otherwise the DaemonSet could start an agent on a node that joins or rejoins the cluster,
//!    and this agent's pod would attach the redirect again. After this step, the metadata requests of all pods fail: the
//!    redirect's programs still capture the requests, but no agent answers. So no pod gets another pod's credentials.
//! 2. Clean the nodes with the pods of another DaemonSet. Each of these pods is ready once its node is clean. From then on, the
//!    node's pods reach the real metadata server. No pod gets another pod's credentials, because no agent is left.
//! 3. Remove the startup taint. If the taint were removed earlier, pods would start on nodes where their requests still fail.
//!
//! Every wait has a time limit. If a node is not clean in time, the error names the node, and the calling code decides how to
//! proceed.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use seawall_core::{Clock, Moment};
use seawall_kube::request::{self, ObjectRepresentation};
use seawall_kube::{ClientConfigSource, KubeConnector, KubeError, KubeTimeouts, TimedKubeClient};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use crate::paged_list::list_all;
use crate::{ClientConfigError, startup_taint};

/// The pause between two checks of the cluster's state.
const LOOK: Duration = Duration::from_secs(1);

/// The maximum number of objects in a page of a list. The number limits a response's size: each pod takes several kilobytes.
const PAGE: u32 = 250;

/// Removes the agents of one namespace, with a time limit for each wait.
#[derive(Debug)]
pub struct Uninstaller {
    link: TimedKubeClient,
    namespace: String,
    /// The time limit of each wait.
    within: Duration,
}

/// The reason why a step did not finish in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UninstallError {
    /// The step is not done on these nodes.
    #[error("timed out after {}s; not done on {}", .within.as_secs(), Nodes(.nodes))]
    UnfinishedNodes {
        /// The names of the nodes, sorted.
        nodes: Vec<String>,
        /// The time limit of the step.
        within: Duration,
    },
    /// The API server did not report the state.
    #[error("timed out after {}s; the last error is: {reason}", .within.as_secs())]
    StateUnknown {
        /// The last error from the API server.
        reason: String,
        /// The time limit of the step.
        within: Duration,
    },
}

/// The maximum number of nodes in an error message. More names would make the line unreadable.
const NAMED: usize = 20;

struct Nodes<'a>(&'a [String]);

impl fmt::Display for Nodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.0.get(..NAMED).unwrap_or(self.0);
        write!(f, "{} node(s): {}", self.0.len(), named.join(", "))?;
        if named.len() < self.0.len() { f.write_str(", ...") } else { Ok(()) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DaemonSet {
    metadata: Generation,
    spec: DaemonSetSpec,
    status: DaemonSetStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Generation {
    generation: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DaemonSetSpec {
    selector: Selector,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Selector {
    match_labels: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DaemonSetStatus {
    observed_generation: i64,
    desired_number_scheduled: u32,
    number_ready: u32,
}

/// Holds the fields that give the node and the readiness of a DaemonSet's pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DaemonSetPod {
    spec: Value,
    status: ReadyStatus,
}

/// A node's name and readiness.
#[derive(Debug, Deserialize)]
struct NodeObject {
    metadata: Name,
    #[serde(default)]
    status: ReadyStatus,
}

/// The part of a pod's or node's status that says whether it is ready.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReadyStatus {
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// An object of any kind. The uninstaller reads only the object's name.
#[derive(Debug, Deserialize)]
struct NamedObject {
    metadata: Name,
}

#[derive(Debug, Deserialize)]
struct Name {
    name: String,
}

impl Selector {
    /// Returns the selector as a query parameter. The selector needs no escaping, because labels contain no special characters
    /// (apimachinery `IsValidLabelValue`).
    fn text(&self) -> String {
        let pairs: Vec<String> =
            self.match_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(",")
    }
}

impl DaemonSetPod {
    /// Returns the node on which the pod runs. For an unscheduled pod, returns the node that the DaemonSet controller chose
    /// (kubernetes, pkg/controller/daemon/util `ReplaceDaemonSetPodNodeNameNodeAffinity`).
    fn node(&self) -> String {
        let terms = &self.spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let meant = &terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
        let name = self.spec["nodeName"].as_str().filter(|name| !name.is_empty());
        name.or(meant.as_str()).unwrap_or("a pod that is not scheduled yet").to_owned()
    }

    fn is_ready(&self) -> bool {
        self.status.is_ready()
    }
}

impl ReadyStatus {
    /// True if the kubelet reports the condition `Ready`. For a node whose kubelet is silent, the node controller sets it to
    /// `Unknown`.
    fn is_ready(&self) -> bool {
        self.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
    }
}

impl Uninstaller {
    /// Creates an uninstaller for this namespace, with this time limit for each step. Sends no request yet.
    ///
    /// # Errors
    /// The kubeconfig or the in-cluster files cannot be read.
    pub fn new(
        access: ClientConfigSource,
        namespace: String,
        within: Duration,
        clock: Clock,
    ) -> Result<Self, ClientConfigError> {
        let patience = KubeTimeouts::default();
        let client = KubeConnector::read(access, crate::provider())?.new_client(&patience, clock.clone())?;
        Ok(Self { link: TimedKubeClient { client, clock, timeouts: patience }, namespace, within })
    }

    /// Deletes the agents' DaemonSet, and waits until all its pods are gone.
    ///
    /// # Errors
    /// Some pods remain, or the API server does not report their state. A pod remains if its node's kubelet does not respond.
    /// The agent in such a pod can still serve other pods. The kubelet will not start that agent again, because the pod is
    /// marked as deleted.
    pub async fn delete_agents(&self, daemonset: &str) -> Result<(), UninstallError> {
        let (start, mut selector) = (self.link.clock.now(), None);
        while !self.is_done(start, self.agents_left(daemonset, &mut selector).await).await? {}
        Ok(())
    }

    /// Returns the nodes of the remaining agents. `selector` stores the agents' label selector, because the function deletes
    /// the agents' DaemonSet.
    async fn agents_left(
        &self,
        daemonset: &str,
        selector: &mut Option<String>,
    ) -> Result<Vec<String>, KubeError> {
        if selector.is_none() {
            *selector = self.delete(daemonset).await?;
        }
        let Some(selector) = selector else { return Ok(Vec::new()) };
        Ok(self.pods(selector).await?.iter().map(DaemonSetPod::node).collect())
    }

    /// Waits until this DaemonSet has a ready pod on each of its nodes. Returns the nodes that were skipped.
    ///
    /// With `skips_not_ready_nodes`, the function skips nodes whose kubelet does not report that the node is ready, after half of the
    /// time limit. Large clusters always have such nodes. A skipped node is not clean.
    ///
    /// # Errors
    /// Some pods are not ready, or the API server does not report their state.
    pub async fn wait_until_daemonset_ready(
        &self,
        daemonset: &str,
        skips_not_ready_nodes: bool,
    ) -> Result<Vec<String>, UninstallError> {
        let start = self.link.clock.now();
        loop {
            let (mut left, mut skipped) = (self.nodes_left(daemonset).await, Vec::new());
            let is_late = self.link.clock.now().since(start) >= self.within / 2;
            if let Ok(nodes) = &left
                && skips_not_ready_nodes
                && is_late
                && !nodes.is_empty()
            {
                left = self.not_ready_nodes().await.map(|away| {
                    let (gone, rest) = nodes.iter().cloned().partition(|node| away.contains(node));
                    skipped = gone;
                    rest
                });
            }
            if self.is_done(start, left).await? {
                skipped.sort();
                skipped.dedup();
                return Ok(skipped);
            }
        }
    }

    async fn not_ready_nodes(&self) -> Result<BTreeSet<String>, KubeError> {
        let nodes: Vec<NodeObject> = self.all("/api/v1/nodes", ObjectRepresentation::Whole, None).await?;
        let away = nodes.into_iter().filter(|node| !node.status.is_ready());
        Ok(away.map(|node| node.metadata.name).collect())
    }

    async fn nodes_left(&self, daemonset: &str) -> Result<Vec<String>, KubeError> {
        let request = request::build_get(&self.path(daemonset), ObjectRepresentation::Whole);
        let DaemonSet { metadata, spec, status } = self.call(request).await?;
        // The counts in the status are zero until the DaemonSet's controller has seen the object.
        let is_counted = metadata.generation > 0 && status.observed_generation >= metadata.generation;
        if is_counted && status.number_ready >= status.desired_number_scheduled {
            return Ok(Vec::new());
        }
        let pods = self.pods(&spec.selector.text()).await?;
        let mut names: Vec<_> = pods.iter().filter(|pod| !pod.is_ready()).map(DaemonSetPod::node).collect();
        if names.is_empty() {
            names.push("nodes without a pod of the DaemonSet".to_owned());
        }
        Ok(names)
    }

    /// Removes a taint from all nodes that have it. Returns the number of nodes that had it.
    ///
    /// # Errors
    /// Some nodes still have the taint, or the API server does not report their state.
    pub async fn remove_taint(&self, taint: &str) -> Result<usize, UninstallError> {
        let (start, mut opened) = (self.link.clock.now(), 0);
        while !self.is_done(start, self.tainted(taint, &mut opened).await).await? {}
        Ok(opened)
    }

    async fn tainted(&self, taint: &str, opened: &mut usize) -> Result<Vec<String>, KubeError> {
        let mut left = Vec::new();
        for NamedObject { metadata } in
            self.all::<NamedObject>("/api/v1/nodes", ObjectRepresentation::Metadata, None).await?
        {
            match startup_taint::remove(&self.link, &metadata.name, taint).await {
                Ok(was_there) => *opened += usize::from(was_there),
                // The node and its taint were deleted meanwhile.
                Err(KubeError::NotFound { .. }) => {}
                Err(_) => left.push(metadata.name),
            }
        }
        Ok(left)
    }

    /// Returns `true` if nothing is left. Otherwise waits for the next check and returns `false`, or fails after the time limit.
    async fn is_done(
        &self,
        start: Moment,
        found: Result<Vec<String>, KubeError>,
    ) -> Result<bool, UninstallError> {
        let left = match found {
            Ok(nodes) if nodes.is_empty() => return Ok(true),
            Ok(nodes) => UninstallError::nodes(nodes, self.within),
            Err(failure) => UninstallError::StateUnknown { reason: failure.to_string(), within: self.within },
        };
        if self.link.clock.now().since(start) + LOOK > self.within {
            return Err(left);
        }
        self.link.clock.sleep(LOOK).await;
        Ok(false)
    }

    /// Deletes a DaemonSet; the garbage collector deletes its pods. Returns the DaemonSet's label selector, or `None` if the
    /// DaemonSet does not exist.
    async fn delete(&self, name: &str) -> Result<Option<String>, KubeError> {
        let path = self.path(name);
        let found = match self.call::<DaemonSet>(request::build_get(&path, ObjectRepresentation::Whole)).await
        {
            Err(KubeError::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        let how = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background" });
        match self.call::<IgnoredAny>(request::build_delete(&path, &how)).await {
            Ok(_) | Err(KubeError::NotFound { .. }) => Ok(Some(found.spec.selector.text())),
            Err(failure) => Err(failure),
        }
    }

    async fn pods(&self, selector: &str) -> Result<Vec<DaemonSetPod>, KubeError> {
        let path = format!("/api/v1/namespaces/{}/pods", self.namespace);
        self.all(&path, ObjectRepresentation::Whole, Some(selector)).await
    }

    /// Returns the objects of all pages of a list.
    async fn all<T: DeserializeOwned>(
        &self,
        path: &str,
        form: ObjectRepresentation,
        labels: Option<&str>,
    ) -> Result<Vec<T>, KubeError> {
        list_all(&self.link, path, form, labels, PAGE).await
    }

    fn path(&self, daemonset: &str) -> String {
        format!("/apis/apps/v1/namespaces/{}/daemonsets/{daemonset}", self.namespace)
    }

    async fn call<T: DeserializeOwned>(&self, request: request::BuildRequestResult) -> Result<T, KubeError> {
        self.link.client.call(request, self.link.timeouts.list_page).await
    }
}

impl UninstallError {
    fn nodes(mut nodes: Vec<String>, within: Duration) -> Self {
        nodes.sort();
        nodes.dedup();
        Self::UnfinishedNodes { nodes, within }
    }
}

#[cfg(test)]
mod tests {
    use seawall_core::ManualClock;
    use tokio::sync::mpsc::UnboundedReceiver;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::fake_api_server::{FakeCall, client_of_fake_server};

    const SET: &str = "/apis/apps/v1/namespaces/seawall/daemonsets/agent";
    const PODS: &str = "/api/v1/namespaces/seawall/pods";

    fn uninstaller() -> (Uninstaller, Server) {
        let (clock, hand) = Clock::manual();
        let (link, asked) = client_of_fake_server(clock);
        let within = Duration::from_secs(10);
        (Uninstaller { link, namespace: "seawall".into(), within }, Server { asked, hand })
    }

    fn set(desired: u32, ready: u32) -> Value {
        json!({ "metadata": { "generation": 1 }, "spec": { "selector": { "matchLabels": { "app": "a", "part": "b" } } },
                "status": { "observedGeneration": 1, "desiredNumberScheduled": desired, "numberReady": ready } })
    }

    fn pod(node: &str, ready: &str) -> Value {
        json!({ "spec": { "nodeName": node }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } })
    }

    /// A fake API server that responds to calls, and moves the clock while no call waits.
    struct Server {
        asked: UnboundedReceiver<FakeCall>,
        hand: ManualClock,
    }

    impl Server {
        /// Returns the next call; `None` if the task has ended without another call.
        async fn next<T>(&mut self, task: &JoinHandle<T>) -> Option<FakeCall> {
            loop {
                // Yield often enough for any task to reach its next wait.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                match self.asked.try_recv() {
                    Ok(call) => return Some(call),
                    Err(_) if task.is_finished() => return None,
                    Err(_) => self.hand.advance(LOOK),
                }
            }
        }

        /// Responds to the next call and checks that it is the expected call. Returns the body of the call.
        async fn answer<T>(&mut self, task: &JoinHandle<T>, what: &str, status: u16, body: &Value) -> Value {
            let call = self.next(task).await.unwrap();
            assert!(call.method_and_uri.starts_with(what), "{} is not {what}", call.method_and_uri);
            let sent = call.body.clone();
            call.answer(status, body);
            sent
        }
    }

    fn not_found() -> Value {
        json!({ "kind": "Status", "code": 404 })
    }

    #[tokio::test]
    async fn the_daemonset_is_deleted_once_and_its_pods_are_waited_for() {
        let (uninstaller, mut server) = uninstaller();
        let task = tokio::spawn(async move { uninstaller.delete_agents("agent").await });
        server.answer(&task, &format!("GET {SET}"), 200, &set(1, 1)).await;
        let how = server.answer(&task, &format!("DELETE {SET}"), 200, &json!({})).await;
        assert_eq!(how["propagationPolicy"], "Background");
        let list = format!("GET {PODS}?labelSelector=app%3Da%2Cpart%3Db&limit=250");
        server.answer(&task, &list, 200, &json!({ "items": [pod("n1", "True")] })).await;
        server.answer(&task, &list, 200, &json!({ "items": [] })).await;
        assert_eq!(task.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn agents_that_are_gone_are_no_error() {
        let (uninstaller, mut server) = uninstaller();
        let task = tokio::spawn(async move { uninstaller.delete_agents("agent").await });
        server.answer(&task, &format!("GET {SET}"), 404, &not_found()).await;
        assert_eq!(task.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn a_node_that_is_down_is_waited_for_so_long_and_then_named() {
        let (uninstaller, mut server) = uninstaller();
        let task = tokio::spawn(async move { uninstaller.wait_until_daemonset_ready("agent", false).await });
        let unbound = json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n3"] }] }] } } } } });
        let pods = json!({ "items": [pod("n2", "False"), pod("n1", "True"), unbound] });
        while let Some(call) = server.next(&task).await {
            let body = if call.method_and_uri.starts_with("GET /apis") { &set(3, 1) } else { &pods };
            call.answer(200, body);
            tokio::task::yield_now().await;
        }
        let left = task.await.unwrap().unwrap_err();
        assert_eq!(left.to_string(), "timed out after 10s; not done on 2 node(s): n2, n3");
    }

    #[tokio::test]
    async fn nodes_that_are_not_ready_are_skipped_if_asked_and_only_when_half_of_the_time_is_over() {
        for (n3, outcome) in [
            ("Unknown", Ok(vec!["n2".to_owned(), "n3".to_owned()])),
            ("True", Err("not done on 1 node(s): n3")),
        ] {
            let (uninstaller, mut server) = uninstaller();
            let begun = uninstaller.link.clock.now();
            let clock = uninstaller.link.clock.clone();
            let task =
                tokio::spawn(async move { uninstaller.wait_until_daemonset_ready("agent", true).await });
            let pods = json!({ "items": [pod("n1", "True"), pod("n2", "False"), pod("n3", "False")] });
            let node = |name: &str, ready: &str| json!({ "metadata": { "name": name }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
            let nodes = json!({ "items": [node("n1", "True"), node("n2", "Unknown"), node("n3", n3)] });
            while let Some(call) = server.next(&task).await {
                let asks_for_nodes = call.method_and_uri.starts_with("GET /api/v1/nodes?");
                if asks_for_nodes {
                    assert!(clock.now().since(begun) >= Duration::from_secs(5), "they may come back");
                }
                let set = set(3, 1);
                let is_set = call.method_and_uri.starts_with("GET /apis");
                let body = if asks_for_nodes { &nodes } else { &pods };
                call.answer(200, if is_set { &set } else { body });
                tokio::task::yield_now().await;
            }
            match (task.await.unwrap(), outcome) {
                (Ok(skipped), Ok(expected)) => assert_eq!(skipped, expected),
                (Err(left), Err(expected)) => assert!(left.to_string().ends_with(expected), "{left}"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The status is all zeros until the DaemonSet's controller has seen the object.
    #[tokio::test]
    async fn a_daemonset_that_nobody_has_counted_yet_is_not_done() {
        let (uninstaller, mut server) = uninstaller();
        let task = tokio::spawn(async move { uninstaller.wait_until_daemonset_ready("agent", false).await });
        let new = json!({ "metadata": { "generation": 1 }, "status": { "desiredNumberScheduled": 0, "numberReady": 0 } });
        server.answer(&task, &format!("GET {SET}"), 200, &new).await;
        server.answer(&task, &format!("GET {PODS}"), 200, &json!({ "items": [] })).await;
        server.answer(&task, &format!("GET {SET}"), 200, &set(2, 2)).await;
        assert_eq!(task.await.unwrap(), Ok(Vec::new()));
    }

    #[tokio::test]
    async fn an_api_server_that_refuses_is_quoted_in_the_end() {
        let (uninstaller, mut server) = uninstaller();
        let task = tokio::spawn(async move { uninstaller.wait_until_daemonset_ready("agent", false).await });
        let refusal = json!({ "kind": "Status", "code": 403, "message": "not you" });
        while let Some(call) = server.next(&task).await {
            call.answer(403, &refusal);
            tokio::task::yield_now().await;
        }
        let left = task.await.unwrap().unwrap_err().to_string();
        assert!(left.contains("timed out after 10s") && left.contains("not you"), "{left}");
    }

    #[tokio::test]
    async fn the_taint_goes_off_every_node_of_every_page() {
        let (uninstaller, mut server) = uninstaller();
        let task = tokio::spawn(async move { uninstaller.remove_taint("seawall.dev/not-ready").await });
        let named = |name: &str| json!({ "metadata": { "name": name } });
        let first = json!({ "metadata": { "continue": "more" }, "items": [named("n1"), named("n2")] });
        server.answer(&task, "GET /api/v1/nodes?limit=250", 200, &first).await;
        let rest = json!({ "items": [named("n3")] });
        server.answer(&task, "GET /api/v1/nodes?limit=250&continue=more", 200, &rest).await;
        let tainted = json!({ "spec": { "taints": [{ "key": "seawall.dev/not-ready", "effect": "NoSchedule" }, { "key": "b" }] } });
        server.answer(&task, "GET /api/v1/nodes/n1", 200, &tainted).await;
        let patch = server.answer(&task, "PATCH /api/v1/nodes/n1", 200, &json!({})).await;
        assert_eq!(patch[1]["value"], json!([{ "key": "b" }]));
        server.answer(&task, "GET /api/v1/nodes/n2", 200, &json!({ "spec": {} })).await;
        server.answer(&task, "GET /api/v1/nodes/n3", 404, &not_found()).await;
        assert_eq!(task.await.unwrap(), Ok(1));
    }

    #[test]
    fn a_line_names_some_of_many_nodes() {
        let nodes = (0..1000).map(|n| format!("n{n:03}")).collect();
        let said = UninstallError::nodes(nodes, Duration::from_secs(1)).to_string();
        assert!(said.contains("1000 node(s): n000, ") && said.ends_with("n019, ..."), "{said}");
    }
}
