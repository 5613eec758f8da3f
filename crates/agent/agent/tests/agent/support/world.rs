//! A cloud, the files of an agent, and the agent between the cloud and the pods.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use super::client::{self, Answer};
use super::cloud::{AUDIENCE, Cloud, GKE_PROVIDER, PROVIDER};
use super::process::Agent;
use super::{PROGRAM, ip, make_room, wait_until_true};

pub(crate) const PROJECT: &str = "seawall-emulator";
pub(crate) const TOKEN: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
pub(crate) const PROJECT_ID: &str = "/computeMetadata/v1/project/project-id";

/// The path of an identity token for this audience.
pub(crate) fn identity(audience: &str) -> String {
    format!("/computeMetadata/v1/instance/service-accounts/default/identity?format=full&audience={audience}")
}

/// A path of the token with a scope of its own: a credential that nobody has asked for yet.
pub(crate) fn token_for(scope: &str) -> String {
    format!("{TOKEN}?scopes=https://www.googleapis.com/auth/{scope}")
}

/// A pod of the identity file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) at: Ipv4Addr,
    pub(crate) namespace: &'static str,
    pub(crate) name: &'static str,
    /// Its Kubernetes ServiceAccount.
    pub(crate) account: &'static str,
    /// Its Google service account.
    pub(crate) email: Option<&'static str>,
}

pub(crate) const CART: Pod = Pod {
    at: ip(11),
    namespace: "shop",
    name: "cart-0",
    account: "cart",
    email: Some("cart@seawall-emulator.iam.gserviceaccount.com"),
};
pub(crate) const PAY: Pod = Pod {
    at: ip(12),
    namespace: "shop",
    name: "pay-0",
    account: "pay",
    email: Some("pay@seawall-emulator.iam.gserviceaccount.com"),
};
pub(crate) const MALLORY: Pod = Pod {
    at: ip(13),
    namespace: "lab",
    name: "mallory-0",
    account: "mallory",
    email: Some("mallory@seawall-emulator.iam.gserviceaccount.com"),
};
/// A pod that impersonates nobody.
pub(crate) const DIRECT: Pod =
    Pod { at: ip(14), namespace: "lab", name: "direct-0", account: "direct", email: None };
/// An address of no pod.
pub(crate) const STRANGER: Ipv4Addr = ip(99);

pub(crate) const PODS: [Pod; 4] = [CART, PAY, MALLORY, DIRECT];

impl Pod {
    /// The subject of its Kubernetes token.
    pub(crate) fn subject(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }
}

/// What to start. `text` fields are YAML.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) mode: &'static str,
    /// True for the exchange of GKE's own pools.
    pub(crate) uses_gke_pool: bool,
    pub(crate) pods: Vec<Pod>,
    pub(crate) identity: &'static str,
    /// Entries of `limits`.
    pub(crate) limits: &'static str,
    pub(crate) listen: Vec<SocketAddr>,
    /// One thread where a test counts what a single thread holds.
    pub(crate) threads: &'static str,
    pub(crate) log: &'static str,
}

impl Plan {
    /// Pods with credentials of their own.
    pub(crate) fn federate() -> Self {
        Self {
            mode: "federate",
            uses_gke_pool: false,
            pods: PODS.to_vec(),
            identity: "{ strategy: static, file: pods.yaml }",
            limits: "",
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            threads: "auto",
            log: "debug",
        }
    }

    /// A filter before the virtual machine's own metadata server.
    pub(crate) fn conceal() -> Self {
        Self { mode: "conceal", ..Self::federate() }
    }

    /// Pods with credentials of their own, from GKE's own pool.
    pub(crate) fn gke_pool() -> Self {
        Self { uses_gke_pool: true, ..Self::federate() }
    }

    pub(crate) fn limits(self, limits: &'static str) -> Self {
        Self { limits, ..self }
    }

    pub(crate) fn threads(self, threads: &'static str) -> Self {
        Self { threads, ..self }
    }

    /// The configuration, with everything upstream at this address.
    pub(crate) fn yaml(&self, upstream: SocketAddr) -> String {
        let Self { mode, identity, limits, threads, log, .. } = self;
        let listen: Vec<_> = self.listen.iter().map(|address| format!("\"{address}\"")).collect();
        let listen = listen.join(", ");
        let exchange = if self.uses_gke_pool {
            format!("workloadIdentityProvider: \"{GKE_PROVIDER}\"\n  exchange: identitybindingtoken")
        } else {
            format!("workloadIdentityProvider: \"{PROVIDER}\"\n  tokenAudience: {AUDIENCE}")
        };
        format!(
            "listen: [{listen}]\nadmin: \"127.0.0.1:0\"\nidentity: {identity}\n\
             limits: {{ {limits} }}\nthreads: {threads}\nlogLevel: {log}\n\
             google:\n  mode: {mode}\n  upstreamUrl: \"http://{upstream}\"\n  projectId: {PROJECT}\n  numericProjectId: 123456789012\n  zone: europe-west1-b\n  \
             instance: {{ id: 42, name: node-1, hostname: node-1.example }}\n  \
             cluster: {{ name: reef, location: europe-west1 }}\n  {exchange}\n  \
             stsUrl: \"http://{upstream}\"\n  iamUrl: \"http://{upstream}\"\n"
        )
    }

    /// The identity file.
    pub(crate) fn pods_yaml(&self) -> String {
        let pod = |pod: &Pod| {
            let Pod { at, namespace, name, account, email } = pod;
            let email = email.map(|email| format!("  googleServiceAccount: {email}\n")).unwrap_or_default();
            format!(
                "- address: {at}\n  namespace: {namespace}\n  pod: {name}\n  serviceAccount: {account}\n  \
                 tokenFile: tokens/{name}\n{email}"
            )
        };
        format!("pods:\n{}", self.pods.iter().map(pod).collect::<String>())
    }
}

/// The files of one agent.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    /// Configuration and identity file, no tokens yet.
    pub(crate) fn new(plan: &Plan, upstream: SocketAddr) -> Self {
        let files = Self { folder: TempDir::with_prefix("seawall-agent-").unwrap() };
        files.write("agent.yaml", &plan.yaml(upstream));
        files.write("pods.yaml", &plan.pods_yaml());
        std::fs::create_dir(files.path("tokens")).unwrap();
        files
    }

    /// Gives a pod its Kubernetes token, as the kubelet would.
    pub(crate) fn project(&self, cloud: &Cloud, pod: &Pod) -> String {
        let token = cloud.kubernetes_token(pod);
        self.write(&format!("tokens/{}", pod.name), &token);
        token
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("agent.yaml")
    }
}

/// Everything together. Fields are dropped in this order: the agent goes first.
pub(crate) struct World {
    pub(crate) agent: Agent,
    pub(crate) cloud: Cloud,
    pub(crate) files: Files,
}

impl World {
    /// Starts a cloud and an agent whose pods have their Kubernetes tokens.
    pub(crate) fn start(plan: &Plan) -> Self {
        make_room();
        let cloud = Cloud::start(&plan.pods);
        let files = Files::new(plan, cloud.address());
        for pod in &plan.pods {
            files.project(&cloud, pod);
        }
        Self { agent: Agent::start(PROGRAM, &files.config()), cloud, files }
    }

    /// One request of a pod.
    pub(crate) fn ask(&self, pod: &Pod, target: &str) -> Answer {
        client::ask(pod.at, self.agent.first_listener_address(), target)
    }

    pub(crate) fn client(&self, pod: &Pod) -> client::Client {
        client::Client::connect(pod.at, self.agent.first_listener_address())
    }

    /// A connection of this pod whose request waits for a change, for certain.
    pub(crate) fn held(&self, pod: &Pod, request: &str) -> client::Client {
        let polls = || self.metric("seawall_long_polls_open");
        let before = polls();
        let mut client = self.client(pod);
        client.write_bytes(request);
        wait_until_true("the request to be held", || polls() > before);
        client
    }

    /// A page of the admin port.
    pub(crate) fn admin(&self, path: &str) -> Answer {
        client::ask(ip(1), self.agent.admin_address, path)
    }

    /// The value of one sample at `/metrics`.
    pub(crate) fn metric(&self, sample: &str) -> f64 {
        let metrics = self.admin("/metrics").body;
        let value = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {sample} in\n{metrics}")).parse().unwrap()
    }

    /// A pod's entry at `/debug/pods`.
    pub(crate) fn debug(&self, pod: &Pod) -> Value {
        let pods = self.admin("/debug/pods").json();
        let of_pod = pods["pods"].as_array().unwrap().iter().find(|entry| entry["pod"] == pod.name);
        of_pod.unwrap_or_else(|| panic!("no {} in {pods}", pod.name)).clone()
    }
}
