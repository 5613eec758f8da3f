//! Test helpers: a pod and its clouds. The clouds' dialects answer requests without a server. [`mod@aws`] adds an emulated AWS.

#![expect(clippy::unwrap_used, clippy::panic, reason = "for tests alone")]

pub mod aws;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use seawall_config::Document;
use seawall_core::annotations::{Annotations, RelatedAnnotations};
use seawall_core::attestation::AttestedAddresses;
use seawall_core::cloud::CloudName;
use seawall_core::kubernetes_events::PodEventRecorder;
use seawall_core::pod::{SubjectFuture, SubjectTokens};
use seawall_core::{Clock, ManualClock, Pod, PodAnnotations, PodUid, Secret, ServiceAccount, shutdown};
use seawall_http::request::header_buffer;
use seawall_http::{HeadLimits, Parsed, ResponseContext, parse_request};
use seawall_server::connection_client::{ServedPod, UpstreamChargedClient};
use seawall_server::handler::RequestContext;
use seawall_server::response::WriteContext;
use seawall_server::upstream::long_poll_limit::LongPollLimit;
use seawall_server::upstream::permits::UpstreamPermits;
use tokio::runtime::Handle;

use crate::entitlements::Entitlements;
use crate::pod::{PodDialects, PodEntry, PodHandlerOutcome, PodOrUnknownClient};
use crate::{Clouds, CloudsConfig, CurrentClouds, DialectResources, EntitlementRequest};

/// A configuration with both clouds. Google forwards all requests. AWS gives a pod its own credentials once the agent knows the
/// pod's ServiceAccount.
pub const BOTH_CLOUDS_CONFIG: &str =
    "google: { mode: conceal }\naws: { region: eu-central-1, imds: { httpTokens: optional } }\n";

/// A configuration in which both clouds give pods their own credentials. AWS decides by the pod's annotations, Google by the
/// annotations of the ServiceAccount.
pub const BOTH_CLOUDS_BROKERED_CONFIG: &str = "google: { projectId: p, numericProjectId: 1, zone: z, cluster: { name: c, location: l }, \
    workloadIdentityProvider: \"//iam.googleapis.com/x\" }\naws: { region: eu-central-1, roleSources: [kube2iam], imds: { httpTokens: optional } }\n";

#[derive(Debug)]
struct Named;

impl SubjectTokens for Named {
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a> {
        Box::pin(async move { Ok(Secret::new(format!("token-for-{audience}"))) })
    }
}

/// A pod, and a listener that speaks the dialects of its clouds.
pub struct PodFixture {
    pub(crate) clouds_config: CloudsConfig,
    /// The running clouds.
    pub clouds: Arc<Clouds>,
    /// The resources with which the dialects were built.
    pub resources: DialectResources,
    /// The dialects of the listener.
    pub dialects: Rc<PodDialects>,
    /// The client that sends requests. It is the pod, unless a test changes it.
    pub caller: PodOrUnknownClient,
    /// The pod of the fixture.
    pub pod: Arc<PodEntry>,
    /// A clock that moves only by `manual_clock`.
    pub clock: Clock,
    /// The handle that advances the clock.
    pub manual_clock: ManualClock,
    subject: Arc<dyn SubjectTokens>,
    /// True if the pod is expected at the address from which requests come.
    pub is_pod_expected: bool,
}

impl PodFixture {
    /// Creates a fixture with the configuration [`BOTH_CLOUDS_CONFIG`].
    #[expect(clippy::new_without_default, reason = "for tests alone")]
    pub fn new() -> Self {
        Self::with_sections(BOTH_CLOUDS_CONFIG)
    }

    /// Creates a fixture with these configuration sections. The agent has not read the pod's ServiceAccount yet.
    pub fn with_sections(sections: &str) -> Self {
        Self::with_clock_and_tokens(sections, Clock::manual(), Arc::new(Named))
    }

    /// Creates a fixture with these sections, this clock and this source of Kubernetes tokens.
    pub fn with_clock_and_tokens(
        sections: &str,
        (clock, manual_clock): (Clock, ManualClock),
        subject: Arc<dyn SubjectTokens>,
    ) -> Self {
        let document = Document::parse(sections).unwrap();
        let sections = CloudsConfig::read(&document.root(), Path::new("/"), &[]);
        let clouds = Arc::new(Clouds::start(&sections, &clock, &Handle::current()).unwrap());
        let service_account = ServiceAccount { namespace: "shop".into(), name: "cart".into() };
        let pod = Pod { uid: PodUid("u1".into()), name: "cart-0".into(), service_account };
        let (_, stop) = shutdown::stop_channel();
        let long_polls =
            LongPollLimit { total_counter: Arc::default(), max_total: 1, max_per_pod: 1, stop_signal: stop };
        let resources = DialectResources {
            long_poll_limit: long_polls,
            upstream_permits: UpstreamPermits::new(1),
            max_idle_connections: 1,
        };
        let entitlements =
            entitlements(&clouds, &pod, RelatedAnnotations::NotRead, &subject, PodEventRecorder::default());
        let pod = resident(pod, entitlements);
        let dialects =
            Rc::new(clouds.build_dialects(&[sections.enabled_dialects()], &resources).unwrap().remove(0));
        let caller = PodOrUnknownClient::Pod(pod.clone());
        Self {
            clouds_config: sections,
            clouds,
            resources,
            dialects,
            caller,
            pod,
            clock,
            manual_clock,
            subject,
            is_pod_expected: false,
        }
    }

    /// Creates another pod of the same ServiceAccount. The ServiceAccount's annotations are `known`.
    pub fn another_pod(
        &self,
        name: &str,
        known: RelatedAnnotations,
        complainer: PodEventRecorder,
    ) -> PodOrUnknownClient {
        let pod = Pod { uid: PodUid(name.into()), name: name.into(), ..self.pod().pod.clone() };
        let entitlements = entitlements(&self.clouds, &pod, known, &self.subject, complainer);
        PodOrUnknownClient::Pod(resident(pod, entitlements))
    }

    /// Returns the clouds in a cell, for code that outlives a configuration.
    pub fn new_current_clouds(&self) -> Arc<CurrentClouds> {
        Arc::new(CurrentClouds::new(self.clouds.clone()))
    }

    /// Returns the pod of the fixture.
    pub fn pod(&self) -> &Arc<PodEntry> {
        &self.pod
    }

    /// Returns the entitlements of the pod if its ServiceAccount has these annotations.
    pub fn entitlements_with_service_account_annotations(
        &self,
        service_account: RelatedAnnotations,
    ) -> Entitlements {
        entitlements(
            &self.clouds,
            &self.pod().pod,
            service_account,
            &self.subject,
            PodEventRecorder::default(),
        )
    }

    /// Returns the entitlements of the pod under `clouds`, if the pod had the entitlements `before`.
    pub fn entitlements_under_clouds(
        &self,
        clouds: &Clouds,
        service_account: RelatedAnnotations,
        before: &Entitlements,
    ) -> Entitlements {
        let applicant = EntitlementRequest {
            pod: &self.pod().pod,
            annotations: &PodAnnotations {
                own_annotations: Annotations::default(),
                service_account,
                namespace: RelatedAnnotations::NotRead,
            },
            create_subject_token_source: &|| self.subject.clone(),
            event_recorder: PodEventRecorder::default(),
            should_prefetch: false,
        };
        clouds.decide_entitlements(&applicant, before)
    }

    /// Returns the clouds after a reload with these sections, and the names of the clouds whose sections changed.
    pub fn clouds_after_reload(&self, sections: &str) -> (Arc<Clouds>, Vec<CloudName>) {
        let document = Document::parse(sections).unwrap();
        let next = CloudsConfig::read(&document.root(), Path::new("/"), &[]);
        let changed = self.clouds_config.changed_clouds(&next);
        let clouds = self.clouds.with_config(&next, &changed, &self.clock, &Handle::current());
        (Arc::new(clouds.unwrap()), changed)
    }

    /// Creates a pod with these annotations, for which the agent prefetches credentials.
    pub fn prefetching_pod(
        &self,
        pod: Pod,
        facts: &PodAnnotations,
        subject: &Arc<dyn SubjectTokens>,
    ) -> Arc<PodEntry> {
        let applicant = EntitlementRequest {
            pod: &pod,
            annotations: facts,
            create_subject_token_source: &|| subject.clone(),
            event_recorder: PodEventRecorder::default(),
            should_prefetch: true,
        };
        let entitlements = self.clouds.decide_entitlements(&applicant, &Entitlements::default());
        resident(pod, entitlements)
    }

    /// Creates another pod of the same ServiceAccount, for which the agent prefetches credentials. The ServiceAccount's
    /// annotations are `known`.
    pub fn another_prefetching_pod(&self, name: &str, known: RelatedAnnotations) -> Arc<PodEntry> {
        let pod = Pod { uid: PodUid(name.into()), name: name.into(), ..self.pod().pod.clone() };
        let facts = PodAnnotations {
            own_annotations: Annotations::default(),
            service_account: known,
            namespace: RelatedAnnotations::NotRead,
        };
        self.prefetching_pod(pod, &facts, &self.subject)
    }

    /// Sends a request of the form `METHOD TARGET`. Returns the answer, and whether the answer was immediate.
    pub async fn send_request(&self, request: &str) -> (String, bool) {
        let (method, target) = request.split_once(' ').unwrap();
        self.send_with_header(method, target, "A: b").await
    }

    /// Sends a request with this header. Returns the answer, and whether the answer was immediate.
    pub async fn send_with_header(&self, method: &str, target: &str, header: &str) -> (String, bool) {
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n");
        self.send_as_client(&self.caller, bytes.as_bytes()).await
    }

    /// Sends a GET request as another client and returns the answer.
    pub async fn get_as_client(&self, caller: &PodOrUnknownClient, target: &str) -> String {
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        self.send_as_client(caller, bytes.as_bytes()).await.0
    }

    /// Sends these bytes as a client. Returns the answer, and whether the answer was immediate. The function counts credential
    /// fetches as the server does.
    pub async fn send_as_client(&self, caller: &PodOrUnknownClient, bytes: &[u8]) -> (String, bool) {
        let mut room = header_buffer();
        let Ok(Parsed::Complete(head, _)) = parse_request(bytes, &mut room, &HeadLimits::default()) else {
            panic!("{}", String::from_utf8_lossy(bytes))
        };
        let (now, frame) = (self.clock.now(), ResponseContext::for_request(&head, RESPONSE_DATE));
        let pod = if let PodOrUnknownClient::Pod(pod) = caller { pod } else { &self.pod };
        let asked = RequestContext {
            head: &head,
            response_context: &frame,
            shares: UpstreamChargedClient { client: pod.id, long_poll_counter: &pod.long_poll_counter },
            peer_ip: [127, 0, 0, 1].into(),
            received_at: now,
            now,
            has_likely_pod: self.is_pod_expected,
            should_return_replayable_query: false,
        };
        let mut out = Vec::new();
        let step = self.dialects.dialect_for_target(head.target).answer(caller, asked, &mut out);
        let at_once = matches!(step, PodHandlerOutcome::Answered { .. } | PodHandlerOutcome::CacheHit { .. });
        match step {
            PodHandlerOutcome::CacheHit { route, .. } => pod.record_fetch(route, Some(bytes)),
            PodHandlerOutcome::Deferred(later) => {
                let route = later.route;
                if route.is_credential() {
                    pod.record_pending_fetch(route, bytes);
                }
                let written =
                    later.reply.await.write(&WriteContext { response_context: &frame, now }, &mut out);
                if written.status == 200 && route.is_credential() {
                    pod.record_fetch(route, None);
                }
            }
            PodHandlerOutcome::Answered { .. } | PodHandlerOutcome::AwaitIdentity => {}
        }
        (String::from_utf8(out).unwrap(), at_once)
    }
}

fn resident(pod: Pod, entitlements: Entitlements) -> Arc<PodEntry> {
    Arc::new(PodEntry::new(pod, AttestedAddresses::default(), entitlements))
}

fn entitlements(
    clouds: &Clouds,
    pod: &Pod,
    service_account: RelatedAnnotations,
    subject: &Arc<dyn SubjectTokens>,
    complainer: PodEventRecorder,
) -> Entitlements {
    let applicant = EntitlementRequest {
        pod,
        annotations: &PodAnnotations {
            own_annotations: Annotations::default(),
            service_account,
            namespace: RelatedAnnotations::NotRead,
        },
        create_subject_token_source: &|| subject.clone(),
        event_recorder: complainer,
        should_prefetch: false,
    };
    clouds.decide_entitlements(&applicant, &Entitlements::default())
}

/// The date in all answers.
pub const RESPONSE_DATE: &[u8; 29] = b"Thu, 01 Jan 2026 00:00:00 GMT";
