//! A real API server, a node's network, an emulated cloud, and the agent among them.
//!
//! Everything a test starts ends with it, in a panic too. No test sleeps to be right: [`wait_until_some`] looks again until a
//! condition holds, and its deadline is for broken programs, not for slow machines.

pub(crate) mod aws;
pub(crate) mod captured;
pub(crate) mod cloud;
pub(crate) mod name_server;
pub(crate) mod network;
pub(crate) mod scene;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use seawall_testkit::kubernetes_client::KubernetesApi;
use seawall_testkit::objects::{self, NODE_NAME};
use seawall_testkit::ready_control_plane::ReadyControlPlane;
use serde_json::{Value, json};
use tempfile::TempDir;

use client::Answer;
use cloud::{Cloud, PROVIDER, email};
use network::{METADATA, Network, Sandbox};
use process::Agent;
pub(crate) use seawall_testkit::agent::{client, client_library, process};
pub(crate) use seawall_testkit::waiting::{pause, wait_until_some, wait_until_true};

/// The agent as cargo built it for these tests.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_seawall-agent");

/// What is shipped, word for word.
pub(crate) const SHIPPED: [&str; 3] = [
    include_str!("../../../../../../deploy/rbac.yaml"),
    include_str!("../../../../../../deploy/rbac-taint.yaml"),
    include_str!("../../../../../../deploy/admission.yaml"),
];

pub(crate) const TOKEN: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
pub(crate) const EMAIL: &str = "/computeMetadata/v1/instance/service-accounts/default/email";

/// The path of an identity token for this audience.
pub(crate) fn identity(audience: &str) -> String {
    format!("/computeMetadata/v1/instance/service-accounts/default/identity?format=full&audience={audience}")
}

/// Everything together. Fields are dropped in this order: the agent goes first.
pub(crate) struct World {
    pub(crate) agent: Agent,
    pub(crate) cloud: Cloud,
    pub(crate) api: KubernetesApi,
    pub(crate) plane: ReadyControlPlane,
    pub(crate) network: Network,
    /// Files of all of them.
    pub(crate) folder: TempDir,
    /// The agent's own.
    pub(crate) kubeconfig: PathBuf,
}

/// A pod whose container can run.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) account: String,
    pub(crate) sandbox: Sandbox,
}

impl World {
    /// ServiceAccounts by name, each with a Google service account of its own unless its name begins with `plain`.
    /// `identity` is more YAML for that section.
    pub(crate) fn start(accounts: &[&str], identity: &str) -> Self {
        Self::start_with(accounts, identity, "", &json!([]))
    }

    /// As [`Self::start`], with a node that has these taints.
    pub(crate) fn start_with(accounts: &[&str], identity: &str, google: &str, taints: &Value) -> Self {
        let Ground { cloud, api, plane, network, folder, kubeconfig } = Ground::start(accounts, taints);
        network.have_metadata_address();
        let listen = format!("\"{METADATA}:80\", \"127.0.0.1:0\"");
        let identity = format!(
            "  strategy: source-ip\n  nodeName: {NODE_NAME}\n  kubeconfig: {}\n{identity}",
            kubeconfig.display()
        );
        let config = folder.path().join("agent.yaml");
        std::fs::write(&config, yaml(&listen, &identity, google, &cloud)).unwrap();
        let agent = Agent::start(PROGRAM, &config);
        let world = Self { agent, cloud, api, plane, network, folder, kubeconfig };
        wait_until_true("the agent to be ready", || world.admin("/readyz").status == 200);
        world
    }

    /// Another agent in the place of this one, whose file is what this makes of the last one's. Returns when it is ready.
    pub(crate) fn reconfigure(&mut self, edit: impl FnOnce(&str) -> String) {
        let file = self.folder.path().join("agent.yaml");
        std::fs::write(&file, edit(&std::fs::read_to_string(&file).unwrap())).unwrap();
        self.restart_agent();
        wait_until_true("the agent to be ready", || self.admin("/readyz").status == 200);
    }

    /// Another agent in the place of this one, with the file as it is now. Returns when it serves, ready or not.
    pub(crate) fn restart_agent(&mut self) {
        assert!(self.agent.stop().success());
        self.agent = Agent::start(PROGRAM, &self.folder.path().join("agent.yaml"));
    }

    /// A pod that runs, known to the API server with its address.
    pub(crate) fn pod(&mut self, name: &str, account: &str) -> Pod {
        let pod = self.bound(name, account);
        self.api.set_pod_status(name, "Running", &pod.sandbox.address.to_string());
        pod
    }

    /// A pod that has its network; its address has not been reported yet.
    pub(crate) fn bound(&mut self, name: &str, account: &str) -> Pod {
        self.api.make_pod(name, account);
        Pod { name: name.into(), account: account.into(), sandbox: self.network.sandbox() }
    }

    /// A page of the admin port.
    pub(crate) fn admin(&self, path: &str) -> Answer {
        client::ask(Ipv4Addr::LOCALHOST, self.agent.admin_address, path)
    }

    /// The value of one sample at `/metrics`.
    pub(crate) fn metric(&self, sample: &str) -> f64 {
        let metrics = self.admin("/metrics").body;
        let value = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {sample} in\n{metrics}")).parse().unwrap()
    }

    /// Whether a pod is given a token of its own.
    pub(crate) fn check_pod(&self, pod: &Pod) {
        self.check(&pod.ask(TOKEN).token(), &pod.account);
    }

    /// The warnings about a pod, once there are some: reason and message.
    pub(crate) fn events(&self, pod: &Pod) -> Vec<(String, String)> {
        wait_until_some("an event", || {
            Some(self.api.pod_events(&pod.name)).filter(|events| !events.is_empty())
        })
    }

    /// Whether a token is that of this ServiceAccount, and if it has an account of its own, of that.
    pub(crate) fn check(&self, token: &str, account: &str) {
        let token = self.cloud.read(token);
        assert_eq!(token.sub, cloud::subject(account));
        let expected = (!account.starts_with("plain")).then(|| email(account));
        assert_eq!(token.account, expected);
    }
}

impl Pod {
    /// One request of its container, on a connection of its own.
    pub(crate) fn ask(&self, target: &str) -> Answer {
        self.sandbox.run(|| self.ask_from_inside(target))
    }

    /// The same, on a thread that is inside already.
    pub(crate) fn ask_from_inside(&self, target: &str) -> Answer {
        client::ask(self.sandbox.address, SocketAddr::from((METADATA, 80)), target)
    }
}

/// What an agent works with.
pub(crate) struct Ground {
    pub(crate) cloud: Cloud,
    pub(crate) api: KubernetesApi,
    pub(crate) plane: ReadyControlPlane,
    pub(crate) network: Network,
    pub(crate) folder: TempDir,
    /// The agent's own.
    pub(crate) kubeconfig: PathBuf,
}

impl Ground {
    /// ServiceAccounts as for [`World::start`].
    pub(crate) fn start(accounts: &[&str], taints: &Value) -> Self {
        let folder = TempDir::with_prefix("seawall-cluster-").unwrap();
        let plane = ReadyControlPlane::start(folder.path());
        let api = plane.admin_api();
        prepare(&api, taints);
        let given = |name: &&str| (name.to_string(), (!name.starts_with("plain")).then(|| email(name)));
        let accounts: Vec<_> = accounts.iter().map(given).collect();
        for (name, email) in &accounts {
            api.create_service_account(name, email.as_deref());
        }
        let cloud = Cloud::start(&api, &accounts);
        let kubeconfig = plane.write_kubeconfig_with_port(&agent_token(&api), plane.api_server_port());
        Self { cloud, api, plane, network: Network::new(), folder, kubeconfig }
    }
}

/// An agent's configuration: what is in the list `listen`, and lines of the sections `identity` and `google`.
fn yaml(listen: &str, identity: &str, google: &str, cloud: &Cloud) -> String {
    let upstream = cloud.address();
    format!(
        "listen: [{listen}]\nadmin: \"127.0.0.1:0\"\nlogLevel: debug\nidentity:\n{identity}\
         google:\n{google}  upstreamUrl: \"http://{upstream}\"\n  projectId: seawall-emulator\n  numericProjectId: 123456789012\n  \
         zone: europe-west1-b\n  instance: {{ id: 42, name: {NODE_NAME}, hostname: {NODE_NAME}.example }}\n  \
         cluster: {{ name: reef, location: europe-west1 }}\n  workloadIdentityProvider: \"{PROVIDER}\"\n  \
         stsUrl: \"http://{upstream}\"\n  iamUrl: \"http://{upstream}\"\n"
    )
}

/// The node, the shipped RBAC and admission, the tests' namespace.
fn prepare(api: &KubernetesApi, taints: &Value) {
    for yaml in SHIPPED {
        api.create_from_yaml(yaml);
    }
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}, "spec": {"taints": taints},
    });
    api.call_expecting_success("POST", "/api/v1/nodes", Some(&node));
    api.call_expecting_success("POST", "/api/v1/namespaces", Some(&objects::namespace_object()));
}

/// The agent's own pod, and a token of it.
fn agent_token(api: &KubernetesApi) -> String {
    api.call_expecting_success("POST", objects::AGENT_PODS_PATH, Some(&objects::agent_pod()));
    let answer =
        api.call_expecting_success("POST", objects::AGENT_TOKEN_PATH, Some(&objects::agent_token_request()));
    answer["status"]["token"].as_str().unwrap().to_owned()
}
