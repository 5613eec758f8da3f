//! AWS's roles by the annotations of real objects: what is said of a pod, its ServiceAccount and its namespace, and what changes.

use std::net::SocketAddr;

use seawall_core::{Clock, Secret};
use seawall_emulator::aws::{self, Options, Provider, Role, Running, User};
use seawall_emulator::keys::KeySet;
use seawall_testkit::control_plane::ISSUER;
use seawall_testkit::objects::{NAMESPACE, accounts, pods};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::client::{Answer, Client};
use crate::support::network::METADATA;
use crate::support::*;

const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
const BASE: &str = "arn:aws:iam::123456789012:role/";
const USER: &str = "arn:aws:iam::123456789012:user/seawall";
const CONTAINERS: u16 = 8023;

/// STS on the node's loopback, which takes the tokens of this API server.
struct Sts {
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
    fn role_of(&self, document: &Value) -> String {
        self.running.session(document["Token"].as_str().unwrap()).unwrap().role
    }
}

/// A world whose agent speaks AWS's dialects, too.
fn start() -> (World, Sts) {
    let mut world = World::start(&["irsa", "plain-kiam"], "");
    let sts = Sts::start(&world);
    let (config, keys) = (world.folder.path().join("agent.yaml"), world.folder.path().join("keys"));
    std::fs::write(&keys, "[default]\naws_access_key_id = AKIASEAWALL\naws_secret_access_key = s3cret\n")
        .unwrap();
    let text = std::fs::read_to_string(&config).unwrap();
    let listener =
        format!("\"127.0.0.1:0\", {{ address: \"{METADATA}:{CONTAINERS}\", dialects: [aws-containers] }}]");
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

fn annotate(world: &World, path: &str, annotations: &Value) {
    world.api.must("PATCH", path, Some(&json!({ "metadata": { "annotations": annotations } })));
}

/// A pod that runs, with these annotations from the beginning of its address on.
fn annotated(world: &mut World, name: &str, account: &str, annotations: &Value) -> Pod {
    let pod = world.bound(name, account);
    annotate(world, &format!("{}/{name}", pods()), annotations);
    world.api.report(name, "Running", &pod.sandbox.address.to_string());
    pod
}

impl Pod {
    fn send(&self, port: u16, request: &str) -> Answer {
        let to = SocketAddr::from((METADATA, port));
        self.sandbox.run(|| Client::connect(self.sandbox.address, to).ask(request))
    }

    /// What the metadata service answers, as an SDK asks; again while STS takes longer than clients wait.
    fn get(&self, target: &str) -> Answer {
        let put = "PUT /latest/api/token HTTP/1.1\r\nHost: a\r\nX-aws-ec2-metadata-token-ttl-seconds: 21600\r\n\r\n";
        let token = self.send(80, put);
        assert_eq!(token.status, 200, "{token:?}");
        let get =
            format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-aws-ec2-metadata-token: {}\r\n\r\n", token.body);
        until("an answer in time", || Some(self.send(80, &get)).filter(|answer| answer.status != 503))
    }

    fn document(&self) -> Value {
        let listed = self.get(ROLES);
        assert_eq!(listed.status, 200, "{listed:?}");
        self.get(&format!("{ROLES}{}", listed.body)).json()
    }
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_service_accounts_role_and_a_pods_own_are_theirs_by_their_annotations() {
    let (mut world, sts) = start();
    annotate(
        &world,
        &format!("{}/irsa", accounts()),
        &json!({"eks.amazonaws.com/role-arn": format!("{BASE}irsa")}),
    );
    annotate(
        &world,
        &format!("/api/v1/namespaces/{NAMESPACE}"),
        &json!({"iam.amazonaws.com/permitted": "kiam-.*"}),
    );
    let irsa = world.pod("irsa-0", "irsa");
    let kiam =
        annotated(&mut world, "kiam-0", "plain-kiam", &json!({"iam.amazonaws.com/role": "kiam-reader"}));
    assert_eq!(sts.role_of(&irsa.document()), format!("{BASE}irsa"));
    assert_eq!(sts.role_of(&kiam.document()), format!("{BASE}kiam-reader"));
    // Google's beside them, at the same address.
    world.check_pod(&irsa);

    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {
            "audiences": ["pods.eks.amazonaws.com"],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "irsa-0"},
        },
    });
    let path = format!("{}/irsa/token", accounts());
    let token = world.api.must("POST", &path, Some(&request))["status"]["token"].as_str().unwrap().to_owned();
    let ask = |pod: &Pod| {
        let request = format!(
            "GET /v1/credentials HTTP/1.1\r\nHost: {METADATA}:{CONTAINERS}\r\nAuthorization: {token}\r\n\r\n"
        );
        pod.send(CONTAINERS, &request)
    };
    assert_eq!(sts.role_of(&ask(&irsa).json()), format!("{BASE}irsa"));
    assert_eq!(ask(&kiam).json()["code"], "foreign_token");
}

#[test]
#[ignore = "SKIPPED: needs kube-apiserver and etcd: run scripts/cluster-test"]
fn a_namespace_that_does_not_permit_a_role_is_named_in_an_event_and_permits_it_once_it_says_so() {
    let (mut world, sts) = start();
    let role = json!({"iam.amazonaws.com/role": "kiam-reader"});
    let kiam = annotated(&mut world, "kiam-0", "plain-kiam", &role);
    until_true("the refusal", || kiam.get(ROLES).status == 403);
    assert_eq!(kiam.get(ROLES).json()["code"], "nothing_permitted");
    let (reason, message) = world.events(&kiam).remove(0);
    assert_eq!(reason, "CredentialsRefusedByPolicy");
    assert!(message.contains("iam.amazonaws.com/permitted"), "{message}");

    let namespace = format!("/api/v1/namespaces/{NAMESPACE}");
    annotate(&world, &namespace, &json!({"iam.amazonaws.com/permitted": ".*"}));
    until_true("the namespace to permit it", || kiam.get(ROLES).status == 200);
    assert_eq!(sts.role_of(&kiam.document()), format!("{BASE}kiam-reader"));
    annotate(&world, &namespace, &json!({"iam.amazonaws.com/permitted": "other"}));
    until_true("the namespace to take it back", || kiam.get(ROLES).status == 403);
}
