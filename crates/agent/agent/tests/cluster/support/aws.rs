//! An emulated AWS beside the emulated Google, and pods that have roles there by the annotations of their objects.

use std::net::{Ipv4Addr, SocketAddr};

use seawall_core::{Clock, Secret};
use seawall_emulator::aws::{self, AwsEmulator, AwsEmulatorOptions, IamRole, IamUser, OidcProvider};
use seawall_emulator::keys::KeySet;
use seawall_testkit::control_plane::ISSUER;
use seawall_testkit::kubernetes_client::KubernetesApi;
use seawall_testkit::objects::{NAMESPACE, pods_path, service_accounts_path};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::client::{Answer, Client};
use super::network::{CONTAINERS, GATEWAY, METADATA};
use super::{Pod, World, wait_until_some, wait_until_true};

/// The directory of roles at the metadata service.
pub(crate) const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
pub(crate) const BASE: &str = "arn:aws:iam::123456789012:role/";
/// Who takes roles by the keys that the agent has.
const USER: &str = "arn:aws:iam::123456789012:user/seawall";

/// STS on the node, which takes the tokens of this API server.
pub(crate) struct Sts {
    running: AwsEmulator,
    _runtime: Runtime,
}

impl Sts {
    /// One with these roles.
    pub(crate) fn start(api: &KubernetesApi, roles: Vec<IamRole>) -> Self {
        let keys = api.call("GET", "/openid/v1/jwks", None).unwrap().1;
        let provider = OidcProvider {
            issuer: ISSUER.into(),
            keys: KeySet::parse(&keys).unwrap(),
            audiences: ["sts.amazonaws.com".to_owned()].into(),
        };
        let secret_access_key = Secret::new("s3cret".to_owned());
        let user = IamUser { arn: USER.into(), access_key_id: "AKIASEAWALL".into(), secret_access_key };
        // At the gateway, too: a pod that has credentials asks it who it is.
        let listen = (Ipv4Addr::UNSPECIFIED, 0).into();
        let options = AwsEmulatorOptions {
            listen,
            providers: vec![provider],
            roles,
            users: vec![user],
            ..AwsEmulatorOptions::default()
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let running = runtime.block_on(aws::start(options, Clock::system())).unwrap();
        Self { running, _runtime: runtime }
    }

    /// The agent's section about it, with these lines more; the keys are in a file beside the configuration, which this writes.
    pub(crate) fn section(&self, world: &World, more: &str) -> String {
        let keys = "[default]\naws_access_key_id = AKIASEAWALL\naws_secret_access_key = s3cret\n";
        std::fs::write(world.folder.path().join("keys"), keys).unwrap();
        format!(
            "aws:\n  region: eu-west-1\n  account: \"123456789012\"\n  roleSources: [irsa, kiam]\n  credentials: {{ source: file, file: keys }}\n  \
             stsUrl: \"http://127.0.0.1:{}\"\n{more}",
            self.running.address().port()
        )
    }

    /// Where pods find it.
    pub(crate) fn url_in_pods(&self) -> String {
        format!("http://{GATEWAY}:{}", self.running.address().port())
    }

    /// The role of a document's session.
    pub(crate) fn role_of(&self, document: &Value) -> String {
        self.running.session_of_token(document["Token"].as_str().unwrap()).unwrap().role
    }

    /// Who a program is that says this of its credentials: its own ARN, or a key's id and the session token that belongs to it.
    pub(crate) fn caller(&self, said: &str) -> Option<String> {
        if said.starts_with("arn:") {
            return Some(said.to_owned());
        }
        let (id, token) = said.split_once(' ')?;
        let session = self.running.session_of_token(token).filter(|session| session.access_key_id == id)?;
        Some(session.arn())
    }
}

/// A world whose agent speaks AWS's dialects, too. `tokens` are `required` or `optional`.
pub(crate) fn start(tokens: &str) -> (World, Sts) {
    let mut world = World::start(&["irsa", "plain-kiam", "plain-none"], "");
    let roles = vec![
        trusting("irsa", &subject("irsa")),
        trusting("irsa-other", &subject("plain-none")),
        trusting("kiam-reader", USER),
    ];
    let sts = Sts::start(&world.api, roles);
    let more =
        format!("  imds: {{ httpTokens: {tokens} }}\n  instance: {{ availabilityZone: eu-west-1a }}\n");
    let section = sts.section(&world, &more);
    let listener =
        format!("\"127.0.0.1:0\", {{ address: \"{CONTAINERS}:80\", dialects: [aws-containers] }}]");
    world.reconfigure(|text| text.replacen("\"127.0.0.1:0\"]", &listener, 1) + &section);
    wait_until_true("the agent to be ready", || world.admin("/readyz").status == 200);
    (world, sts)
}

/// The ARN of a role.
pub(crate) fn arn(role: &str) -> String {
    format!("{BASE}{role}")
}

fn trusting(role: &str, trusted: &str) -> IamRole {
    IamRole::trusting_everyone(&arn(role)).with_trusted_caller(trusted)
}

fn subject(account: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{account}")
}

/// The role of a ServiceAccount's own name, and IRSA's annotation that names it.
pub(crate) fn give_role(world: &World, account: &str) -> IamRole {
    annotate(
        world,
        &format!("{}/{account}", service_accounts_path()),
        &json!({"eks.amazonaws.com/role-arn": arn(account)}),
    );
    trusting(account, &subject(account))
}

/// Adds annotations to the object at this path.
pub(crate) fn annotate(world: &World, path: &str, annotations: &Value) {
    world.api.call_expecting_success(
        "PATCH",
        path,
        Some(&json!({ "metadata": { "annotations": annotations } })),
    );
}

/// Before its address is known, if it is to be so from the beginning.
pub(crate) fn annotate_pod(world: &World, pod: &Pod, annotations: &Value) {
    annotate(world, &format!("{}/{}", pods_path(), pod.name), annotations);
}

/// A pod that runs, with these annotations from the beginning of its address on.
pub(crate) fn annotated(world: &mut World, name: &str, account: &str, annotations: &Value) -> Pod {
    let pod = world.bound(name, account);
    annotate_pod(world, &pod, annotations);
    world.api.set_pod_status(name, "Running", &pod.sandbox.address.to_string());
    pod
}

/// Gives the ServiceAccount `irsa` a role by IRSA's annotation; the namespace permits those that pods name by KIAM's.
pub(crate) fn give_roles(world: &World) {
    give_role(world, "irsa");
    permit(world, "kiam-.*");
}

/// Has the namespace permit the roles that match this.
pub(crate) fn permit(world: &World, roles: &str) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}");
    annotate(world, &path, &json!({"iam.amazonaws.com/permitted": roles}));
}

/// A token of this pod for the endpoint of containers.
pub(crate) fn containers_token(world: &World, pod: &Pod) -> String {
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {
            "audiences": ["pods.eks.amazonaws.com"],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name},
        },
    });
    let path = format!("{}/{}/token", service_accounts_path(), pod.account);
    world.api.call_expecting_success("POST", &path, Some(&request))["status"]["token"]
        .as_str()
        .unwrap()
        .to_owned()
}

impl Pod {
    /// One request of its container.
    pub(crate) fn send(&self, to: Ipv4Addr, request: &str) -> Answer {
        let to = SocketAddr::from((to, 80));
        self.sandbox.run(|| Client::connect(self.sandbox.address, to).ask(request))
    }

    /// What the metadata service answers, as an SDK asks; again while STS takes longer than clients wait.
    pub(crate) fn get(&self, target: &str) -> Answer {
        let put = "PUT /latest/api/token HTTP/1.1\r\nHost: a\r\nX-aws-ec2-metadata-token-ttl-seconds: 21600\r\n\r\n";
        let token = self.send(METADATA, put);
        assert_eq!(token.status, 200, "{token:?}");
        let get =
            format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-aws-ec2-metadata-token: {}\r\n\r\n", token.body);
        wait_until_some("an answer in time", || {
            Some(self.send(METADATA, &get)).filter(|answer| answer.status != 503)
        })
    }

    /// Its credentials.
    pub(crate) fn document(&self) -> Value {
        let listed = self.get(ROLES);
        assert_eq!(listed.status, 200, "{listed:?}");
        self.get(&format!("{ROLES}{}", listed.body)).json()
    }
}
