//! For tests: a pod with its clouds, whose requests the dialects answer without a server; [`mod@aws`] has it beside an emulated AWS.

#![expect(clippy::unwrap_used, clippy::panic, reason = "for tests alone")]

pub mod aws;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use seawall_config::Document;
use seawall_core::attestation::Basis;
use seawall_core::cloud::CloudName;
use seawall_core::events::Complainer;
use seawall_core::facts::{Annotations, Beside};
use seawall_core::pod::{SubjectFuture, SubjectTokens};
use seawall_core::{Clock, Facts, ManualClock, Pod, PodUid, Secret, ServiceAccount, shutdown};
use seawall_http::request::header_room;
use seawall_http::{Frame, Limits, Parsed, parse_request};
use seawall_server::client::{ClientShares, ServedPod};
use seawall_server::handler::Asked;
use seawall_server::response::Writing;
use seawall_server::upstream::long_polls::LongPolls;
use seawall_server::upstream::permits::Places;
use tokio::runtime::Handle;

use crate::entitlements::Entitlements;
use crate::pod::{Client, Dialects, PodCaller, Step};
use crate::{Applicant, Clouds, CloudsInForce, Sections, Tools};

/// Google passes everything on, AWS gives pods credentials of their own once their ServiceAccount is read.
pub const BOTH: &str =
    "google: { mode: conceal }\naws: { region: eu-central-1, imds: { tokens: optional } }\n";

/// Both give pods credentials of their own. AWS decides by the pod alone, Google once its ServiceAccount is read.
pub const BOTH_BROKERED: &str = "google: { projectId: p, numericProjectId: 1, zone: z, cluster: { name: c, location: l }, \
    provider: \"//iam.googleapis.com/x\" }\naws: { region: eu-central-1, ways: [kube2iam], imds: { tokens: optional } }\n";

#[derive(Debug)]
struct Named;

impl SubjectTokens for Named {
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a> {
        Box::pin(async move { Ok(Secret::new(format!("token-for-{audience}"))) })
    }
}

/// A pod on a listener that speaks both dialects.
pub struct World {
    pub(crate) sections: Sections,
    /// The clouds.
    pub clouds: Arc<Clouds>,
    /// What its dialects were made with.
    pub tools: Tools,
    /// What the listener speaks.
    pub dialects: Rc<Dialects>,
    /// Who asks: the pod, unless a test says otherwise.
    pub caller: Client,
    /// The pod.
    pub pod: Arc<PodCaller>,
    /// A clock that stands still.
    pub clock: Clock,
    /// What moves the clock.
    pub hand: ManualClock,
    subject: Arc<dyn SubjectTokens>,
    /// Whether its pod was told of at the address that asks.
    pub is_expected: bool,
}

impl World {
    /// With both clouds, of which Google needs no credentials.
    #[expect(clippy::new_without_default, reason = "for tests alone")]
    pub fn new() -> Self {
        Self::of(BOTH)
    }

    /// With these sections, and a ServiceAccount that is not read.
    pub fn of(sections: &str) -> Self {
        Self::with(sections, Clock::manual(), Arc::new(Named))
    }

    /// With this clock and these Kubernetes tokens, too.
    pub fn with(
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
    pub fn another(&self, name: &str, known: Beside, complainer: Complainer) -> Client {
        let pod = Pod { uid: PodUid(name.into()), name: name.into(), ..self.pod().pod.clone() };
        let entitlements = entitlements(&self.clouds, &pod, known, &self.subject, complainer);
        Client::Pod(resident(pod, entitlements))
    }

    /// Its clouds, as who outlives them has them.
    pub fn in_force(&self) -> Arc<CloudsInForce> {
        Arc::new(CloudsInForce::new(self.clouds.clone()))
    }

    /// The pod.
    pub fn pod(&self) -> &Arc<PodCaller> {
        &self.pod
    }

    /// What its pod may have by what is known of its ServiceAccount.
    pub fn entitlements(&self, service_account: Beside) -> Entitlements {
        entitlements(&self.clouds, &self.pod().pod, service_account, &self.subject, Complainer::default())
    }

    /// What its pod, which had `before`, may have of these clouds by the same.
    pub fn entitlements_of(
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
    pub fn succeeded_by(&self, sections: &str) -> (Arc<Clouds>, Vec<CloudName>) {
        let document = Document::parse(sections).unwrap();
        let next = Sections::read(&document.root(), Path::new("/"), &[]);
        let changed = self.sections.changed(&next);
        let clouds = self.clouds.succeeded_by(&next, &changed, &self.clock, &Handle::current());
        (Arc::new(clouds.unwrap()), changed)
    }

    /// This pod, of which that is known, and for which credentials are fetched ahead.
    pub fn newcomer(&self, pod: Pod, facts: &Facts, subject: &Arc<dyn SubjectTokens>) -> Arc<PodCaller> {
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
    pub fn ahead(&self, name: &str, known: Beside) -> Arc<PodCaller> {
        let pod = Pod { uid: PodUid(name.into()), name: name.into(), ..self.pod().pod.clone() };
        let facts = Facts { pod: Annotations::default(), service_account: known, namespace: Beside::NotRead };
        self.newcomer(pod, &facts, &self.subject)
    }

    /// The answer to one request, and whether it was there at once.
    pub async fn ask(&self, request: &str) -> (String, bool) {
        let (method, target) = request.split_once(' ').unwrap();
        self.ask_with(method, target, "A: b").await
    }

    /// The same, with this header.
    pub async fn ask_with(&self, method: &str, target: &str, header: &str) -> (String, bool) {
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n");
        self.ask_as(&self.caller, bytes.as_bytes()).await
    }

    /// The answer to another pod's request.
    pub async fn get_as(&self, caller: &Client, target: &str) -> String {
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        self.ask_as(caller, bytes.as_bytes()).await.0
    }

    /// The answer to these bytes of somebody's, and whether it was there at once. A credential is counted, as on a connection.
    pub async fn ask_as(&self, caller: &Client, bytes: &[u8]) -> (String, bool) {
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

/// The date of all answers.
pub const DATE: &[u8; 29] = b"Thu, 01 Jan 2026 00:00:00 GMT";
