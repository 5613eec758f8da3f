//! A control plane with the real controllers, and the test's own hand on it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use seawall_core::Clock;
use seawall_fleet::job::ClusterSession;
use seawall_fleet::job_obstacles::{KubectlContext, Permission};
use seawall_fleet::pod_inputs::JobInputs;
use seawall_kube::KubeError;
use seawall_kubectl::{Api, KubeconfigSelection, WriteMode};
use seawall_load::input_files::{CapturedFile, CapturedInputs};
use seawall_testkit::control_plane::{
    ADMIN_TOKEN, CONTROLLERS_TOKEN, ControlPlane, SCHEDULER_TOKEN, ServiceProcess,
};
use seawall_testkit::objects;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What is shipped, word for word.
pub(crate) const ROLE: &str = include_str!("../../../../deploy/load-rbac.yaml");

/// Long enough that only a thing that never happens exceeds it.
pub(crate) const EVENTUALLY: Duration = Duration::from_secs(120);

const ROLE_PATH: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/load/roles/seawall-load";

/// It ends with everything it started when dropped.
pub(crate) struct Cluster {
    /// Before what they speak to.
    _programs: Vec<ServiceProcess>,
    pub(crate) plane: ControlPlane,
    folder: TempDir,
}

impl Cluster {
    /// API server and controllers, and the namespace `load`.
    pub(crate) async fn start() -> Self {
        let folder = TempDir::with_prefix("seawall-fleet-").unwrap();
        let mut plane = ControlPlane::without_api_server(folder.path());
        plane.launch_api_server();
        let mut cluster = Self { _programs: Vec::new(), plane, folder };
        let ready =
            async || cluster.plane.has_certificate() && cluster.get("/api/v1/namespaces").await.is_ok();
        cluster.until("the API server is ready", ready).await;
        let mut controllers = Command::new(cluster.plane.programs_folder().join("kube-controller-manager"));
        controllers.arg("--service-account-private-key-file").arg(cluster.plane.service_account_key_path());
        controllers.arg("--use-service-account-credentials");
        cluster.launch(controllers, CONTROLLERS_TOKEN);
        cluster.create_namespace("load", "privileged").await;
        cluster
    }

    /// The same with who gives pods their nodes, of which there are none.
    pub(crate) async fn start_with_scheduler() -> Self {
        let mut cluster = Self::start().await;
        cluster.launch(Command::new(cluster.plane.programs_folder().join("kube-scheduler")), SCHEDULER_TOKEN);
        cluster
    }

    fn launch(&mut self, mut command: Command, token: &str) {
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig(token))
            .args(["--leader-elect=false", "--secure-port=0"]);
        let program = ServiceProcess::start(&mut command, &self.folder.path().join(format!("{token}.log")));
        self._programs.push(program);
    }

    pub(crate) fn kubeconfig(&self, token: &str) -> PathBuf {
        self.plane.write_kubeconfig(token)
    }

    /// The namespace `load`, of whoever has the token.
    pub(crate) async fn site(&self, token: &str) -> ClusterSession {
        self.site_in(token, "load").await
    }

    pub(crate) async fn site_in(&self, token: &str, namespace: &str) -> ClusterSession {
        let place = KubectlContext { context: None, namespace: namespace.to_owned() };
        ClusterSession::new(self.api(token).await, Clock::system(), place)
    }

    async fn api(&self, token: &str) -> Api {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let choice = KubeconfigSelection {
            kubeconfig: Some(self.kubeconfig(token)),
            ..KubeconfigSelection::default()
        };
        Api::open(&choice, provider, Clock::system()).await.unwrap().0
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, KubeError> {
        self.api(ADMIN_TOKEN).await.get(path).await
    }

    pub(crate) async fn job(&self, name: &str) -> Value {
        self.get(&format!("/apis/batch/v1/namespaces/load/jobs/{name}")).await.unwrap()
    }

    pub(crate) async fn try_create(&self, path: &str, object: &Value) -> Result<(), String> {
        self.api(ADMIN_TOKEN)
            .await
            .create(path, object, WriteMode::Persist)
            .await
            .map(drop)
            .map_err(|failure| failure.to_string())
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) {
        self.try_create(path, object).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Creates every object of a YAML file, in order.
    pub(crate) async fn apply(&self, yaml: &str) {
        for (path, object) in objects::parse_yaml_objects(yaml) {
            self.create(&path, &object).await;
        }
    }

    /// One that demands so much of its pods, and in which pods may be made at once.
    pub(crate) async fn create_namespace(&self, name: &str, security: &str) {
        let labels = json!({"pod-security.kubernetes.io/enforce": security});
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.create("/api/v1/namespaces", &namespace).await;
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        self.until("the namespace has its ServiceAccount", async || self.get(&account).await.is_ok()).await;
    }

    /// Takes one right out of the Role.
    pub(crate) async fn take_away(&self, right: Permission) {
        let part =
            if right.subresource.is_empty() { String::new() } else { format!("/{}", right.subresource) };
        let resource = format!("{}{part}", right.resource);
        let mut rules = shipped_rules();
        for rule in rules.as_array_mut().unwrap() {
            if rule["resources"][0] == resource && rule["apiGroups"][0] == right.group {
                rule["verbs"].as_array_mut().unwrap().retain(|verb| verb != right.verb);
            }
        }
        // A rule without a verb is none.
        rules.as_array_mut().unwrap().retain(|rule| rule["verbs"] != json!([]));
        self.change_rules(&rules).await;
    }

    /// The Role as it is shipped.
    pub(crate) async fn give_back(&self) {
        self.change_rules(&shipped_rules()).await;
    }

    async fn change_rules(&self, rules: &Value) {
        self.api(ADMIN_TOKEN)
            .await
            .merge_patch(ROLE_PATH, &json!({ "rules": rules }), WriteMode::Persist)
            .await
            .unwrap();
    }

    /// What a kubelet reports of a pod.
    pub(crate) async fn report(&self, pod: &str, status: &Value) {
        let path = format!("/api/v1/namespaces/load/pods/{pod}/status");
        let done = self
            .api(ADMIN_TOKEN)
            .await
            .merge_patch(&path, &json!({ "status": status }), WriteMode::Persist)
            .await;
        done.unwrap_or_else(|error| panic!("{pod}: {error}"));
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Waits for something that has no event to wait for.
    pub(crate) async fn until(&self, what: &str, is: impl AsyncFn() -> bool) {
        let wait = async {
            while !is().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(EVENTUALLY, wait).await;
        assert!(
            waited.is_ok(),
            "never: {what}; the API server's log ends with:\n{}",
            self.plane.api_server_log_tail()
        );
    }
}

fn shipped_rules() -> Value {
    let (_, role) =
        objects::parse_yaml_objects(ROLE).into_iter().find(|(_, object)| object["kind"] == "Role").unwrap();
    role["rules"].clone()
}

/// `attack` with a file of targets.
pub(crate) fn materials(targets: Vec<u8>) -> JobInputs {
    let kept = CapturedInputs {
        files: vec![CapturedFile { path: "/srv/targets".into(), bytes: targets }],
        stdin: None,
    };
    JobInputs::new(&["attack".to_owned()], kept, std::path::Path::new("/"), &[]).unwrap()
}
