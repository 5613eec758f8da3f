//! AWS emulated in this process, pods with roles there, and an agent between them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use seawall_core::{Clock, Secret};
use seawall_emulator::aws::{
    self, AwsEmulator, AwsEmulatorOptions, AwsSession, IamRole, IamUser, OidcProvider,
};
use seawall_emulator::keys::Algorithm;
use seawall_emulator::service_account_tokens::{Issuer, Workload};
use serde_json::Value;
use tempfile::TempDir;

use super::client::{Answer, Client};
use super::emulator_thread::Hosted;
use super::process::Agent;
use super::{PROGRAM, ip, make_room, wait_until_some};

pub(crate) const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
pub(crate) const BASE: &str = "arn:aws:iam::123456789012:role/";
pub(crate) const ABROAD: &str = "arn:aws:iam::999999999999:role/abroad";
pub(crate) const USER: &str = "arn:aws:iam::123456789012:user/seawall";
/// The role of the node's instance.
pub(crate) const NODE: &str = "arn:aws:iam::123456789012:role/node";
/// A role that is taken before those of pods.
pub(crate) const FIRST: &str = "arn:aws:iam::123456789012:role/first";
const ISSUER: &str = "https://cluster.example";
pub(crate) const CONTAINERS: &str = "pods.eks.amazonaws.com";

/// A pod, and what its objects say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pod {
    pub(crate) at: Ipv4Addr,
    pub(crate) namespace: &'static str,
    pub(crate) name: &'static str,
    pub(crate) account: &'static str,
    /// Entries of the identity file that stand for annotations.
    pub(crate) says: &'static str,
}

/// By its ServiceAccount.
pub(crate) const IRSA: Pod = Pod {
    at: ip(21),
    namespace: "shop",
    name: "irsa-0",
    account: "irsa",
    says: "awsRoleArn: \"arn:aws:iam::123456789012:role/irsa\"",
};
/// By KIAM's annotations.
pub(crate) const KIAM: Pod = Pod {
    at: ip(22),
    namespace: "shop",
    name: "kiam-0",
    account: "kiam",
    says: "awsRole: team/kiam, awsPermitted: \"team/.*\", awsSessionName: cart-session, awsExternalId: me-1",
};
/// By kube2iam's.
pub(crate) const KUBE2IAM: Pod = Pod {
    at: ip(23),
    namespace: "lab",
    name: "kube2iam-0",
    account: "kube2iam",
    says: "awsRole: \"arn:aws:iam::999999999999:role/abroad\", awsAllowedRoles: '[\"arn:aws:iam::999999999999:role/*\"]'",
};
/// By the configuration.
pub(crate) const DEFAULT: Pod =
    Pod { at: ip(24), namespace: "plain", name: "plain-0", account: "plain", says: "" };
/// By nobody.
pub(crate) const NONE: Pod = Pod { at: ip(25), namespace: "shop", name: "none-0", account: "none", says: "" };
/// What its namespace does not permit.
pub(crate) const GREEDY: Pod = Pod {
    at: ip(26),
    namespace: "lab",
    name: "greedy-0",
    account: "greedy",
    says: "awsRole: team/kiam, awsPermitted: lab",
};
/// By two, who differ.
pub(crate) const TORN: Pod = Pod {
    at: ip(27),
    namespace: "lab",
    name: "torn-0",
    account: "torn",
    says: "awsRole: kiam, awsPermitted: \".*\", awsRoleArn: \"arn:aws:iam::123456789012:role/irsa\"",
};

/// By EKS.
pub(crate) const ASSOCIATED: Pod =
    Pod { at: ip(28), namespace: "lab", name: "associated-0", account: "associated", says: "" };
/// Another pod of the same ServiceAccount.
pub(crate) const SIBLING: Pod = Pod { at: ip(29), name: "associated-1", ..ASSOCIATED };
/// By a mistake it is given [`ASSOCIATED`]'s token.
pub(crate) const THIEF: Pod =
    Pod { at: ip(30), namespace: "lab", name: "thief-0", account: "thief", says: "" };

pub(crate) const PODS: [Pod; 10] =
    [IRSA, KIAM, KUBE2IAM, DEFAULT, NONE, GREEDY, TORN, ASSOCIATED, SIBLING, THIEF];

impl Pod {
    fn entry(&self) -> String {
        let Self { at, namespace, name, account, says } = self;
        let token = if *name == THIEF.name { ASSOCIATED.name } else { name };
        format!(
            "- {{ address: {at}, namespace: {namespace}, pod: {name}, serviceAccount: {account}, tokenFile: tokens/{token}, {says} }}\n"
        )
    }

    pub(crate) fn subject(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }
}

/// Everything together. Fields are dropped in this order: the agent goes first.
pub(crate) struct World {
    pub(crate) agent: Agent,
    pub(crate) aws: Hosted<AwsEmulator>,
    issuer: Issuer,
    files: TempDir,
}

impl World {
    /// An agent with these entries in `aws.imds`, and these lines beside the section.
    pub(crate) fn start(imds: &str, beside: &str) -> Self {
        Self::start_as("{ source: file, file: keys }", imds, beside)
    }

    /// The same, where roles are taken for pods as `credentials` says.
    pub(crate) fn start_as(credentials: &str, imds: &str, beside: &str) -> Self {
        Self::start_on("irsa, kiam, kube2iam", credentials, imds, beside)
    }

    /// The same, with these role sources.
    pub(crate) fn start_on(role_sources: &str, credentials: &str, imds: &str, beside: &str) -> Self {
        make_room();
        let issuer = Issuer::generate(ISSUER, Algorithm::Es256).unwrap();
        let aws = Hosted::start(aws::start(options(&issuer), Clock::system()));
        let files = TempDir::with_prefix("seawall-aws-").unwrap();
        let write = |name: &str, text: &str| std::fs::write(files.path().join(name), text).unwrap();
        std::fs::create_dir(files.path().join("tokens")).unwrap();
        write("agent.yaml", &configuration(&aws.url(), role_sources, credentials, imds, beside));
        write("pods.yaml", &format!("pods:\n{}", PODS.iter().map(Pod::entry).collect::<String>()));
        write("keys", "[default]\naws_access_key_id = AKIASEAWALL\naws_secret_access_key = s3cret\n");
        for pod in &PODS {
            let tokens = token(&issuer, pod, &["sts.amazonaws.com", CONTAINERS]);
            write(&format!("tokens/{}", pod.name), &tokens);
        }
        let agent = Agent::start(PROGRAM, &files.path().join("agent.yaml"));
        Self { agent, aws, issuer, files }
    }

    /// The agent stops and another one begins with the same files.
    pub(crate) fn restart(&mut self) {
        self.agent = Agent::start(PROGRAM, &self.files.path().join("agent.yaml"));
    }

    /// Writes what `edit` makes of the agent's file.
    pub(crate) fn edit(&self, edit: impl FnOnce(String) -> String) {
        let file = self.files.path().join("agent.yaml");
        std::fs::write(&file, edit(std::fs::read_to_string(&file).unwrap())).unwrap();
    }

    /// The token that a pod shows at the containers' endpoint.
    pub(crate) fn token(&self, pod: &Pod, audience: &str) -> String {
        token(&self.issuer, pod, &[audience])
    }

    /// One request of a pod to the metadata service, with these header lines.
    pub(crate) fn ask(&self, pod: &Pod, method: &str, target: &str, headers: &str) -> Answer {
        self.send(pod.at, self.agent.listener_addresses[0], &head(method, target, "169.254.169.254", headers))
    }

    pub(crate) fn send(&self, from: Ipv4Addr, to: SocketAddr, request: &str) -> Answer {
        Client::connect(from, to).ask(request)
    }

    /// A session token of a pod's.
    pub(crate) fn session_token(&self, pod: &Pod) -> String {
        let answer = self.ask(pod, "PUT", "/latest/api/token", TTL);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// What the metadata service answers with a session token, once it is no longer short of time.
    pub(crate) fn get(&self, pod: &Pod, target: &str) -> Answer {
        let shown = format!("X-aws-ec2-metadata-token: {}\r\n", self.session_token(pod));
        self.patient(|| self.ask(pod, "GET", target, &shown))
    }

    /// What the containers' endpoint answers to this token, likewise.
    pub(crate) fn contain(&self, pod: &Pod, token: &str) -> Answer {
        let shown = format!("Authorization: {token}\r\n");
        let request = head("GET", "/v1/credentials", "169.254.170.23", &shown);
        self.patient(|| self.send(pod.at, self.agent.listener_addresses[1], &request))
    }

    /// A machine may be so busy that a fetch takes longer than clients wait: they are told to try again, and so does this.
    fn patient(&self, ask: impl Fn() -> Answer) -> Answer {
        wait_until_some("an answer in time", || {
            let answer = ask();
            (answer.status != 503 || !answer.body.contains("upstream_timeout")).then_some(answer)
        })
    }

    /// A pod's document, and whose session it is.
    pub(crate) fn document(&self, pod: &Pod) -> (Value, AwsSession) {
        let listed = self.get(pod, ROLES);
        assert_eq!(listed.status, 200, "{listed:?}");
        let document = self.get(pod, &format!("{ROLES}{}", listed.body));
        assert_eq!(document.status, 200, "once the listing is 200 the document is: {document:?}");
        let document = document.json();
        assert_eq!(document["Code"], "Success");
        let session = self.session(&document);
        (document, session)
    }

    /// Whose session a document is of.
    pub(crate) fn session(&self, document: &Value) -> AwsSession {
        self.aws.session_of_token(document["Token"].as_str().unwrap()).unwrap()
    }

    /// What stands in one of the agent's files, if it is there.
    pub(crate) fn file(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.files.path().join(name)).ok()
    }

    pub(crate) fn admin(&self, path: &str) -> Answer {
        super::client::ask(ip(1), self.agent.admin_address, path)
    }
}

/// As nearly every library asks.
pub(crate) const TTL: &str = "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n";

/// A request's head.
pub(crate) fn head(method: &str, target: &str, host: &str, headers: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n")
}

fn token(issuer: &Issuer, pod: &Pod, audiences: &[&str]) -> String {
    let workload =
        Workload::for_service_account(pod.namespace, pod.account).in_pod(pod.name).on_node("node-1");
    let hour = Duration::from_secs(3600);
    issuer.mint(&workload, audiences, hour, Clock::system().wall_time()).unwrap().expose().clone()
}

/// Roles that trust those who are to have them, and nobody else.
fn options(issuer: &Issuer) -> AwsEmulatorOptions {
    let provider = OidcProvider {
        issuer: ISSUER.into(),
        keys: issuer.key_set().unwrap(),
        audiences: ["sts.amazonaws.com".to_owned()].into(),
    };
    let role = |name: &str, trusted: &str| {
        IamRole::trusting_everyone(&format!("{BASE}{name}")).with_trusted_caller(trusted)
    };
    let roles = vec![
        role("irsa", &IRSA.subject()),
        IamRole {
            external_id: Some("me-1".into()),
            ..role("team/kiam", USER).with_trusted_caller(NODE).with_trusted_caller(FIRST)
        },
        IamRole::trusting_everyone(FIRST).with_trusted_caller(USER).with_trusted_caller(&KIAM.subject()),
        IamRole::trusting_everyone(ABROAD).with_trusted_caller(USER),
        role("plain", USER),
    ];
    let secret_access_key = Secret::new("s3cret".to_owned());
    let user = IamUser { arn: USER.into(), access_key_id: "AKIASEAWALL".into(), secret_access_key };
    let associations = [(ASSOCIATED.subject(), format!("{BASE}team/associated"))].into();
    AwsEmulatorOptions {
        providers: vec![provider],
        roles,
        users: vec![user],
        associations,
        ..AwsEmulatorOptions::default()
    }
}

fn configuration(url: &str, role_sources: &str, credentials: &str, imds: &str, beside: &str) -> String {
    format!(
        "listen: [\"127.0.0.1:0\", {{ address: \"127.0.0.1:0\", dialects: [aws-containers] }}]\nadmin: \"127.0.0.1:0\"\n\
         identity: {{ strategy: static, file: pods.yaml }}\nlogLevel: debug\n{beside}\
         aws:\n  region: eu-west-1\n  account: \"123456789012\"\n  roleSources: [{role_sources}]\n  podIdentity: {{ clusterName: reef, eksAuthUrl: \"{url}\" }}\n  \
         defaultRoles: {{ plain: plain }}\n  credentials: {credentials}\n  stsUrl: \"{url}\"\n  \
         session: {{ tags: [kubernetes-namespace] }}\n  instance: {{ availabilityZone: eu-west-1a }}\n  imds: {{ upstreamUrl: \"{url}\", {imds} }}\n"
    )
}
