//! Forwards requests to the instance's real metadata service, for paths that an operator's expression allows. The agent never
//! forwards a path to credentials.
//!
//! The dialect builds each upstream request itself, from a canonical path and a session token of the agent. The pod never sees
//! that token, the token's lifetime or a status 401. The pod's client would treat a 401 as an error of the client's own token.
//!
//! Pods must not exhaust the real service, because AWS limits the service's rate for the whole instance, and the node's own
//! credentials come from the service. Therefore the agent normally makes one call to the real service for each request. The rate
//! of calls is limited per pod ([`PodRateLimit`]) and per node ([`NodeRateLimit`]).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use seawall_core::{Clock, Gcra, Moment, Secret};
use seawall_http::Refusal;
use seawall_protocols::aws::imds::respond;
use seawall_server::connection_client::ClientId;
use seawall_server::response::{CompletedDeferredResponse, DeferredResponse, WriteContext, WriteOutcome};
use seawall_server::upstream::{Forwarder, TIMED_OUT, UpstreamRequest, UpstreamResponse};
use tokio::sync::Mutex;

use super::routes;

/// The passthrough to the real service on one thread. Cloning is cheap.
#[derive(Clone, Debug)]
pub(super) struct ImdsPassthrough {
    forwarder: Forwarder,
    pace: Arc<NodeRateLimit>,
    session: Rc<Session>,
    clock: Clock,
}

/// A rate of calls to the real service: so many per second, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallRate {
    pub(super) per_second: u32,
    pub(super) burst: u32,
}

/// The rates of `aws.imds.passthroughLimits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassthroughLimits {
    /// The rate of one pod.
    ///
    /// With the default burst of 40, a tool can read all facts of an instance. The default rate is a tenth of the rate of all
    /// pods. So only the bursts of five pods, or ten pods that read all the time, exhaust the limit of the node.
    pub(super) pod: CallRate,
    /// The rate of all pods together, on all threads.
    ///
    /// AWS allows an instance 1,024 packets per second to its link-local services: DNS, time and metadata (EC2 user guide,
    /// "Query limits"). A call takes about three packets, so with the default of 100 two thirds remain for other traffic. The
    /// default burst suffices for pods that start together and read one or two facts each.
    pub(super) node: CallRate,
}

impl Default for PassthroughLimits {
    fn default() -> Self {
        let (pod, node) = (CallRate { per_second: 10, burst: 40 }, CallRate { per_second: 100, burst: 200 });
        Self { pod, node }
    }
}

/// The rate limit for calls of all pods to the real service, on all threads.
#[derive(Debug)]
pub(super) struct NodeRateLimit(Gcra);

impl NodeRateLimit {
    pub(super) fn new(rate: CallRate) -> Self {
        Self(Gcra::new(rate.per_second, rate.burst))
    }

    fn take(&self, now: Moment) -> Result<(), Refusal> {
        self.0.take(now).map_err(|_| TOO_FAST_TOGETHER)
    }
}

/// The rate limit for calls of one pod to the real service.
#[derive(Clone, Debug)]
pub(super) struct PodRateLimit {
    limiter: Arc<Gcra>,
    rate: CallRate,
}

impl PodRateLimit {
    pub(super) fn new(rate: CallRate) -> Self {
        Self { limiter: Arc::new(Gcra::new(rate.per_second, rate.burst)), rate }
    }

    /// Returns this limit, with what the pod has used of it, or a new one if the configured rate has changed.
    pub(super) fn with_rate(&self, rate: CallRate) -> Self {
        if self.rate == rate { self.clone() } else { Self::new(rate) }
    }

    fn take(&self, now: Moment) -> Result<(), Refusal> {
        self.limiter.take(now).map_err(|_| TOO_FAST)
    }
}

const TOO_FAST: Refusal = Refusal::new(
    503,
    "passthrough_rate_limited",
    "This pod reads the instance's metadata too fast. The metadata does not change: cache it, and try again in a second.",
);
const TOO_FAST_TOGETHER: Refusal = Refusal::new(
    503,
    "passthrough_rate_limited_node",
    "Together, the pods of this node read the instance's metadata too fast; try again shortly.",
);
const NO_TOKEN: Refusal = Refusal::new(
    503,
    "imds_token_unavailable",
    "The real metadata service gives the agent no session token, or rejects a token that the service issued; try again shortly.",
);
const TOO_LONG: Refusal = Refusal::new(
    502,
    "upstream_too_large",
    "The real metadata service's answer exceeds the maximum size that the agent forwards.",
);

/// A pod's request to the real service, and the remaining timeout of its client.
#[derive(Debug)]
pub(super) struct PassthroughRequest<'a> {
    /// The pod's rate limit. `None` if the configuration allows no passthrough.
    pub(super) rate_limit: Option<&'a PodRateLimit>,
    /// The request uses upstream permits from the share of this client.
    pub(super) client_id: ClientId,
    /// The canonical path.
    pub(super) path: &'a str,
    pub(super) now: Moment,
    /// The remaining time before the client's timeout.
    pub(super) timeout: Duration,
}

impl ImdsPassthrough {
    /// Creates a thread's passthrough with this forwarder and the rate limit that all threads share.
    pub(super) fn new(forwarder: Forwarder, pace: Arc<NodeRateLimit>, clock: Clock) -> Self {
        let session = Rc::new(Session { kept: Mutex::default(), id: ClientId::new_unique() });
        Self { forwarder, pace, session, clock }
    }

    /// Forwards the request. The deferred response is ready before the client's timeout.
    ///
    /// # Errors
    /// The pod exceeds its rate limit, or the configuration allows no passthrough.
    pub(super) fn forward(&self, errand: &PassthroughRequest<'_>) -> Result<DeferredResponse, Refusal> {
        errand.rate_limit.ok_or(TOO_FAST)?.take(errand.now)?;
        let way = self.clone();
        let (client, path, patience) = (errand.client_id, errand.path.to_owned(), errand.timeout);
        Ok(DeferredResponse::new(&routes::FORWARD, false, async move {
            let answer = tokio::time::timeout(patience, way.answer(client, &path, patience));
            Box::new(PassthroughResponse(answer.await.unwrap_or(Err(TIMED_OUT))))
                as Box<dyn CompletedDeferredResponse>
        }))
    }

    /// Sends the request. If the service rejects the cached token, for example after a restart of the service, the function
    /// repeats the request once with a new token.
    async fn answer(
        &self,
        client: ClientId,
        path: &str,
        patience: Duration,
    ) -> Result<UpstreamResponse, Refusal> {
        let token = self.token(None, patience).await?;
        let answer = self.ask(client, path, &token, patience).await?;
        if answer.status != 401 {
            return Ok(answer);
        }
        let token = self.token(Some(&token), patience).await?;
        let answer = self.ask(client, path, &token, patience).await?;
        if answer.status == 401 { Err(NO_TOKEN) } else { Ok(answer) }
    }

    async fn ask(
        &self,
        client: ClientId,
        path: &str,
        token: &Secret<String>,
        patience: Duration,
    ) -> Result<UpstreamResponse, Refusal> {
        let headers = [("x-aws-ec2-metadata-token", token.expose().as_str())];
        let forward = UpstreamRequest {
            target: path,
            method: Method::GET,
            headers: &headers,
            timeout: patience,
            long_poll_wait: None,
        };
        self.pace.take(self.clock.now())?;
        self.forwarder.forward_non_long_poll(client, &forward)?.await
    }

    /// Returns the cached token. Fetches a new token if no token is cached, or if the cached token expires soon or is `refused`.
    ///
    /// Only one call for a token runs at a time on this thread; other requests wait for its result.
    async fn token(&self, refused: Option<&Token>, patience: Duration) -> Result<Token, Refusal> {
        let mut kept = self.session.kept.lock().await;
        let now = self.clock.now();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_good(refused, now)) {
            return Ok(kept.token.clone());
        }
        *kept = None;
        self.pace.take(now)?;
        let asked = [(TTL, ASKED)];
        let forward = UpstreamRequest {
            target: "/latest/api/token",
            method: Method::PUT,
            headers: &asked,
            timeout: patience,
            long_poll_wait: None,
        };
        let answer = self.forwarder.forward_non_long_poll(self.session.id, &forward)?.await?;
        let new = CachedImdsToken::read(answer, now)?;
        Ok(kept.insert(new).token.clone())
    }
}

const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";

/// The requested lifetime of a token in seconds: the longest lifetime that the service grants.
const ASKED: &str = "21600";

/// A session token of the agent, which several requests can use at the same time.
type Token = Rc<Secret<String>>;

/// A thread's session with the real service.
#[derive(Debug)]
struct Session {
    /// The cached token. A request holds this Tokio lock while it fetches the next token.
    kept: Mutex<Option<CachedImdsToken>>,
    /// The client id with which calls for a token take upstream permits. This id differs from the ids of pods. So a pod that has
    /// used all its permits cannot block the calls for a token.
    id: ClientId,
}

#[derive(Debug)]
struct CachedImdsToken {
    token: Token,
    renew_at: Moment,
}

impl CachedImdsToken {
    /// Reads the token from the answer to a request that was sent at `now`.
    fn read(answer: UpstreamResponse, now: Moment) -> Result<Self, Refusal> {
        let UpstreamResponse { status, headers, body, remaining_body: rest } = answer;
        // The body becomes a secret before any step can fail.
        let token = String::from_utf8(body).map(Secret::new).map_err(|_| NO_TOKEN)?;
        let is_text = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if status != 200 || rest.is_some() || !is_text(token.expose()) {
            return Err(NO_TOKEN);
        }
        // The agent renews the token after nine tenths of its lifetime. Requests that still use the old token finish in the last
        // tenth.
        let renew_at = now + life(&headers) / 10 * 9;
        Ok(Self { token: Rc::new(token), renew_at })
    }

    fn is_good(&self, refused: Option<&Token>, now: Moment) -> bool {
        now < self.renew_at && refused.is_none_or(|refused| !Rc::ptr_eq(refused, &self.token))
    }
}

/// Returns the lifetime of a token: the requested lifetime, or a shorter lifetime that the service states.
fn life(headers: &HeaderMap) -> Duration {
    let seconds = |text: &str| text.parse::<u64>().ok();
    let told = headers.get(TTL).and_then(|value| value.to_str().ok()).and_then(seconds);
    let asked = seconds(ASKED).unwrap_or_default();
    Duration::from_secs(told.unwrap_or(asked).min(asked))
}

/// The answer of the real service, or the refusal that replaces it.
#[derive(Debug)]
struct PassthroughResponse(Result<UpstreamResponse, Refusal>);

impl CompletedDeferredResponse for PassthroughResponse {
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome {
        // The answers of allowed paths are short. An answer with a `remaining_body` does not fit into the forwarder's window of 8
        // KiB.
        let answer = self
            .0
            .and_then(|answer| if answer.remaining_body.is_none() { Ok(answer) } else { Err(TOO_LONG) });
        match answer {
            Ok(UpstreamResponse { status, headers, body, .. }) => {
                let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
                respond::write_passthrough(out, writing.response_context, status, headers, &body);
                WriteOutcome::whole(status)
            }
            Err(refusal) => {
                respond::write_refusal(out, writing.response_context, &refusal);
                WriteOutcome::whole(refusal.status)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use seawall_core::PodAnnotations;
    use seawall_core::annotations::{Annotations, RelatedAnnotations};
    use seawall_core::kubernetes_events::PodEventRecorder;
    use seawall_testkit::closure_server::{Peer, Server};

    use super::*;
    use crate::EntitlementRequest;
    use crate::entitlements::Entitlements;
    use crate::testing::PodFixture;

    const FACT: &str = "/latest/meta-data/instance-id";

    /// A fake of the real service. It issues the tokens `t1`, `t2` and so on, and records its requests.
    struct Service {
        server: Server,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Service {
        /// Starts a service whose tokens live for 100 s. `is_good` decides whether it accepts a token.
        fn start(is_good: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
            let asked: Arc<Mutex<Vec<String>>> = Arc::default();
            let book = asked.clone();
            let play = move |mut peer: Peer, _: usize| {
                loop {
                    let head = peer.read_request_head()?;
                    let number = note(&book, &head);
                    let shown = head.lines().find_map(|line| line.strip_prefix("x-aws-ec2-metadata-token: "));
                    let answer = match shown {
                        None => format!("200 OK\r\n{TTL}: 100\r\nContent-Length: 2\r\n\r\nt{number}"),
                        Some(token) if is_good(token) => "200 OK\r\nContent-Length: 3\r\n\r\ni-1".into(),
                        Some(_) => "401 Unauthorized\r\nContent-Length: 0\r\n\r\n".into(),
                    };
                    peer.send(format!("HTTP/1.1 {answer}").as_bytes())?;
                }
            };
            Self { server: Server::start(play).unwrap(), asked }
        }

        /// Returns the methods of the requests since the last call.
        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut *self.asked.lock().unwrap())
        }

        /// Returns a fixture whose pod may read [`FACT`] from this service.
        fn world(&self) -> PodFixture {
            world(&self.server.url_of_path(""))
        }
    }

    /// Records a request, and returns the number of recorded requests with its method.
    fn note(book: &Mutex<Vec<String>>, head: &str) -> usize {
        let method = head.split(' ').next().unwrap();
        let mut book = book.lock().unwrap();
        book.push(method.to_owned());
        book.iter().filter(|asked| *asked == method).count()
    }

    fn world(upstream: &str) -> PodFixture {
        let world = PodFixture::with_sections(&format!(
            "aws: {{ region: eu-west-1, imds: {{ httpTokens: optional, passthroughPaths: [\"{FACT}\"], upstreamUrl: \"{upstream}\" }} }}\n"
        ));
        another_pod(&world);
        world
    }

    /// Gives the fixture's pod new entitlements, like those of a pod that has sent no request yet.
    fn another_pod(world: &PodFixture) {
        world.pod().replace_entitlements(world.entitlements_with_service_account_annotations(
            RelatedAnnotations::of_object(Annotations::default()),
        ));
    }

    /// Sends `times` requests, and returns the status and the refusal code of each answer.
    async fn read(world: &PodFixture, times: usize) -> Vec<(u16, String)> {
        let mut answers = Vec::new();
        for _ in 0..times {
            let (answer, _) = world.send_with_header("GET", FACT, "A: b").await;
            let code = answer.split_once("\"code\":\"").and_then(|(_, rest)| rest.split('"').next());
            answers.push((answer[9..12].parse().unwrap(), code.unwrap_or_default().to_owned()));
        }
        answers
    }

    fn count(answers: &[(u16, String)], status: u16, code: &str) -> usize {
        answers.iter().filter(|answer| (answer.0, &*answer.1) == (status, code)).count()
    }

    /// Regression: each request made two calls, because it fetched its own token.
    #[tokio::test]
    async fn a_request_is_one_call_and_the_token_is_renewed_before_its_end() {
        let service = Service::start(|_| true);
        let world = service.world();
        assert_eq!(count(&read(&world, 3).await, 200, ""), 3);
        assert_eq!(service.asked(), ["PUT", "GET", "GET", "GET"]);
        world.manual_clock.advance(Duration::from_secs(89));
        read(&world, 1).await;
        assert_eq!(service.asked(), ["GET"]);
        world.manual_clock.advance(Duration::from_secs(1));
        read(&world, 1).await;
        assert_eq!(service.asked(), ["PUT", "GET"]);
    }

    /// Regression: one pod made 20,806 calls in five seconds to the service from which the node's own credentials come.
    #[tokio::test]
    async fn a_pod_that_reads_too_fast_is_told_so_at_once_and_the_real_service_is_left_alone() {
        let service = Service::start(|_| true);
        let world = service.world();
        let answers = read(&world, 200).await;
        assert_eq!(count(&answers, 200, ""), 40);
        assert_eq!(count(&answers, 503, "passthrough_rate_limited"), 160);
        assert_eq!(service.asked().len(), 41);
        let (_, at_once) = world.send_with_header("GET", FACT, "A: b").await;
        assert!(at_once);
        world.manual_clock.advance(Duration::from_secs(1));
        assert_eq!(count(&read(&world, 200).await, 200, ""), 10);
        // The agent decides the entitlements again, as after a change of the pod's annotations.
        let facts = PodAnnotations {
            own_annotations: Annotations::default(),
            service_account: RelatedAnnotations::of_object(Annotations::default()),
            namespace: RelatedAnnotations::NotRead,
        };
        let applicant = EntitlementRequest {
            pod: &world.pod().pod,
            annotations: &facts,
            create_subject_token_source: &|| unreachable!("it has no role"),
            event_recorder: PodEventRecorder::default(),
            should_prefetch: false,
        };
        let before: Entitlements = Entitlements::clone(&world.pod().entitlements());
        world.pod().replace_entitlements(world.clouds.decide_entitlements(&applicant, &before));
        assert_eq!(count(&read(&world, 10).await, 503, "passthrough_rate_limited"), 10);
    }

    #[tokio::test]
    async fn the_configured_rates_count_and_a_changed_rate_counts_after_a_reload() {
        let service = Service::start(|_| true);
        let upstream = service.server.url_of_path("");
        let sections = |limits: &str| {
            format!(
                "aws: {{ region: eu-west-1, imds: {{ httpTokens: optional, passthroughPaths: [\"{FACT}\"], \
                 upstreamUrl: \"{upstream}\", passthroughLimits: {{ {limits} }} }} }}\n"
            )
        };
        let mut world = PodFixture::with_sections(&sections("podRate: 1, podBurst: 3, nodeBurst: 1000"));
        another_pod(&world);
        let answers = read(&world, 10).await;
        assert_eq!((count(&answers, 200, ""), count(&answers, 503, "passthrough_rate_limited")), (3, 7));
        (world.clouds, _) = world.clouds_after_reload(&sections("podBurst: 5, nodeBurst: 2"));
        let before = Entitlements::clone(&world.pod().entitlements());
        let annotations = RelatedAnnotations::of_object(Annotations::default());
        let after = world.entitlements_under_clouds(&world.clouds, annotations, &before);
        world.pod().replace_entitlements(after);
        world.dialects = Rc::new(
            world
                .clouds
                .build_dialects(&[world.clouds_config.enabled_dialects()], &world.resources)
                .unwrap()
                .remove(0),
        );
        let answers = read(&world, 10).await;
        // The new thread takes a session token first, which is the first of two calls.
        assert_eq!(count(&answers, 200, ""), 1);
        assert_eq!(count(&answers, 503, "passthrough_rate_limited_node"), 4);
        assert_eq!(count(&answers, 503, "passthrough_rate_limited"), 5);
    }

    #[tokio::test]
    async fn all_pods_together_leave_the_real_service_room_for_the_node() {
        let service = Service::start(|_| true);
        let world = service.world();
        let mut answers = Vec::new();
        for _ in 0..10 {
            another_pod(&world);
            answers.extend(read(&world, 40).await);
        }
        assert_eq!(count(&answers, 200, ""), 199);
        assert_eq!(count(&answers, 503, "passthrough_rate_limited_node"), 201);
        assert_eq!(service.asked().len(), 200);
        world.manual_clock.advance(Duration::from_secs(1));
        another_pod(&world);
        assert_eq!(
            count(&read(&world, 40).await, 200, ""),
            40,
            "after a second, the node limit allows 40 calls"
        );
    }

    /// Regression: the agent forwarded a 401, and clients treated it as an error of their own token.
    #[tokio::test]
    async fn a_token_that_the_real_service_takes_no_more_is_replaced_once_and_no_401_is_passed_on() {
        let service = Service::start(|token| token == "t2");
        let world = service.world();
        assert_eq!(read(&world, 1).await, [(200, String::new())]);
        assert_eq!(service.asked(), ["PUT", "GET", "PUT", "GET"]);
        let service = Service::start(|_| false);
        let world = service.world();
        assert_eq!(read(&world, 1).await, [(503, "imds_token_unavailable".to_owned())]);
        assert_eq!(service.asked(), ["PUT", "GET", "PUT", "GET"]);
    }

    /// Regression: the agent answered after ten seconds, when every SDK had already given up.
    #[tokio::test]
    async fn a_real_service_that_hangs_is_told_before_the_client_gives_up() {
        for token in [false, true] {
            let play = move |mut peer: Peer, _: usize| {
                if token {
                    peer.read_request_head()?;
                    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nt1")?;
                }
                peer.wait_for_close()
            };
            let server = Server::start(play).unwrap();
            let world = world(&server.url_of_path(""));
            let clock = Clock::system();
            let start = clock.now();
            assert_eq!(read(&world, 1).await, [(503, "upstream_timeout".to_owned())]);
            let waited = clock.now().since(start);
            // About one second is expected. The bounds allow for a busy machine.
            assert!(waited >= Duration::from_millis(800) && waited < Duration::from_secs(6), "{waited:?}");
        }
    }
}
