//! The upstream load of a full node on AWS, for each method to assume a role.
//!
//! 110 pods with 20 ServiceAccounts and roles send requests over a day of a manual clock. The tests count the calls to STS and
//! EKS Auth.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use seawall_core::annotations::{Annotations, LengthCheckedAnnotation, RelatedAnnotations};
use seawall_core::pod::{SubjectFuture, SubjectTokens};
use seawall_core::{Clock, Pod, PodAnnotations, PodUid, ServiceAccount};
use seawall_emulator::aws::{self, AwsEmulator, AwsEmulatorOptions, AwsEndpoint, OidcProvider};
use seawall_emulator::keys::Algorithm;
use seawall_emulator::service_account_tokens::{Issuer, Workload};
use serde_json::Value;
use tokio::task::{LocalSet, spawn_local, yield_now};

use super::policy::annotations::{PERMITTED_ROLES_ANNOTATION, ROLE_ANNOTATION, ROLE_ARN_ANNOTATION};
use crate::pod::PodOrUnknownClient;
use crate::testing::PodFixture;

const PODS: usize = 110;
const ROLES: usize = 20;
const MINUTE: Duration = Duration::from_secs(60);
const LISTING: &str = "/latest/meta-data/iam/security-credentials/";

/// A method to assume a role, and the number of principals (cached credentials) that it needs.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    /// The endpoint that receives the calls of this method.
    endpoint: AwsEndpoint,
    /// The number of principals on a full node.
    principals: usize,
}

const IRSA: Way = Way { name: "irsa", endpoint: AwsEndpoint::WebIdentity, principals: ROLES };
const KIAM: Way = Way { name: "kiam", endpoint: AwsEndpoint::AssumeRole, principals: ROLES };
const POD_IDENTITY: Way = Way { name: "pod-identity", endpoint: AwsEndpoint::PodIdentity, principals: PODS };

/// The Kubernetes tokens of a pod.
#[derive(Debug)]
struct Tokens {
    issuer: Arc<Issuer>,
    clock: Clock,
    workload: Workload,
}

impl SubjectTokens for Tokens {
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a> {
        let token =
            self.issuer.mint(&self.workload, &[audience], 60 * MINUTE, self.clock.wall_time()).unwrap();
        Box::pin(std::future::ready(Ok(token)))
    }
}

fn role(number: usize) -> String {
    format!("arn:aws:iam::123456789012:role/role-{}", number % ROLES)
}

/// The emulated AWS and the cluster. They keep their state when an agent restarts.
struct Beyond {
    aws: AwsEmulator,
    issuer: Arc<Issuer>,
}

impl Beyond {
    async fn start(clock: &Clock) -> Self {
        let issuer = Arc::new(Issuer::generate("https://cluster.example", Algorithm::Es256).unwrap());
        let provider = OidcProvider {
            issuer: issuer.url().into(),
            keys: issuer.key_set().unwrap(),
            audiences: ["sts.amazonaws.com".to_owned()].into(),
        };
        let subject = |number| format!("system:serviceaccount:shop:sa-{number}");
        let associations = (0..ROLES).map(|number| (subject(number), role(number))).collect();
        let options = AwsEmulatorOptions {
            providers: vec![provider],
            unknown_roles_trust_everyone: true,
            associations,
            ..AwsEmulatorOptions::default()
        };
        Self { aws: aws::start(options, clock.clone()).await.unwrap(), issuer }
    }

    fn calls(&self, way: Way) -> u64 {
        self.aws.endpoint_request_counts(way.endpoint).calls
    }
}

/// An agent and the pods of its node. All pods start together with the agent.
struct Node {
    world: Rc<PodFixture>,
    pods: Vec<PodOrUnknownClient>,
    /// The number of principals. The first pods of `pods`, up to this number, use all of them.
    principals: usize,
}

impl Node {
    fn start(way: Way, beyond: &Beyond, time: (Clock, seawall_core::ManualClock)) -> Self {
        let url = beyond.aws.url();
        let section = format!(
            "aws: {{ region: eu-west-1, account: \"123456789012\", roleSources: [{}], stsUrl: \"{url}\", credentials: {{ source: instance-role }}, \
             podIdentity: {{ clusterName: reef, eksAuthUrl: \"{url}\" }}, imds: {{ httpTokens: optional, upstreamUrl: \"{url}\" }} }}\n",
            way.name
        );
        let clock = time.0.clone();
        let tokens = |workload| -> Arc<dyn SubjectTokens> {
            Arc::new(Tokens { issuer: beyond.issuer.clone(), clock: clock.clone(), workload })
        };
        let world = PodFixture::with_clock_and_tokens(
            &section,
            time,
            tokens(Workload::for_service_account("shop", "sa-0")),
        );
        let pods = (0..PODS)
            .map(|number| {
                let (name, account) = (format!("pod-{number}"), format!("sa-{}", number % ROLES));
                let subject = tokens(Workload::for_service_account("shop", &account).in_pod(&name));
                let service_account = ServiceAccount { namespace: "shop".into(), name: account.into() };
                let pod = Pod { uid: PodUid(name.as_str().into()), name: name.into(), service_account };
                PodOrUnknownClient::Pod(world.prefetching_pod(pod, &facts(way, number), &subject))
            })
            .collect();
        Self { world: Rc::new(world), pods, principals: way.principals }
    }

    /// Lets all pods send requests at once, as SDKs do, and checks that each pod gets its own role. Returns the least remaining
    /// lifetime.
    async fn ask(&self, beyond: &Beyond) -> Duration {
        let ask = |pod: &PodOrUnknownClient| spawn_local(document(self.world.clone(), pod.clone()));
        let asked: Vec<_> = self.pods.iter().map(ask).collect();
        while asked.iter().any(|asking| !asking.is_finished()) {
            self.pass(Duration::from_millis(100)).await;
        }
        let mut least = Duration::MAX;
        for (number, asked) in asked.into_iter().enumerate() {
            let document = asked.await.unwrap();
            let session = beyond.aws.session_of_token(document["Token"].as_str().unwrap()).unwrap();
            assert_eq!(session.role, role(number), "pod-{number} got the role of another pod");
            let end: jiff::Timestamp = document["Expiration"].as_str().unwrap().parse().unwrap();
            let life = std::time::SystemTime::from(end).duration_since(self.world.clock.wall_time()).unwrap();
            least = least.min(life);
        }
        least
    }

    /// Advances the clock, and runs all tasks that wake up.
    ///
    /// Queued calls wait for the clock, so the clock advances by further steps of 100 ms while calls are in flight.
    async fn pass(&self, span: Duration) {
        self.world.manual_clock.advance(span);
        loop {
            for _ in 0..8 {
                for _ in 0..256 {
                    yield_now().await;
                }
                if !self.is_a_call_under_way() {
                    return;
                }
            }
            self.world.manual_clock.advance(Duration::from_millis(100));
        }
    }

    fn is_a_call_under_way(&self) -> bool {
        let now = self.world.clock.now();
        self.pods.iter().take(self.principals).any(|pod| {
            let PodOrUnknownClient::Pod(pod) = pod else { return false };
            let shown = pod.entitlements().to_debug_json(now);
            let principals = shown["aws"]["principals"].as_array();
            principals.is_some_and(|all| all.iter().any(|principal| principal["is_fetching"] == true))
        })
    }
}

/// Returns the annotations that decide a pod's role under this method.
fn facts(way: Way, number: usize) -> PodAnnotations {
    let said = |key: &'static str, text: String| {
        [(key, LengthCheckedAnnotation::from(&*text))].into_iter().collect()
    };
    let mut facts = PodAnnotations {
        own_annotations: Annotations::default(),
        service_account: RelatedAnnotations::of_object(Annotations::default()),
        namespace: RelatedAnnotations::of_object(Annotations::default()),
    };
    match way.endpoint {
        AwsEndpoint::WebIdentity => {
            facts.service_account = RelatedAnnotations::of_object(said(ROLE_ARN_ANNOTATION, role(number)));
        }
        AwsEndpoint::AssumeRole => {
            facts.own_annotations = said(ROLE_ANNOTATION, role(number));
            facts.namespace =
                RelatedAnnotations::of_object(said(PERMITTED_ROLES_ANNOTATION, ".*".to_owned()));
        }
        _ => {}
    }
    facts
}

/// Requests the listing and then the document. Repeats the listing after one second if it gets status 503.
async fn document(world: Rc<PodFixture>, pod: PodOrUnknownClient) -> Value {
    loop {
        let listed = world.get_as_client(&pod, LISTING).await;
        if listed.starts_with("HTTP/1.1 503 ") {
            world.clock.sleep(Duration::from_secs(1)).await;
            continue;
        }
        let role = listed.split("\r\n\r\n").nth(1).unwrap();
        let answer = world.get_as_client(&pod, &format!("{LISTING}{role}")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "listed {listed} and then {answer}");
        return serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    }
}

async fn a_day(way: Way) {
    let (clock, hand) = Clock::manual();
    let beyond = Beyond::start(&clock).await;
    let node = Node::start(way, &beyond, (clock.clone(), hand.clone()));
    let mut least = node.ask(&beyond).await;
    assert_eq!(beyond.calls(way), way.principals as u64, "{way:?}: one call for each principal at the start");
    for _ in 0..24 * 4 {
        for _ in 0..3 {
            node.pass(5 * MINUTE).await;
        }
        least = least.min(node.ask(&beyond).await);
    }
    let calls = beyond.calls(way);
    assert!(calls <= (ROLES * 48 + way.principals) as u64, "{way:?}: {calls} calls");
    assert!(least >= 16 * MINUTE, "{way:?}: {least:?}");
    drop(node);
    // The node reboots: a new agent starts without any state, and all pods send requests at once.
    let rebooted = Node::start(way, &beyond, (clock, hand));
    rebooted.ask(&beyond).await;
    assert_eq!(beyond.calls(way) - calls, way.principals as u64, "{way:?}");
}

#[tokio::test]
async fn a_full_nodes_day_of_irsa_costs_48_calls_a_role_and_a_reboot_one_for_each_principal() {
    LocalSet::new().run_until(a_day(IRSA)).await;
}

#[tokio::test]
async fn a_full_nodes_day_of_kiams_roles_costs_48_calls_a_role_and_a_reboot_one_for_each_principal() {
    LocalSet::new().run_until(a_day(KIAM)).await;
}

#[tokio::test]
async fn a_full_nodes_day_of_pod_identity_costs_no_more_though_each_pod_is_a_principal() {
    LocalSet::new().run_until(a_day(POD_IDENTITY)).await;
}
