//! AWS on the node's loopback, which verifies pods' tokens by the keys that the API server publishes; and pods that ask as SDKs do.

use std::net::SocketAddr;

use seawall_core::{Clock, Secret};
use seawall_emulator::aws::{self, Options, Provider, Role, Running, User};
use seawall_emulator::keys::KeySet;
use seawall_testkit::control_plane::ISSUER;
use seawall_testkit::objects::{NAMESPACE, accounts};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::api::Api;
use super::client::{Answer, Client};
use super::network::METADATA;
use super::{Pod, World, until};

/// The directory of roles at the metadata service.
pub(crate) const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
const BASE: &str = "arn:aws:iam::123456789012:role/";
/// Who takes roles by the keys that the agent has.
pub(crate) const USER: &str = "arn:aws:iam::123456789012:user/seawall";

/// The ARN of a role.
pub(crate) fn arn(role: &str) -> String {
    format!("{BASE}{role}")
}

/// A role that one may take, and nobody else.
pub(crate) fn role(name: &str, trusted: &str) -> Role {
    Role::open(&arn(name)).trusting(trusted)
}

/// The role of a ServiceAccount's own name, and the annotation that names it.
pub(crate) fn give_role(api: &Api, account: &str) -> Role {
    let says = json!({"eks.amazonaws.com/role-arn": arn(account)});
    annotate(api, &format!("{}/{account}", accounts()), &says);
    role(account, &format!("system:serviceaccount:{NAMESPACE}:{account}"))
}

/// Puts annotations on an object.
pub(crate) fn annotate(api: &Api, path: &str, annotations: &Value) {
    api.must("PATCH", path, Some(&json!({ "metadata": { "annotations": annotations } })));
}

/// A running STS; ends with the value.
pub(crate) struct Sts {
    running: Running,
    _runtime: Runtime,
}

impl Sts {
    /// One with these roles, which takes the tokens of this API server.
    pub(crate) fn start(api: &Api, roles: Vec<Role>) -> Self {
        let keys = api.call("GET", "/openid/v1/jwks", None).unwrap().1;
        let provider = Provider {
            issuer: ISSUER.into(),
            keys: KeySet::parse(&keys).unwrap(),
            audiences: ["sts.amazonaws.com".to_owned()].into(),
        };
        let secret_access_key = Secret::new("s3cret".to_owned());
        let user = User { arn: USER.into(), access_key_id: "AKIASEAWALL".into(), secret_access_key };
        let options = Options { providers: vec![provider], roles, users: vec![user], ..Options::default() };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let running = runtime.block_on(aws::start(options, Clock::system())).unwrap();
        Self { running, _runtime: runtime }
    }

    /// The agent's section about it; the keys are in a file beside the configuration, which this writes.
    pub(crate) fn section(&self, world: &World) -> String {
        let keys = "[default]\naws_access_key_id = AKIASEAWALL\naws_secret_access_key = s3cret\n";
        std::fs::write(world.folder.path().join("keys"), keys).unwrap();
        format!(
            "aws:\n  region: eu-west-1\n  account: \"123456789012\"\n  ways: [irsa, kiam]\n  credentials: {{ from: file, file: keys }}\n  \
             stsUrl: \"{}\"\n",
            self.running.url()
        )
    }

    /// The role of a document's session.
    pub(crate) fn role_of(&self, document: &Value) -> String {
        self.running.session(document["Token"].as_str().unwrap()).unwrap().role
    }
}

impl Pod {
    /// One request of its container to the node's address.
    pub(crate) fn send(&self, port: u16, request: &str) -> Answer {
        let to = SocketAddr::from((METADATA, port));
        self.sandbox.run(|| Client::connect(self.sandbox.address, to).ask(request))
    }

    /// What AWS's metadata service answers, as an SDK asks; again while STS takes longer than clients wait.
    pub(crate) fn get(&self, target: &str) -> Answer {
        let put = "PUT /latest/api/token HTTP/1.1\r\nHost: a\r\nX-aws-ec2-metadata-token-ttl-seconds: 21600\r\n\r\n";
        let token = self.send(80, put);
        assert_eq!(token.status, 200, "{token:?}");
        let get =
            format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-aws-ec2-metadata-token: {}\r\n\r\n", token.body);
        until("an answer in time", || Some(self.send(80, &get)).filter(|answer| answer.status != 503))
    }

    /// Its credentials.
    pub(crate) fn document(&self) -> Value {
        let listed = self.get(ROLES);
        assert_eq!(listed.status, 200, "{listed:?}");
        self.get(&format!("{ROLES}{}", listed.body)).json()
    }
}
