//! The AWS module of the broker against the emulator: real sockets, and a clock moved by hand.
//!
//! The clock moves to the next instant that a task sleeps for only when nothing is on the wire. So a day passes in seconds and no
//! outcome depends on how fast this machine is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use seawall_broker::aws::{
    self, AssumeMethod, AwsCredential, AwsExchange, AwsExchangeConfig, AwsPodClientInput, AwsPrincipal,
    ClusterName, ExternalId, KeySignedRole, Region, RoleAccess, RoleArn, SessionDuration, SessionName,
    SessionTags, StsEndpointKind, TokenRole,
};
use seawall_broker::{
    Broker, BrokerSettings, ExchangeError, ExchangeFuture, IssuedCredential, LeaseError, PodLeaseClient,
    TokenExchange,
};
use seawall_core::pod::{SubjectFuture, SubjectTokens};
use seawall_core::{Clock, Lease, ManualClock, Pod, PodUid, Secret, ServiceAccount};
use seawall_emulator::aws::{self as emulated, AwsEmulator, AwsEmulatorOptions, IamUser, OidcProvider};
use seawall_emulator::keys::Algorithm;
use seawall_emulator::service_account_tokens::{Issuer, Workload};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, yield_now};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const AUDIENCE: &str = aws::WEB_IDENTITY_AUDIENCE;
pub(crate) const NODE: &str = "arn:aws:iam::123456789012:role/node";
pub(crate) const USER: &str = "arn:aws:iam::123456789012:user/kiam";
pub(crate) const USER_KEY: &str = "AKIAEMULATEDUSER0000";
pub(crate) const USER_SECRET: &str = "dXNlcnMtc2VjcmV0LXVzZXJzLXNlY3JldC11c2Vy";

/// The emulator, the cluster that it trusts, and the clock of both and of the broker.
pub(crate) struct Aws {
    pub(crate) running: AwsEmulator,
    pub(crate) issuer: Arc<Issuer>,
    pub(crate) clock: Clock,
    pub(crate) hand: ManualClock,
}

/// Starts an emulator in which every workload may take every role.
pub(crate) async fn start() -> Aws {
    start_with(|_| {}).await
}

pub(crate) async fn start_with(change: impl FnOnce(&mut AwsEmulatorOptions)) -> Aws {
    let (clock, hand) = Clock::manual();
    start_at(clock, hand, change).await
}

pub(crate) async fn start_at(
    clock: Clock,
    hand: ManualClock,
    change: impl FnOnce(&mut AwsEmulatorOptions),
) -> Aws {
    let issuer = Arc::new(Issuer::generate("https://cluster.example", Algorithm::Es256).unwrap());
    let provider = OidcProvider {
        issuer: issuer.url().into(),
        keys: issuer.key_set().unwrap(),
        audiences: [AUDIENCE.to_owned()].into(),
    };
    let user = IamUser {
        arn: USER.into(),
        access_key_id: USER_KEY.into(),
        secret_access_key: Secret::new(USER_SECRET.into()),
    };
    let mut options = AwsEmulatorOptions {
        providers: vec![provider],
        unknown_roles_trust_everyone: true,
        users: vec![user],
        ..AwsEmulatorOptions::default()
    };
    change(&mut options);
    Aws { running: emulated::start(options, clock.clone()).await.unwrap(), issuer, clock, hand }
}

impl Aws {
    pub(crate) fn config(&self) -> AwsExchangeConfig {
        let url = Some(self.running.url());
        AwsExchangeConfig { sts_url: url.clone(), eks_auth_url: url, ..AwsExchangeConfig::default() }
    }

    pub(crate) fn exchange(&self, change: impl FnOnce(&mut AwsExchangeConfig)) -> AwsExchange {
        let mut config = self.config();
        change(&mut config);
        AwsExchange::new(config, self.clock.clone()).unwrap()
    }

    /// The Kubernetes tokens of a pod of `shop/NAME`.
    pub(crate) fn subject(&self, name: &str) -> Subject {
        Subject {
            issuer: self.issuer.clone(),
            clock: self.clock.clone(),
            workload: Workload::for_service_account("shop", name).in_pod("pod-1"),
            asked: Arc::default(),
        }
    }

    /// The Kubernetes tokens of the same ServiceAccount that are bound to no pod.
    pub(crate) fn unbound_subject(&self, name: &str) -> Subject {
        Subject { workload: Workload::for_service_account("shop", name), ..self.subject(name) }
    }

    /// Calls the cloud once, without a broker.
    pub(crate) async fn issue(
        &self,
        exchange: &AwsExchange,
        access: RoleAccess,
    ) -> Result<IssuedCredential<AwsCredential>, ExchangeError> {
        exchange.issue(&principal("cart", access), &self.subject("cart")).await
    }
}

pub(crate) fn principal(name: &str, access: RoleAccess) -> AwsPrincipal {
    AwsPrincipal { workload: account(name), role_access: Arc::new(access) }
}

pub(crate) fn account(name: &str) -> ServiceAccount {
    ServiceAccount { namespace: "shop".into(), name: name.into() }
}

/// A pod's tokens, made by the cluster's own key.
#[derive(Debug)]
pub(crate) struct Subject {
    issuer: Arc<Issuer>,
    clock: Clock,
    workload: Workload,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl SubjectTokens for Subject {
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a> {
        self.asked.lock().unwrap().push(audience.to_owned());
        let token = self.issuer.mint(&self.workload, &[audience], 10 * MINUTE, self.clock.wall_time());
        Box::pin(std::future::ready(Ok(token.unwrap())))
    }
}

pub(crate) fn arn(name: &str) -> RoleArn {
    RoleArn::parse(&format!("arn:aws:iam::123456789012:role/{name}")).unwrap()
}

pub(crate) fn role(name: &str) -> KeySignedRole {
    KeySignedRole {
        arn: arn(name),
        session_name: SessionName::sanitized("shop.cart"),
        external_id: None,
        tags: SessionTags::default(),
    }
}

pub(crate) fn external_id(text: &str) -> Option<ExternalId> {
    Some(ExternalId::parse(text).unwrap())
}

/// Access to the role that EKS associates with this pod.
pub(crate) fn pod_identity(pod: &str) -> RoleAccess {
    let cluster = ClusterName::parse("reef").unwrap();
    access(AssumeMethod::PodIdentity { cluster, pod: PodUid(pod.into()) })
}

pub(crate) fn access(way: AssumeMethod) -> RoleAccess {
    RoleAccess {
        method: way,
        region: Region::parse("eu-west-1").unwrap(),
        sts_endpoint_kind: StsEndpointKind::Regional,
        session_duration: SessionDuration::HOUR,
    }
}

pub(crate) fn web_identity(name: &str) -> RoleAccess {
    let first = TokenRole { arn: arn(name), session_name: SessionName::sanitized("shop.cart") };
    access(AssumeMethod::WebIdentity { audience: AUDIENCE.into(), first, then: None })
}

pub(crate) fn keys(base: Option<KeySignedRole>, role: KeySignedRole) -> RoleAccess {
    access(AssumeMethod::NodeKeys { base, role })
}

/// The exchange, and how many of its calls are on the wire.
#[derive(Debug)]
pub(crate) struct Counted {
    exchange: AwsExchange,
    in_air: AtomicUsize,
}

struct InAir<'a>(&'a AtomicUsize);

impl Drop for InAir<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TokenExchange for Counted {
    const CLOUD: &'static str = "aws";
    type Principal = AwsPrincipal;
    type Credential = AwsCredential;

    fn issue<'a>(
        &'a self,
        principal: &'a AwsPrincipal,
        subject: &'a dyn SubjectTokens,
    ) -> ExchangeFuture<'a, AwsCredential> {
        Box::pin(async move {
            self.in_air.fetch_add(1, Ordering::Relaxed);
            let _in_air = InAir(&self.in_air);
            self.exchange.issue(principal, subject).await
        })
    }
}

pub(crate) type Answer = Result<Arc<Lease<AwsCredential>>, LeaseError>;

/// A broker of AWS's on the emulator's clock.
pub(crate) struct Node<'a> {
    pub(crate) aws: &'a Aws,
    pub(crate) broker: Broker<Counted>,
    counted: Arc<Counted>,
}

impl<'a> Node<'a> {
    pub(crate) fn new(aws: &'a Aws, exchange: AwsExchange, settings: BrokerSettings) -> Self {
        let counted = Arc::new(Counted { exchange, in_air: AtomicUsize::new(0) });
        let broker = Broker::start(settings, aws.clock.clone(), counted.clone(), Handle::current());
        Self { aws, broker, counted }
    }

    pub(crate) fn pod(
        &self,
        name: &str,
        workload: &str,
        access: &Arc<RoleAccess>,
    ) -> Arc<PodLeaseClient<Counted>> {
        let pod = Pod { uid: PodUid(name.into()), name: name.into(), service_account: account(workload) };
        let subject = Arc::new(self.aws.subject(workload));
        self.broker.new_pod_client(AwsPodClientInput {
            pod,
            entitlement: Some(access.clone()),
            subject_tokens: subject,
        })
    }

    /// Waits until no task can go on: everything ready has run, and nothing is on the wire but calls that hang.
    async fn settle(&self, hanging: bool) {
        loop {
            for _ in 0..64 {
                yield_now().await;
            }
            let in_air = self.counted.in_air.load(Ordering::Relaxed);
            let held = || {
                emulated::AwsEndpoint::ALL
                    .map(|endpoint| self.aws.running.endpoint_request_counts(endpoint).in_flight)
            };
            if in_air == 0 || (hanging && held().iter().sum::<u64>() >= in_air as u64) {
                return;
            }
        }
    }

    /// Lets time pass, from each instant that a task sleeps for to the next.
    pub(crate) async fn pass(&self, span: Duration) {
        self.pass_while(span, false).await;
    }

    pub(crate) async fn pass_while(&self, span: Duration, hanging: bool) {
        let (clock, hand) = (&self.aws.clock, &self.aws.hand);
        let end = clock.now() + span;
        loop {
            self.settle(hanging).await;
            let next = hand.next_deadline().unwrap_or(end).min(end);
            hand.advance(next.since(clock.now()));
            if next == end {
                return self.settle(hanging).await;
            }
        }
    }

    pub(crate) fn ask(&self, holder: &Arc<PodLeaseClient<Counted>>) -> JoinHandle<Answer> {
        let holder = holder.clone();
        tokio::spawn(async move { holder.lease(()).await })
    }

    /// Requests a lease and lets time pass until the response.
    pub(crate) async fn answer(&self, holder: &Arc<PodLeaseClient<Counted>>) -> Answer {
        let asked = self.ask(holder);
        self.settle(false).await;
        while !asked.is_finished() {
            let next = self.aws.hand.next_deadline().expect("an answer without a deadline");
            self.aws.hand.advance(next.since(self.aws.clock.now()));
            self.settle(false).await;
        }
        asked.await.unwrap()
    }

    pub(crate) fn calls(&self, name: &str) -> u64 {
        self.broker.counters().fetches_by_result().into_iter().find(|(each, _)| *each == name).unwrap().1
    }
}

/// Returns STS's `GetCallerIdentity` for these credentials: signed as a pod's SDK would.
pub(crate) async fn caller_identity(url: &str, clock: &Clock, credential: &AwsCredential) -> String {
    use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
    let body = "Action=GetCallerIdentity&Version=2011-06-15";
    let mut request = http::Request::post(format!("{url}/")).body(Full::<bytes::Bytes>::from(body)).unwrap();
    let identity = aws_credential_types::Credentials::new(
        credential.access_key_id(),
        credential.secret_access_key(),
        Some(credential.session_token().into()),
        None,
        "test",
    )
    .into();
    let params = aws_sigv4::sign::v4::SigningParams::builder()
        .identity(&identity)
        .region("eu-west-1")
        .name("sts")
        .time(clock.wall_time())
        .settings(SigningSettings::default())
        .build()
        .unwrap()
        .into();
    let uri = request.uri().to_string();
    let signable =
        SignableRequest::new("POST", uri, std::iter::empty(), SignableBody::Bytes(body.as_bytes())).unwrap();
    sign(signable, &params).unwrap().into_parts().0.apply_to_request_http1x(&mut request);
    let answer = Client::builder(TokioExecutor::new()).build_http().request(request).await.unwrap();
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}
