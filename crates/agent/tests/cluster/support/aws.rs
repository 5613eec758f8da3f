//! An emulated AWS beside the emulated Google, and pods that have roles there by the annotations of their objects.

use seawall_core::{Clock, Secret};
use seawall_emulator::aws::{self, Options, Provider, Role, Running, User};
use seawall_emulator::keys::KeySet;
use seawall_testkit::control_plane::ISSUER;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::api::{NAMESPACE, pods};
use super::network::CONTAINERS;
use super::{Pod, World, until_true};

pub(crate) const BASE: &str = "arn:aws:iam::123456789012:role/";
const USER: &str = "arn:aws:iam::123456789012:user/seawall";

/// STS on the node's loopback, which takes the tokens of this API server.
pub(crate) struct Sts {
    running: Running,
    _runtime: Runtime,
}

impl Sts {
    fn start(world: &World) -> Self {
        let keys = world.api.call("GET", "/openid/v1/jwks", None).unwrap().1;
        let provider = Provider {
            issuer: ISSUER.into(),
            keys: KeySet::parse(&keys).unwrap(),
            audiences: ["sts.amazonaws.com".to_owned()].into(),
        };
        let role = |name: &str, trusted: &str| Role::open(&format!("{BASE}{name}")).trusting(trusted);
        let roles =
            vec![role("irsa", &format!("system:serviceaccount:{NAMESPACE}:irsa")), role("kiam-reader", USER)];
        let secret_access_key = Secret::new("s3cret".to_owned());
        let user = User { arn: USER.into(), access_key_id: "AKIASEAWALL".into(), secret_access_key };
        let options = Options { providers: vec![provider], roles, users: vec![user], ..Options::default() };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let running = runtime.block_on(aws::start(options, Clock::system())).unwrap();
        Self { running, _runtime: runtime }
    }

    /// The role of a document's session.
    pub(crate) fn role_of(&self, document: &Value) -> String {
        self.running.session(document["Token"].as_str().unwrap()).unwrap().role
    }
}

/// A world whose agent speaks AWS's dialects, too.
pub(crate) fn start() -> (World, Sts) {
    let mut world = World::start(&["irsa", "plain-kiam"], "");
    let sts = Sts::start(&world);
    let (config, keys) = (world.folder.path().join("agent.yaml"), world.folder.path().join("keys"));
    std::fs::write(&keys, "[default]\naws_access_key_id = AKIASEAWALL\naws_secret_access_key = s3cret\n")
        .unwrap();
    let text = std::fs::read_to_string(&config).unwrap();
    let listener =
        format!("\"127.0.0.1:0\", {{ address: \"{CONTAINERS}:80\", dialects: [aws-containers] }}]");
    let text = text.replacen("\"127.0.0.1:0\"]", &listener, 1);
    let section = format!(
        "aws:\n  region: eu-west-1\n  account: \"123456789012\"\n  ways: [irsa, kiam]\n  credentials: {{ from: file, file: keys }}\n  \
         stsUrl: \"{}\"\n",
        sts.running.url()
    );
    std::fs::write(&config, text + &section).unwrap();
    world.restart_agent();
    until_true("the agent to be ready", || world.admin("/readyz").status == 200);
    (world, sts)
}

pub(crate) fn annotate(world: &World, path: &str, annotations: &Value) {
    world.api.must("PATCH", path, Some(&json!({ "metadata": { "annotations": annotations } })));
}

/// A pod that runs, with these annotations from the beginning of its address on.
pub(crate) fn annotated(world: &mut World, name: &str, account: &str, annotations: &Value) -> Pod {
    let pod = world.bound(name, account);
    annotate(world, &format!("{}/{name}", pods()), annotations);
    world.api.report(name, "Running", &pod.sandbox.address.to_string());
    pod
}
