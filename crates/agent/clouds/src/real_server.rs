//! Pods of the ServiceAccounts in `realServer`: their requests go to the node's real metadata server, and they get the node's
//! credentials.
//!
//! A pod on the node's network reaches the real server without the agent. A pod with a network of its own can need it, too, for
//! example a node manager. The redirect captures every such pod, because its rules must not depend on addresses, which change
//! hands. Therefore the agent identifies the pod at each connection, as it identifies every pod, and passes the pod's requests on.
//! While the agent cannot identify the pod, it refuses the requests.
//!
//! The agent builds each upstream request itself, from a canonical path and a few known headers. Google's paths go through the
//! filter of `conceal`, which also hides the node's bootstrap secrets from these pods. The paths of EC2's metadata service go to
//! the server as they are: the pod has the node's role, so there is nothing that a filter would protect.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use seawall_config::{DocumentTable, values};
use seawall_core::ServiceAccount;
use seawall_core::cloud::CloudName;
use seawall_core::endpoint::REAL_SERVER_URL;
use seawall_http::path::{PathCharset, canonicalise_target_with};
use seawall_http::{Framing, Refusal, RequestHead, ResponseContext, ResponseFraming, head_writer};
use seawall_protocols::aws::{self, REQUEST_PATH_CHARSET, imds};
use seawall_server::handler::{MetadataDialect, RequestContext};
use seawall_server::response::{CompletedDeferredResponse, DeferredResponse, WriteContext, WriteOutcome};
use seawall_server::route;
use seawall_server::upstream::{Forwarder, UpstreamRequest, UpstreamResponse};

use crate::google::passthrough::GooglePassthrough;
use crate::pod::{PodEntry, PodHandlerOutcome, PodOrUnknownClient};

/// The key of the list in the configuration.
pub(crate) const KEY: &str = "realServer";

/// Reads the list `realServer`: the ServiceAccounts whose pods use the real metadata server.
pub(crate) fn read_service_accounts(root: &DocumentTable<'_>) -> Vec<ServiceAccount> {
    let items = root.node_of_key(KEY).list();
    items
        .iter()
        .filter_map(|item| item.text("a ServiceAccount as namespace/name", values::parse_service_account))
        .collect()
}

/// Rejects the list if `url`, where it sends requests, is an address that the agent listens at.
pub(crate) fn reject_own_listener(root: &DocumentTable<'_>, url: &str, listen: &[SocketAddr]) {
    if values::is_own_listener(url, listen) {
        root.node_of_key(KEY).reject(format!(
            "an upstreamUrl that is the real metadata server; the agent itself listens at {url}"
        ));
    }
}

/// The ServiceAccounts in `realServer`, and the URLs of the real metadata server.
#[derive(Debug, Default)]
pub(crate) struct RealServer {
    service_accounts: HashSet<ServiceAccount>,
    /// The URL for Google's paths.
    pub(crate) google_url: String,
    /// The URL for the paths of EC2's metadata service.
    pub(crate) imds_url: String,
}

impl RealServer {
    /// Creates the state for this list. A cloud without a section uses the URL of the other cloud's section, because a node has
    /// one real metadata server.
    pub(crate) fn new(accounts: &[ServiceAccount], google_url: Option<&str>, imds_url: Option<&str>) -> Self {
        let url =
            |own: Option<&str>, other: Option<&str>| own.or(other).unwrap_or(REAL_SERVER_URL).to_owned();
        Self {
            service_accounts: accounts.iter().cloned().collect(),
            google_url: url(google_url, imds_url),
            imds_url: url(imds_url, google_url),
        }
    }

    /// True if the list is empty, so no request goes to the real server because of it.
    pub(crate) fn is_unused(&self) -> bool {
        self.service_accounts.is_empty()
    }

    /// True if the pods of this ServiceAccount use the real metadata server.
    pub(crate) fn serves(&self, account: &ServiceAccount) -> bool {
        self.service_accounts.contains(account)
    }
}

/// A cloud's dialect that sends the requests of pods in `realServer` to the real server and handles all other requests as before.
#[derive(Debug)]
pub(crate) struct RealServerDialect {
    cloud_dialect: Rc<dyn MetadataDialect<PodEntry>>,
    passthrough: Rc<RealServerPassthrough>,
}

/// The connections of one traffic thread to the real server, for pods in `realServer`.
#[derive(Debug)]
pub(crate) struct RealServerPassthrough {
    google: GooglePassthrough,
    imds: Forwarder,
}

impl RealServerPassthrough {
    /// Creates the passthrough. `google` has the filter for Google's paths; `imds` sends all paths of EC2's metadata service.
    pub(crate) fn new(google: GooglePassthrough, imds: Forwarder) -> Self {
        Self { google, imds }
    }
}

const METHOD_NOT_ALLOWED: Refusal =
    Refusal::new(405, "method_not_allowed", "A metadata server answers GET, HEAD and PUT requests.");
const UNEXPECTED_BODY: Refusal = Refusal::new(400, "unexpected_body", "A metadata request has no body.");

const LEFT_THE_LIST: Refusal = Refusal::new(
    503,
    "account_changed",
    "The configuration changed while the agent handled this request; try again shortly.",
);

/// The headers of a pod's request that the real server gets: session tokens, and the token's requested lifetime (EC2 user guide, "Use
/// the Instance Metadata Service").
const SENT: [&str; 3] = ["x-aws-ec2-metadata-token", "x-aws-ec2-metadata-token-ttl-seconds", "accept"];

/// The headers of the real server's answer that the pod gets.
const RETURNED: [&str; 6] = [
    "content-type",
    "content-encoding",
    "etag",
    "last-modified",
    "location",
    "x-aws-ec2-metadata-token-ttl-seconds",
];

/// The timeout of a request to the real server. It is longer than one try of AWS's and Google's libraries (at most 5 s).
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(10);

impl RealServerDialect {
    /// Puts the passthrough in front of a cloud's dialect.
    pub(crate) fn new(
        cloud_dialect: Rc<dyn MetadataDialect<PodEntry>>,
        passthrough: Rc<RealServerPassthrough>,
    ) -> Self {
        Self { cloud_dialect, passthrough }
    }
}

impl RealServerPassthrough {
    fn forward(
        &self,
        pod: &Arc<PodEntry>,
        asked: RequestContext<'_, '_, '_>,
    ) -> Result<DeferredResponse, Refusal> {
        let path =
            canonicalise_target_with(asked.head.target, &REQUEST_PATH_CHARSET).map(|target| target.path);
        match path {
            Ok(path) if imds::is_imds_path(path.as_str()) => self.forward_imds(pod, path.as_str(), asked),
            _ => self.google.forward_for_real_server_pod(pod, asked.shares, asked.head),
        }
    }

    fn forward_imds(
        &self,
        pod: &Arc<PodEntry>,
        path: &str,
        asked: RequestContext<'_, '_, '_>,
    ) -> Result<DeferredResponse, Refusal> {
        let head = asked.head;
        let method = match head.method {
            // The agent sends GET even for a HEAD request, to know the length of the response.
            "GET" | "HEAD" => Method::GET,
            "PUT" => Method::PUT,
            _ => return Err(METHOD_NOT_ALLOWED),
        };
        if !matches!(head.framing, Framing::None | Framing::Length(0)) {
            return Err(UNEXPECTED_BODY);
        }
        // EC2's server refuses a token to a request that a proxy has passed on (user guide, as above). The agent builds a new request,
        // so it must refuse itself, whatever bytes the header has.
        aws::require_not_proxied(head)?;
        let headers = sent_headers(head)?;
        let request = UpstreamRequest {
            target: path,
            method,
            headers: &headers,
            timeout: UPSTREAM_TIMEOUT,
            long_poll_wait: None,
        };
        let answer = self.imds.forward_non_long_poll(asked.shares.client, &request)?;
        let pod = pod.clone();
        let is_for_credentials = imds::is_credentials_document(path);
        Ok(DeferredResponse::new(&route::REAL_SERVER, false, async move {
            // A request can wait for a permit for seconds. It must bring nothing to a pod that has left the list meanwhile.
            let answer = tokio::select! {
                biased;
                () = left_the_list(&pod) => Err(LEFT_THE_LIST),
                answer = answer => answer,
            };
            if is_for_credentials && matches!(answer, Ok(UpstreamResponse { status: 200, .. })) {
                pod.record_node_credentials(CloudName::Aws);
            }
            Box::new(ImdsResponse(answer)) as Box<dyn CompletedDeferredResponse>
        }))
    }
}

/// Returns the headers of this request that the real server gets. A header that occurs twice, or that is no text, is an error: the
/// real server must not see another request than the agent.
fn sent_headers<'b>(head: &RequestHead<'_, 'b>) -> Result<Vec<(&'static str, &'b str)>, Refusal> {
    let mut sent: Vec<(&'static str, &'b str)> = Vec::new();
    for header in head.headers {
        let Some(name) = SENT.iter().find(|name| header.name.eq_ignore_ascii_case(name)) else { continue };
        let value = std::str::from_utf8(header.value).map_err(|_| aws::REPEATED_HEADER)?;
        if sent.iter().any(|(known, _)| known == name) {
            return Err(aws::REPEATED_HEADER);
        }
        sent.push((name, value));
    }
    Ok(sent)
}

/// Returns when the pod is no longer in `realServer`. The entitlements are pending for a moment while a new configuration replaces the
/// current one.
async fn left_the_list(pod: &PodEntry) {
    loop {
        let change = pod.next_entitlements_change();
        let entitlements = pod.entitlements();
        let is_pending = CloudName::ALL.iter().any(|cloud| entitlements.is_pending_for_cloud(*cloud));
        let is_in_list = entitlements.use_real_server();
        drop(entitlements);
        if !is_in_list && !is_pending {
            return;
        }
        change.await;
    }
}

impl MetadataDialect<PodEntry> for RealServerDialect {
    fn cloud(&self) -> CloudName {
        self.cloud_dialect.cloud()
    }

    fn path_charset(&self) -> &'static PathCharset {
        self.cloud_dialect.path_charset()
    }

    fn serves_path(&self, path: &str) -> bool {
        self.cloud_dialect.serves_path(path)
    }

    fn keeps_alive_after(&self, method: &str) -> bool {
        self.cloud_dialect.keeps_alive_after(method)
    }

    fn answers_any_client(&self, method: &str) -> bool {
        self.cloud_dialect.answers_any_client(method)
    }

    fn identity_timeout(&self, head: &RequestHead<'_, '_>) -> Duration {
        self.cloud_dialect.identity_timeout(head)
    }

    /// Answers a pod in `realServer` from the real server. Only the pod's own entitlements decide this, never the request.
    fn answer(
        &self,
        caller: &PodOrUnknownClient,
        asked: RequestContext<'_, '_, '_>,
        out: &mut Vec<u8>,
    ) -> PodHandlerOutcome {
        let PodOrUnknownClient::Pod(pod) = caller else {
            return self.cloud_dialect.answer(caller, asked, out);
        };
        if !pod.entitlements().use_real_server() {
            return self.cloud_dialect.answer(caller, asked, out);
        }
        let forwarded = self.passthrough.forward(pod, asked).map(PodHandlerOutcome::Deferred);
        self.answer_or_refuse(forwarded, asked, out)
    }

    fn refuse(&self, refusal: &Refusal, frame: &ResponseContext<'_>, out: &mut Vec<u8>) {
        self.cloud_dialect.refuse(refusal, frame, out);
    }
}

/// The real server's answer to a request to EC2's metadata service, or the refusal that replaces it.
#[derive(Debug)]
struct ImdsResponse(Result<UpstreamResponse, Refusal>);

impl CompletedDeferredResponse for ImdsResponse {
    fn write(self: Box<Self>, writing: &WriteContext<'_>, out: &mut Vec<u8>) -> WriteOutcome {
        match self.0 {
            Ok(answer) => write_imds_response(answer, writing.response_context, out),
            Err(refusal) => {
                let frame = writing.response_context;
                imds::respond::write_refusal(out, frame, &refusal);
                WriteOutcome::whole(refusal.status)
            }
        }
    }
}

fn write_imds_response(
    answer: UpstreamResponse,
    frame: &ResponseContext<'_>,
    out: &mut Vec<u8>,
) -> WriteOutcome {
    let UpstreamResponse { status, headers, body, remaining_body } = answer;
    let framing = match &remaining_body {
        None => ResponseFraming::KnownLength(body.len() as u64),
        Some(rest) => ResponseFraming::choose(rest.total_length, frame.version),
    };
    let keep_alive = frame.keep_alive && framing != ResponseFraming::UntilClose;
    ResponseContext { keep_alive, ..*frame }.begin_head(out, status, b"");
    for (name, value) in &headers {
        if RETURNED.contains(&name.as_str()) && head_writer::is_header_value(value.as_bytes()) {
            head_writer::write_header(out, name.as_str(), value.as_bytes());
        }
    }
    framing.end_head(out);
    if frame.head_only {
        return WriteOutcome::whole(status);
    }
    framing.write_part(out, &body);
    WriteOutcome { status, remaining_body: remaining_body.map(|rest| (rest, framing)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;

    use seawall_config::Document;
    use seawall_testkit::closure_server::{Peer, Server};

    use super::*;
    use crate::CloudsConfig;
    use crate::testing::{BOTH_CLOUDS_BROKERED_CONFIG, PodFixture};

    /// A fake of the real server, which records the head of each request.
    struct Real {
        server: Server,
        heads: Arc<Mutex<Vec<String>>>,
    }

    impl Real {
        /// Starts a server that answers each request with `answer`, the part of a response after `HTTP/1.1 `.
        fn start(answer: impl Into<String>) -> Self {
            let (answer, heads) = (answer.into(), Arc::<Mutex<Vec<String>>>::default());
            let record = heads.clone();
            let serve = move |mut peer: Peer, _: usize| {
                loop {
                    let head = peer.read_request_head()?;
                    record.lock().unwrap().push(head);
                    peer.send(format!("HTTP/1.1 {answer}").as_bytes())?;
                }
            };
            Self { server: Server::start(serve).unwrap(), heads }
        }

        /// Returns a fixture whose pod shop/cart is in `realServer` of `sections`, in which URL stands for this server's URL.
        fn fixture(&self, sections: &str) -> PodFixture {
            let sections = sections.replace("URL", &self.server.url_of_path(""));
            PodFixture::with_sections(&format!("realServer: [shop/cart]\n{sections}\n"))
        }

        /// Returns the head of the only request since the last call, in lower case.
        fn only_head(&self) -> String {
            let mut heads = std::mem::take(&mut *self.heads.lock().unwrap());
            assert_eq!(heads.len(), 1, "{heads:?}");
            heads.remove(0).to_ascii_lowercase()
        }
    }

    const AWS: &str = "aws: { region: eu-west-1, imds: { upstreamUrl: \"URL\" } }";
    const TOKEN_ANSWER: &str =
        "200 OK\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\nServer: EC2ws\r\nContent-Length: 1\r\n\r\nt";

    #[tokio::test]
    async fn a_pod_in_the_list_gets_the_token_and_the_credentials_of_the_real_server() {
        let real = Real::start(TOKEN_ANSWER);
        let world = real.fixture(AWS);
        let ttl = "X-aws-ec2-metadata-token-ttl-seconds: 60";
        let (answer, _) = world.send_with_header("PUT", "/latest/api/token", ttl).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nt"), "{answer}");
        assert!(answer.contains("x-aws-ec2-metadata-token-ttl-seconds: 60"), "{answer}");
        assert!(!answer.contains("EC2ws"), "{answer}");
        let head = real.only_head();
        assert!(
            head.starts_with("put /latest/api/token http/1.1") && head.contains(&ttl.to_lowercase()),
            "{head}"
        );
        let path = "/latest/meta-data/iam/security-credentials/node-role";
        let (answer, _) = world.send_with_header("GET", path, "X-aws-ec2-metadata-token: mine").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let head = real.only_head();
        assert!(
            head.starts_with(&format!("get {path} ")) && head.contains("x-aws-ec2-metadata-token: mine"),
            "{head}"
        );
    }

    #[tokio::test]
    async fn a_burst_of_a_network_plugin_meets_no_rate_limit() {
        let real = Real::start("200 OK\r\nContent-Length: 2\r\n\r\nok");
        let world = real.fixture(AWS);
        for read in 0..450 {
            let (answer, _) = world.send_request("GET /2021-07-15/meta-data/mac").await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "read {read}: {answer}");
        }
    }

    /// EC2's server gives no token to a request that a proxy has passed on. The agent must not make such a request look like the
    /// pod's own, whatever the proxy's client wrote into the header.
    #[tokio::test]
    async fn a_request_that_a_proxy_passed_on_never_reaches_the_real_server() {
        let real = Real::start(TOKEN_ANSWER);
        let world = real.fixture(AWS);
        for forwarded in [
            &b"X-Forwarded-For: 10.0.0.1"[..],
            b"x-forwarded-for: \xff, 203.0.113.9",
            b"X-Forwarded-For: \xff\r\nX-Forwarded-For: 203.0.113.9",
            b"X-Forwarded-For:",
        ] {
            let mut bytes = b"PUT /latest/api/token HTTP/1.1\r\nHost: a\r\n".to_vec();
            bytes.extend_from_slice(forwarded);
            bytes.extend_from_slice(b"\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n");
            let (answer, _) = world.send_as_client(&world.caller, &bytes).await;
            assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("proxied_request"), "{answer}");
        }
        assert!(real.heads.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_token_that_occurs_twice_or_is_no_text_is_refused_and_not_left_out() {
        let real = Real::start(TOKEN_ANSWER);
        let world = real.fixture(AWS);
        for token in [
            &b"X-aws-ec2-metadata-token: a\r\nX-AWS-EC2-Metadata-Token: b"[..],
            b"X-aws-ec2-metadata-token: \xff",
        ] {
            let mut bytes = b"GET /latest/meta-data/mac HTTP/1.1\r\nHost: a\r\n".to_vec();
            bytes.extend_from_slice(token);
            bytes.extend_from_slice(b"\r\n\r\n");
            let (answer, _) = world.send_as_client(&world.caller, &bytes).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
        assert!(real.heads.lock().unwrap().is_empty());
    }

    /// A request waits for an upstream permit, and meanwhile a reload takes the pod off the list.
    #[tokio::test]
    async fn a_request_that_waits_while_the_pod_leaves_the_list_brings_nothing() {
        let real = Real::start(TOKEN_ANSWER);
        let world = real.fixture(AWS);
        let _all = world.resources.upstream_permits.acquire(world.pod().id).await.unwrap();
        let leave = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let (clouds, changed) =
                world.clouds_after_reload(&AWS.replace("URL", &real.server.url_of_path("")));
            let pending = world.pod().entitlements().with_clouds_reset_to_pending(&changed);
            world.pod().replace_entitlements(pending.clone());
            let annotations = seawall_core::annotations::RelatedAnnotations::of_object(Default::default());
            world.pod().replace_entitlements(world.entitlements_under_clouds(&clouds, annotations, &pending));
        };
        let (answer, ()) = tokio::join!(world.send_request("GET /latest/meta-data/mac"), leave);
        assert!(answer.0.contains("account_changed"), "{}", answer.0);
        assert!(real.heads.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn other_pods_and_unknown_clients_never_reach_the_real_server() {
        let real = Real::start("200 OK\r\nContent-Length: 6\r\n\r\nsecret");
        let sections = AWS.replace("URL", &real.server.url_of_path(""));
        let world = PodFixture::with_sections(&format!("realServer: [shop/other, other/cart]\n{sections}\n"));
        let clients = [
            world.caller.clone(),
            PodOrUnknownClient::Anyone,
            PodOrUnknownClient::Unidentified,
            PodOrUnknownClient::Refused(METHOD_NOT_ALLOWED),
        ];
        for client in &clients {
            for target in [
                "/latest/meta-data/iam/security-credentials/",
                "/computeMetadata/v1/",
                "/",
                "/latest/user-data",
            ] {
                let answer = world.get_as_client(client, target).await;
                assert!(!answer.contains("secret"), "{client:?} {target}: {answer}");
            }
        }
        assert!(real.heads.lock().unwrap().is_empty());
    }

    /// A node has one real server, whichever clouds the agent serves.
    #[tokio::test]
    async fn a_protocol_that_is_not_configured_goes_to_the_real_server() {
        let real = Real::start("200 OK\r\nContent-Length: 2\r\n\r\nok");
        let google = BOTH_CLOUDS_BROKERED_CONFIG
            .lines()
            .filter(|line| !line.starts_with("aws:"))
            .map(|line| line.replace("google: {", "google: { upstreamUrl: \"URL\","))
            .collect::<Vec<_>>()
            .join("\n");
        let world = real.fixture(&google);
        let (answer, _) = world.send_request("GET /latest/meta-data/mac").await;
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        assert!(real.only_head().starts_with("get /latest/meta-data/mac "));
        let world = real.fixture(AWS);
        let (answer, _) = world
            .send_with_header("GET", "/computeMetadata/v1/project/project-id", "Metadata-Flavor: Google")
            .await;
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        assert!(real.only_head().contains("metadata-flavor: google"));
    }

    /// Operators find by it which workloads need the node's identity.
    #[tokio::test]
    async fn only_a_pod_that_got_the_nodes_credentials_is_known_to_have_them() {
        const ROLE: &str = "/latest/meta-data/iam/security-credentials";
        const ACCOUNT: &str = "/computeMetadata/v1/instance/service-accounts/default";
        const CONCEAL: &str = "google: { mode: conceal, upstreamUrl: \"URL\" }";
        let requests = [
            (AWS, "200", format!("{ROLE}/node"), Some(CloudName::Aws)),
            (AWS, "200", format!("{ROLE}-extended/node"), Some(CloudName::Aws)),
            (AWS, "404", format!("{ROLE}/node"), None),
            (AWS, "200", format!("{ROLE}/"), None),
            (AWS, "200", ROLE.into(), None),
            (AWS, "200", "/latest/meta-data/identity-credentials/ec2/info".into(), None),
            (CONCEAL, "200", format!("{ACCOUNT}/token"), Some(CloudName::Google)),
            (CONCEAL, "404", format!("{ACCOUNT}/token"), None),
            (CONCEAL, "200", format!("{ACCOUNT}/email"), None),
        ];
        for (cloud, status, target, expected) in requests {
            // In `conceal` every pod gets the node's credentials, with and without the list.
            for list in ["realServer: [shop/cart]\n", ""].iter().take(if cloud == CONCEAL { 2 } else { 1 }) {
                let real = Real::start(format!("{status} A\r\nContent-Length: 1\r\n\r\nt"));
                let section = cloud.replace("URL", &real.server.url_of_path(""));
                let world = PodFixture::with_sections(&format!("{list}{section}\n"));
                world.send_with_header("GET", &target, "Metadata-Flavor: Google").await;
                let knows = |cloud: &CloudName| {
                    let counter = world.pod().fetch_counters.for_cloud(*cloud);
                    counter.got_node_credentials.load(Ordering::Relaxed)
                };
                let known: Vec<_> = CloudName::ALL.iter().filter(|cloud| knows(cloud)).copied().collect();
                assert_eq!(known, expected.iter().copied().collect::<Vec<_>>(), "{list}{target} {status}");
            }
        }
    }

    /// The bootstrap secrets of a GKE node stay hidden, as in `conceal`, in every spelling of their path.
    #[tokio::test]
    async fn googles_paths_go_through_the_filter_in_every_spelling() {
        let real = Real::start("200 OK\r\nContent-Length: 6\r\n\r\nsecret");
        for sections in [AWS, "google: { mode: conceal, upstreamUrl: \"URL\" }"] {
            let world = real.fixture(sections);
            for target in [
                "/computeMetadata/v1/instance/attributes/kube-env",
                "/%63omputeMetadata/v1/instance/attributes/kube-env",
                "/latest/../computeMetadata/v1/instance/attributes/kube-env",
                "//computeMetadata/v1/instance/attributes/kube-env",
                "/computeMetadata/v1/?recursive=true",
                "/nobodys",
            ] {
                let (answer, _) = world.send_with_header("GET", target, "Metadata-Flavor: Google").await;
                assert!(!answer.contains("secret"), "{target}: {answer}");
            }
        }
        assert!(real.heads.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_request_with_a_body_or_another_method_is_refused_and_not_passed_on() {
        let real = Real::start("200 OK\r\nContent-Length: 0\r\n\r\n");
        let world = real.fixture(AWS);
        for (method, header) in [("POST", "A: b"), ("DELETE", "A: b"), ("PUT", "Content-Length: 5")] {
            let (answer, _) = world.send_with_header(method, "/latest/api/token", header).await;
            assert!(answer.starts_with("HTTP/1.1 4"), "{method} {header}: {answer}");
        }
        assert!(real.heads.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_pod_that_leaves_the_list_at_a_reload_has_its_own_entitlements_again() {
        let real = Real::start("200 OK\r\nContent-Length: 6\r\n\r\nsecret");
        let world = real.fixture(AWS);
        assert!(world.pod().entitlements().use_real_server());
        let (clouds, changed) = world.clouds_after_reload(&AWS.replace("URL", &real.server.url_of_path("")));
        assert_eq!(changed, [CloudName::Aws]);
        let before = world.pod().entitlements().with_clouds_reset_to_pending(&changed);
        assert!(!before.use_real_server() && before.is_pending_for_cloud(CloudName::Aws));
        let annotations = seawall_core::annotations::RelatedAnnotations::NotRead;
        let after = world.entitlements_under_clouds(&clouds, annotations, &before);
        assert!(!after.use_real_server());
    }

    #[test]
    fn the_list_takes_names_of_service_accounts_and_no_address_of_the_agent() {
        let mistakes = |text: &str| {
            let document = Document::parse(text).unwrap();
            let listen = ["127.0.0.1:8988".parse().unwrap()];
            let sections = CloudsConfig::read(&document.root(), std::path::Path::new("/"), &listen);
            document.finish(sections).unwrap_err().to_string()
        };
        let said = mistakes("realServer: [kube-system]\naws: { region: eu-west-1 }\n");
        assert!(said.contains("realServer[0]") && said.contains("namespace/name"), "{said}");
        let own = "realServer: [a/b]\naws: { region: eu-west-1, imds: { upstreamUrl: \"http://127.0.0.1:8988\" } }\n";
        let said = mistakes(own);
        assert!(said.contains("realServer") && said.contains("listens at"), "{said}");
    }

    #[test]
    fn a_service_account_is_in_the_list_only_by_namespace_and_name() {
        let account =
            |namespace: &str, name: &str| ServiceAccount { namespace: namespace.into(), name: name.into() };
        let list = RealServer::new(&[account("kube-system", "node")], None, None);
        assert!(list.serves(&account("kube-system", "node")));
        assert!(!list.serves(&account("shop", "node")) && !list.serves(&account("kube-system", "nodes")));
        assert_eq!(list.imds_url, REAL_SERVER_URL);
    }
}
