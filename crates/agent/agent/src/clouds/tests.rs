//! What the list of clouds does for each of them, on a listener that both share; and a pod with its clouds, for other tests.

use std::io::{Read, Write};
use std::time::Duration;

use seawall_config::Document;
use seawall_core::attestation::Basis;
use seawall_core::events::Complainer;
use seawall_core::facts::{Annotations, Beside};
use seawall_core::pod::{SubjectFuture, SubjectTokens};
use seawall_core::{Facts, ManualClock, Pod, PodUid, Secret, ServiceAccount, shutdown};
use seawall_http::request::header_room;
use seawall_http::{Frame, Limits, Parsed, parse_request};
use seawall_server::client::{ClientShares, ServedPod};
use seawall_server::handler::Asked;
use seawall_server::response::Writing;
use seawall_server::testing::Bench;
use seawall_server::thread::{Answers, Next};
use seawall_server::upstream::long_polls::LongPolls;
use seawall_server::upstream::permits::Places;
use serde_json::json;

use super::*;
use crate::Path;
use crate::clouds::pod::{Client, PodCaller, Step};

const BOTH: &str = "google: { mode: conceal }\naws: { region: eu-central-1, imds: { tokens: optional } }\n";

/// Both give pods credentials of their own. AWS decides by the pod alone, Google once its ServiceAccount is read.
pub(crate) const BOTH_BROKERED: &str = "google: { projectId: p, numericProjectId: 1, zone: z, cluster: { name: c, location: l }, \
    provider: \"//iam.googleapis.com/x\" }\naws: { region: eu-central-1, ways: [kube2iam], imds: { tokens: optional } }\n";

#[derive(Debug)]
struct Named;

impl SubjectTokens for Named {
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a> {
        Box::pin(async move { Ok(Secret::new(format!("token-for-{audience}"))) })
    }
}

/// A pod on a listener that speaks both dialects.
pub(crate) struct World {
    sections: Sections,
    pub(crate) clouds: Arc<Clouds>,
    tools: Tools,
    pub(crate) dialects: Rc<Dialects>,
    pub(crate) caller: Client,
    pub(crate) pod: Arc<PodCaller>,
    pub(crate) clock: Clock,
    pub(crate) hand: ManualClock,
    subject: Arc<dyn SubjectTokens>,
    /// Whether its pod was told of at the address that asks.
    pub(crate) is_expected: bool,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(BOTH)
    }

    /// With these sections, and a ServiceAccount that is not read.
    pub(crate) fn of(sections: &str) -> Self {
        Self::with(sections, Clock::manual(), Arc::new(Named))
    }

    /// With this clock and these Kubernetes tokens, too.
    pub(crate) fn with(
        sections: &str,
        (clock, hand): (Clock, ManualClock),
        subject: Arc<dyn SubjectTokens>,
    ) -> Self {
        let document = Document::parse(sections).unwrap();
        let sections = Sections::read(&document.root(), Path::new("/"), &[]);
        let clouds = Arc::new(Clouds::start(&sections, &clock, &Handle::current()).unwrap());
        let service_account = ServiceAccount { namespace: "shop".into(), name: "cart".into() };
        let pod = Pod { uid: PodUid("u1".into()), name: "cart-0".into(), service_account };
        let (_, stop) = shutdown::switch();
        let long_polls = LongPolls { all: Arc::default(), most: 1, most_per_pod: 1, stop };
        let tools = Tools { long_polls, places: Places::new(1), idle: 1 };
        let entitlements = entitlements(&clouds, &pod, Beside::NotRead, &subject, Complainer::default());
        let pod = resident(pod, entitlements);
        let dialects = Rc::new(clouds.speak(&[sections.dialects()], &tools).unwrap().remove(0));
        let caller = Client::Pod(pod.clone());
        Self { sections, clouds, tools, dialects, caller, pod, clock, hand, subject, is_expected: false }
    }

    /// Another pod of the same ServiceAccount, of which this is known.
    pub(crate) fn another(&self, name: &str, known: Beside, complainer: Complainer) -> Client {
        let pod = Pod { uid: PodUid(name.into()), name: name.into(), ..self.pod().pod.clone() };
        let entitlements = entitlements(&self.clouds, &pod, known, &self.subject, complainer);
        Client::Pod(resident(pod, entitlements))
    }

    /// Its clouds, as who outlives them has them.
    pub(crate) fn in_force(&self) -> Arc<CloudsInForce> {
        Arc::new(CloudsInForce::new(self.clouds.clone()))
    }

    pub(crate) fn pod(&self) -> &Arc<PodCaller> {
        &self.pod
    }

    /// What its pod may have by what is known of its ServiceAccount.
    pub(crate) fn entitlements(&self, service_account: Beside) -> Entitlements {
        entitlements(&self.clouds, &self.pod().pod, service_account, &self.subject, Complainer::default())
    }

    /// What its pod, which had `before`, may have of these clouds by the same.
    pub(crate) fn entitlements_of(
        &self,
        clouds: &Clouds,
        service_account: Beside,
        before: &Entitlements,
    ) -> Entitlements {
        let applicant = Applicant {
            pod: &self.pod().pod,
            facts: &Facts { pod: Annotations::default(), service_account, namespace: Beside::NotRead },
            subject: &|| self.subject.clone(),
            complainer: Complainer::default(),
            ahead: false,
        };
        clouds.entitle(&applicant, before)
    }

    /// The clouds of these sections in the place of its own, and which of them are others.
    pub(crate) fn succeeded_by(&self, sections: &str) -> (Arc<Clouds>, Vec<CloudName>) {
        let document = Document::parse(sections).unwrap();
        let next = Sections::read(&document.root(), Path::new("/"), &[]);
        let changed = self.sections.changed(&next);
        let clouds = self.clouds.succeeded_by(&next, &changed, &self.clock, &Handle::current());
        (Arc::new(clouds.unwrap()), changed)
    }

    /// This pod, of which that is known, and for which credentials are fetched ahead.
    pub(crate) fn newcomer(
        &self,
        pod: Pod,
        facts: &Facts,
        subject: &Arc<dyn SubjectTokens>,
    ) -> Arc<PodCaller> {
        let applicant = Applicant {
            pod: &pod,
            facts,
            subject: &|| subject.clone(),
            complainer: Complainer::default(),
            ahead: true,
        };
        let entitlements = self.clouds.entitle(&applicant, &Entitlements::default());
        resident(pod, entitlements)
    }

    /// Another pod of the same ServiceAccount, of which this is known; its credentials are fetched ahead.
    pub(crate) fn ahead(&self, name: &str, known: Beside) -> Arc<PodCaller> {
        let pod = Pod { uid: PodUid(name.into()), name: name.into(), ..self.pod().pod.clone() };
        let facts = Facts { pod: Annotations::default(), service_account: known, namespace: Beside::NotRead };
        self.newcomer(pod, &facts, &self.subject)
    }

    /// The answer to one request, and whether it was there at once.
    async fn ask(&self, request: &str) -> (String, bool) {
        let (method, target) = request.split_once(' ').unwrap();
        self.ask_with(method, target, "A: b").await
    }

    pub(crate) async fn ask_with(&self, method: &str, target: &str, header: &str) -> (String, bool) {
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n");
        self.ask_as(&self.caller, bytes.as_bytes()).await
    }

    /// The answer to another pod's request.
    pub(crate) async fn get_as(&self, caller: &Client, target: &str) -> String {
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        self.ask_as(caller, bytes.as_bytes()).await.0
    }

    /// The answer to these bytes of somebody's, and whether it was there at once. A credential is counted, as on a connection.
    pub(crate) async fn ask_as(&self, caller: &Client, bytes: &[u8]) -> (String, bool) {
        let mut room = header_room();
        let Ok(Parsed::Complete(head, _)) = parse_request(bytes, &mut room, &Limits::default()) else {
            panic!("{}", String::from_utf8_lossy(bytes))
        };
        let (now, frame) = (self.clock.now(), Frame::of(&head, DATE));
        let pod = if let Client::Pod(pod) = caller { pod } else { &self.pod };
        let asked = Asked {
            head: &head,
            frame: &frame,
            shares: ClientShares { client: pod.id, long_polls: &pod.long_polls },
            peer: [127, 0, 0, 1].into(),
            request: 1,
            came: now,
            now,
            is_expected: self.is_expected,
            is_to_be_remembered: false,
        };
        let mut out = Vec::new();
        let step = self.dialects.of(head.target).answer(caller, asked, &mut out);
        let at_once = matches!(step, Step::Answered { .. } | Step::Lent { .. });
        match step {
            Step::Lent { route, .. } => pod.fetched(route, Some(bytes)),
            Step::Later(later) => {
                let route = later.route;
                if route.is_credential() {
                    pod.noted(route, bytes);
                }
                let written = later.reply.await.write(&Writing { frame: &frame, request: 1, now }, &mut out);
                if written.status == 200 && route.is_credential() {
                    pod.fetched(route, None);
                }
            }
            Step::Answered { .. } | Step::NotYet => {}
        }
        (String::from_utf8(out).unwrap(), at_once)
    }
}

fn resident(pod: Pod, entitlements: Entitlements) -> Arc<PodCaller> {
    Arc::new(PodCaller::new(pod, Basis::default(), entitlements))
}

fn entitlements(
    clouds: &Clouds,
    pod: &Pod,
    service_account: Beside,
    subject: &Arc<dyn SubjectTokens>,
    complainer: Complainer,
) -> Entitlements {
    let applicant = Applicant {
        pod,
        facts: &Facts { pod: Annotations::default(), service_account, namespace: Beside::NotRead },
        subject: &|| subject.clone(),
        complainer,
        ahead: false,
    };
    clouds.entitle(&applicant, &Entitlements::default())
}

const DATE: &[u8; 29] = b"Thu, 01 Jan 2026 00:00:00 GMT";

#[tokio::test]
async fn the_path_chooses_among_the_dialects_of_a_listener() {
    let world = World::new();
    assert!(world.dialects.of("/latest/api/token").goes_on_after("PUT"));
    assert!(!world.dialects.of("/computeMetadata/v1/").goes_on_after("PUT"));
    let (answer, _) = world.ask("GET /computeMetadata/v1/instance/attributes/kube-env").await;
    assert!(answer.contains("Metadata-Flavor: Google"), "{answer}");
    let (answer, _) = world.ask("GET /latest/elsewhere").await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && !answer.contains("Google"), "{answer}");
    let (answer, _) = world.ask("GET http://a/%6catest/elsewhere").await;
    assert!(
        answer.starts_with("HTTP/1.1 404 ") && !answer.contains("Google"),
        "however it is spelled: {answer}"
    );
    let (answer, _) = world.ask("GET /nobodys").await;
    assert!(answer.contains("Metadata-Flavor: Google"), "the first one refuses what nobody claims: {answer}");
}

#[tokio::test]
async fn a_pod_is_shown_with_what_each_cloud_says_under_its_name() {
    let world = World::of(BOTH_BROKERED);
    let shown = world.pod().entitlements().describe(world.clock.now());
    assert_eq!(shown["google"], json!({ "standing": "pending" }));
    assert_eq!(shown["aws"], json!({ "standing": "no_role" }));
    assert!(World::new().pod().entitlements().describe(world.clock.now())["google"].is_object());
}

#[tokio::test]
async fn what_the_list_tells_it_tells_of_each_cloud() {
    let world = World::of(BOTH_BROKERED);
    let floors: Vec<_> = world.clouds.floors().iter().map(|state| (state.cloud, state.is_kept)).collect();
    assert_eq!(floors, CloudName::ALL.iter().map(|cloud| (*cloud, true)).collect::<Vec<_>>());
    let routes = world.clouds.routes();
    for cloud in CloudName::ALL {
        assert!(routes.iter().any(|route| route.cloud() == cloud.as_str()), "{cloud:?}");
    }
    let document = Document::parse(BOTH_BROKERED).unwrap();
    let sections = Sections::read(&document.root(), Path::new("/"), &[]);
    assert_eq!(
        (sections.names(), sections.selections().len()),
        (CloudName::ALL.to_vec(), CloudName::ALL.len())
    );
}

#[tokio::test]
async fn each_family_of_figures_is_written_once_with_a_sample_of_each_cloud() {
    let (clock, _hand) = Clock::manual();
    let document = Document::parse(BOTH_BROKERED).unwrap();
    let sections = Sections::read(&document.root(), Path::new("/"), &[]);
    document.finish(()).unwrap();
    let mut registry = Registry::default();
    let clouds = Clouds::start(&sections, &clock, &Handle::current()).unwrap();
    Arc::new(CloudsInForce::new(Arc::new(clouds))).register(&mut registry, &clock);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let mut families: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let count = families.len();
    families.sort_unstable();
    families.dedup();
    assert!(count >= 9 && families.len() == count, "{text}");
    for sample in [r#"seawall_leases{cloud="google"} 0"#, r#"seawall_leases{cloud="aws"} 0"#] {
        assert!(text.contains(sample), "{text}");
    }
}

#[tokio::test]
async fn readiness_is_answered_by_the_dialect_that_it_asks() {
    let world = World { caller: Client::Probe, ..World::new() };
    // In `conceal` the real server answers Google's.
    for probe in world.clouds.probes(&[DialectName::AwsImds, DialectName::AwsContainers]) {
        let headers = probe.headers.trim_end();
        let (answer, at_once) = world.ask_with(probe.method, probe.target, headers).await;
        assert!(at_once && answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.to_ascii_lowercase().contains(probe.answer_has), "{answer}");
    }
}

#[tokio::test]
async fn a_dialect_is_made_once_for_all_listeners_of_a_thread() {
    let world = World::new();
    let [one, two] = &world.clouds.speak(&vec![vec![DialectName::Google]; 2], &world.tools).unwrap()[..]
    else {
        panic!("two listeners")
    };
    assert!(std::ptr::addr_eq(one.of("/"), two.of("/")));
}

#[test]
fn what_is_no_request_is_refused_in_the_words_of_the_first_dialect() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(async { World::new() });
    let mut out = Vec::new();
    let refusal = seawall_http::Refusal::new(400, "malformed", "no");
    world.dialects.first().refuse(&refusal, &Frame::closing(DATE), 1, &mut out);
    assert!(String::from_utf8(out).unwrap().contains("Metadata-Flavor: Google"));
}

/// A thread that the world's requests are asked of.
fn bench(world: &World) -> Bench<PodCaller> {
    Bench::new(&world.clock, &world.clouds.routes())
}

fn bytes(request: &str) -> String {
    format!("{request} HTTP/1.1\r\nHost: a\r\nMetadata-Flavor: Google\r\n\r\n")
}

/// What a thread makes of one request of the world's pod.
fn ask(world: &World, request: &str) -> Answers {
    ask_of(world, &bytes(request))
}

fn ask_of(world: &World, bytes: &str) -> Answers {
    bench(world).answer(&world.dialects, &world.caller, &world.pod, bytes.as_bytes())
}

#[tokio::test]
async fn a_pod_that_is_gone_is_refused_whatever_dialect_it_asks() {
    let world = World::new();
    world.pod.connections.close();
    for request in ["GET /latest/meta-data/", "GET /computeMetadata/v1/", "GET /nobodys"] {
        let Answers { text: answer, next, .. } = ask(&world, request);
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("pod_gone"), "{request}: {answer}");
        assert_eq!(next, Next::Close, "{request}");
    }
}

/// It was refused, and clients that are refused a token go on without, some for good.
#[tokio::test]
async fn a_pod_that_is_gone_is_given_what_whoever_asks_is_given_and_its_connection_ends() {
    let world = World::of("aws: { region: eu-central-1 }\n");
    world.pod.connections.close();
    let put = "PUT /latest/api/token HTTP/1.1\r\nHost: a\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n";
    let Answers { text: answer, next, .. } = ask_of(&world, put);
    assert!(answer.starts_with("HTTP/1.1 200 ") && next == Next::Close, "{answer}");
    let Answers { text: answer, next, .. } = ask(&world, "PUT /latest/meta-data/");
    assert!(answer.starts_with("HTTP/1.1 405 ") && next == Next::Close, "{answer}");
    let Answers { text: answer, .. } = ask(&world, "GET /latest/meta-data/");
    assert!(answer.contains("pod_gone"), "{answer}");
}

/// Everything was refused there in the words of the first dialect, with the time to wait that AWS's clients must not be told.
#[tokio::test]
async fn at_the_cap_a_session_token_is_given_and_the_rest_is_refused_by_the_dialect_that_is_asked() {
    let world = World::of(BOTH_BROKERED);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let put = "PUT /latest/api/token HTTP/1.1\r\nHost: a\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n";
    for (request, status, is_told_when) in [
        (put.to_owned(), "200", false),
        (bytes("GET /latest/meta-data/"), "503", false),
        (bytes("GET /computeMetadata/v1/project/project-id"), "503", true),
        ("GET /latest/meta-data/".to_owned(), "503", true),
    ] {
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        bench(&world).refuse_at_cap(&mut stream, &world.dialects, &world.pod);
        drop(stream);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        let answer = answer.to_ascii_lowercase();
        assert!(answer.contains("connection: close"), "{answer}");
        assert_eq!(answer.contains("retry-after"), is_told_when, "{request}: {answer}");
    }
}

#[tokio::test]
async fn only_the_cloud_that_is_not_decided_holds_its_requests() {
    let world = World::of(BOTH_BROKERED);
    let Answers { text: answer, taken, next } =
        ask(&world, "GET /computeMetadata/v1/instance/service-accounts/default/token");
    assert_eq!(next, Next::Settle(CloudName::Google, Duration::from_millis(500)));
    assert!(answer.is_empty() && taken == 0, "it is looked at again: {answer}");
    let Answers { text: answer, .. } = ask(&world, "GET /latest/meta-data/iam/security-credentials/");
    assert!(answer.starts_with("HTTP/1.1 404 "), "at once, as far as AWS goes: {answer}");
    let Answers { text: answer, .. } = ask(&world, "GET /");
    assert!(answer.starts_with("HTTP/1.1 200 "), "what is anybody's: {answer}");
}
