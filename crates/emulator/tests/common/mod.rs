//! A client on loopback and an emulator with one issuer, one provider and one grant.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use seawall_core::{Clock, ManualClock};
use seawall_emulator::google::{
    self, GoogleEmulator, GoogleEmulatorOptions, ImpersonationPolicy, WorkloadIdentityProvider,
};
use seawall_emulator::keys::Algorithm;
use seawall_emulator::service_account_tokens::{Issuer, Workload};
use serde_json::{Value, json};

pub(crate) const PROVIDER: &str =
    "//iam.googleapis.com/projects/1234/locations/global/workloadIdentityPools/reef/providers/cluster";
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
pub(crate) const AUDIENCE: &str = "reef.svc.id.goog";
pub(crate) const EMAIL: &str = "coral@seawall-emulator.iam.gserviceaccount.com";
pub(crate) const CLOUD_PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// An emulator with its issuer and the hand of its clock.
pub(crate) struct Google {
    pub(crate) running: GoogleEmulator,
    pub(crate) issuer: Issuer,
    pub(crate) clock: Clock,
    pub(crate) hand: ManualClock,
}

/// One where `reef/coral` may become [`EMAIL`].
pub(crate) async fn start() -> Google {
    start_with(|_| {}).await
}

pub(crate) async fn start_with(change: impl FnOnce(&mut GoogleEmulatorOptions)) -> Google {
    let issuer = Issuer::generate(ISSUER, Algorithm::Es256).unwrap();
    let provider = WorkloadIdentityProvider {
        name: PROVIDER.into(),
        issuer: ISSUER.into(),
        keys: issuer.key_set().unwrap(),
        audiences: [AUDIENCE.to_owned()].into(),
    };
    let mut options = GoogleEmulatorOptions {
        providers: vec![provider],
        impersonation: ImpersonationPolicy::only([("reef", "coral", EMAIL)]),
        ..GoogleEmulatorOptions::default()
    };
    change(&mut options);
    let (clock, hand) = Clock::manual();
    let running = google::start(options, clock.clone()).await.unwrap();
    Google { running, issuer, clock, hand }
}

impl Google {
    /// The claims of a good token of `reef/NAME`.
    pub(crate) fn claims(&self, name: &str) -> Value {
        let workload = Workload::for_service_account("reef", name).in_pod("pod-1").on_node("node-1");
        self.issuer.claims(&workload, &[AUDIENCE], Duration::from_secs(3600), self.clock.wall_time())
    }

    pub(crate) fn token(&self, name: &str) -> String {
        self.issuer.sign(&self.claims(name)).unwrap()
    }

    /// Sends one request on its own connection.
    pub(crate) async fn try_send(&self, request: Request<Full<Bytes>>) -> Result<Answer, hyper::Error> {
        let stream = tokio::net::TcpStream::connect(self.running.address()).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let answer = sender.send_request(request).await;
        let read = async {
            let (head, body) = answer?.into_parts();
            let body = body.collect().await?.to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        let read = read.await;
        driver.abort();
        read
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        self.try_send(request).await.unwrap()
    }

    pub(crate) async fn exchange_form(&self, form: &[(&str, &str)]) -> Answer {
        self.send(exchange_request(form)).await
    }

    /// Exchanges a Kubernetes token with a form that is otherwise right.
    pub(crate) async fn exchange(&self, token: &str) -> Answer {
        self.exchange_form(&form(token)).await
    }

    /// A federated access token of `reef/NAME`.
    pub(crate) async fn federated(&self, name: &str) -> String {
        let answer = self.exchange(&self.token(name)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["access_token"].as_str().unwrap().to_owned()
    }

    /// Calls a method of IAM Credentials.
    pub(crate) async fn call(&self, bearer: &str, email: &str, method: &str, body: &Value) -> Answer {
        let path = format!("/v1/projects/-/serviceAccounts/{email}:{method}");
        let request = Request::post(path)
            .header("host", "iamcredentials.googleapis.com")
            .header("authorization", format!("Bearer {bearer}"))
            .header("content-type", "application/json");
        self.send(request.body(Full::new(body.to_string().into())).unwrap()).await
    }

    pub(crate) async fn access_token(&self, bearer: &str) -> Answer {
        self.call(bearer, EMAIL, "generateAccessToken", &json!({"scope": [CLOUD_PLATFORM]})).await
    }

    /// Asks the metadata server, with the header.
    pub(crate) async fn metadata(&self, target: &str) -> Answer {
        self.send(get(target, &[("metadata-flavor", "Google")])).await
    }
}

pub(crate) fn get(target: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let request =
        Request::builder().method(Method::GET).uri(target).header("host", "metadata.google.internal");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Full::default()).unwrap()
}

pub(crate) fn exchange_request(form: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(form);
    Request::post("/v1/token")
        .header("host", "sts.googleapis.com")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Full::new(body.finish().into()))
        .unwrap()
}

/// The form that google-auth's STS client sends.
pub(crate) fn form(token: &str) -> [(&'static str, &str); 6] {
    [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("audience", PROVIDER),
        ("scope", CLOUD_PLATFORM),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ("subject_token", token),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
    ]
}
