//! The state behind the listener, and the way of one request through it.
//!
//! A request is counted in, passes its endpoint's gate (where faults wait and decide), and is answered by the service
//! that its path names. Only this file holds the clock, the keys and the policy; the services are functions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use seawall_core::Clock;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::ledger::{Counts, End, Ledger};
use super::metadata::Metadata;
use super::reply::{self, Reply, api_error, oauth_error};
use super::token::{AccessToken, Mint};
use super::{Endpoint, Impersonation, Options, Provider, credentials, sts};
use crate::faults::{Fate, Faults, Gate};
use crate::jwt;
use crate::keys::{Algorithm, KeyError, SigningKey};

/// Longest request body, in bytes. A Kubernetes token has one or two KiB.
const BODY_LIMIT: usize = 256 * 1024;

/// How long a body may take, on the machine's clock: it guards memory, see [`crate::server`].
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The emulator's own page, for checkers outside of the process: what [`super::Running`] tells those within.
const COUNTS: &str = "/emulator/counts";

/// The connection is closed without an answer, because a fault says so.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("closed without an answer, as told")]
pub(crate) struct Closed;

#[derive(Debug)]
pub(crate) struct Cloud {
    pub(super) clock: Clock,
    /// Made by the first who needs it; everyone else waits for that one.
    key: OnceCell<Arc<SigningKey>>,
    mint: Mint,
    providers: Vec<Provider>,
    long_lifetimes: bool,
    policy: Mutex<Policy>,
    gates: BTreeMap<Endpoint, Gate>,
    ledger: Ledger,
    metadata: Metadata,
}

/// What a test may change while the emulator runs.
#[derive(Clone, Debug)]
struct Policy {
    token_lifetime: Duration,
    impersonation: Impersonation,
}

impl Cloud {
    pub(super) fn new(options: Options, clock: Clock) -> Result<Self, KeyError> {
        let gates = Endpoint::ALL.into_iter().map(|endpoint| {
            let faults =
                if Endpoint::FAULTY.contains(&endpoint) { options.faults.clone() } else { Faults::default() };
            (endpoint, Gate::new(faults))
        });
        Ok(Self {
            clock,
            key: OnceCell::new_with(options.identity_key),
            mint: Mint::new()?,
            gates: gates.collect(),
            ledger: Ledger::default(),
            metadata: Metadata::new(&options.machine),
            providers: options.providers,
            long_lifetimes: options.long_lifetimes,
            policy: Mutex::new(Policy {
                token_lifetime: options.token_lifetime,
                impersonation: options.impersonation,
            }),
        })
    }

    /// The way of one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Result<Reply, Closed> {
        if request.uri().path() == COUNTS {
            return Ok(self.all_counts());
        }
        let route = Route::of(request.method(), request.uri().path());
        let endpoint = route.endpoint();
        let mut visit = self.ledger.arrive(endpoint);
        let Some(gate) = self.gates.get(&endpoint) else { return Err(Closed) };
        let fate = gate.pass(&self.clock).await;
        if fate == Fate::Close {
            return Err(Closed);
        }
        if let Some(reply) = broken(endpoint, fate) {
            return Ok(reply);
        }
        let reply = self.serve(route, request).await;
        if fate == Fate::Garble {
            return Ok(garbled(reply).await);
        }
        visit.ends(if reply.status().as_u16() < 400 { End::Answered } else { End::Refused });
        Ok(reply)
    }

    fn all_counts(&self) -> Reply {
        let endpoints = Endpoint::ALL.into_iter().map(|endpoint| {
            let counts = self.ledger.counts(endpoint);
            let told = json!({"calls": counts.calls, "answered": counts.answered, "refused": counts.refused,
                              "faulted": counts.faulted, "in_flight": counts.in_flight, "peak": counts.peak});
            (endpoint.name().to_owned(), told)
        });
        let impersonations = self.ledger.impersonations().into_iter().map(
            |((subject, account), tokens)| json!({"subject": subject, "account": account, "tokens": tokens}),
        );
        let told = json!({"endpoints": endpoints.collect::<serde_json::Map<_, _>>(),
                          "exchanges": self.ledger.exchanges(),
                          "impersonations": impersonations.collect::<Vec<_>>()});
        reply::json(StatusCode::OK, &told)
    }

    async fn serve(&self, route: Route, request: Request<Incoming>) -> Reply {
        match route {
            Route::Exchange => self.exchange(request).await,
            Route::AccessToken(account) => self.access_token_for(&account, request).await,
            Route::IdToken(account) => self.id_token_for(&account, request).await,
            Route::Keys => self.published_keys().await,
            Route::TokenInfo => self.token_info(request.uri().query().unwrap_or_default()),
            Route::Metadata => self.metadata.answer(self, &request).await,
        }
    }

    async fn exchange(&self, request: Request<Incoming>) -> Reply {
        if !is_form(&request) {
            return sts::Refused::NotForm.reply();
        }
        let body = match body(request).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        match sts::exchange(&body, &self.providers, self.seconds()) {
            Ok(granted) => self.federated(granted),
            Err(refused) => refused.reply(),
        }
    }

    fn federated(&self, granted: sts::Granted) -> Reply {
        self.ledger.exchanged(&granted.subject);
        let lifetime = self.policy().token_lifetime;
        let token = AccessToken {
            sub: granted.subject,
            account: None,
            scopes: granted.scopes,
            exp: self.end_of(lifetime),
            n: 0,
            principal: Some(granted.principal),
        };
        let body = json!({"access_token": self.mint.issue(token), "issued_token_type": sts::ACCESS_TOKEN,
                          "token_type": "Bearer", "expires_in": lifetime.as_secs()});
        reply::json(StatusCode::OK, &body)
    }

    async fn access_token_for(&self, account: &str, request: Request<Incoming>) -> Reply {
        let caller = self.caller(&request);
        let body = match body(request).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        self.impersonate(account, caller, &body).unwrap_or_else(|refused| refused.reply())
    }

    fn impersonate(
        &self,
        account: &str,
        caller: Option<AccessToken>,
        body: &[u8],
    ) -> Result<Reply, credentials::Refused> {
        let caller = credentials::authenticate(caller)?;
        let policy = self.policy();
        let wanted: credentials::AccessTokenRequest = credentials::read(body)?;
        let (scopes, lifetime) =
            wanted.check(&caller, account, &policy.impersonation, self.long_lifetimes)?;
        self.ledger.impersonated(&caller.sub, account);
        let lifetime = lifetime.min(policy.token_lifetime);
        let token = self.service_account_token(caller.sub, account, scopes, lifetime);
        let end = jiff::Timestamp::try_from(self.clock.wall() + lifetime).unwrap_or(jiff::Timestamp::MAX);
        let body =
            json!({"accessToken": token, "expireTime": end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
        Ok(reply::json(StatusCode::OK, &body))
    }

    async fn id_token_for(&self, account: &str, request: Request<Incoming>) -> Reply {
        let caller = self.caller(&request);
        let body = match body(request).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        match self.identify(account, caller, &body) {
            Ok(claims) => match self.signed(&claims).await {
                Ok(token) => reply::json(StatusCode::OK, &json!({ "token": token })),
                Err(_) => reply::failure(StatusCode::INTERNAL_SERVER_ERROR),
            },
            Err(refused) => refused.reply(),
        }
    }

    /// The claims of the identity token that the caller may have.
    fn identify(
        &self,
        account: &str,
        caller: Option<AccessToken>,
        body: &[u8],
    ) -> Result<Value, credentials::Refused> {
        let caller = credentials::authenticate(caller)?;
        let policy = self.policy();
        let wanted: credentials::IdTokenRequest = credentials::read(body)?;
        wanted.check(&caller, account, &policy.impersonation)?;
        self.ledger.impersonated(&caller.sub, account);
        Ok(wanted.claims(account, self.seconds(), policy.token_lifetime))
    }

    async fn published_keys(&self) -> Reply {
        match self.key().await {
            Ok(key) => reply::json(StatusCode::OK, &key.jwks()),
            Err(_) => reply::failure(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    /// What `oauth2.googleapis.com/tokeninfo` says of an access token, plus whose it is.
    fn token_info(&self, query: &str) -> Reply {
        let given = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "access_token");
        let Some(token) = given.and_then(|(_, token)| self.access_token(&token)) else {
            return oauth_error(
                StatusCode::BAD_REQUEST,
                "invalid_token",
                "the token is not ours, or has expired",
            );
        };
        let mut info = json!({
            "azp": credentials::unique_id(token.account.as_ref().unwrap_or(&token.sub)),
            "scope": token.scopes.join(" "),
            // Google writes both numbers as strings.
            "exp": token.exp.to_string(),
            "expires_in": token.exp.saturating_sub(self.seconds()).to_string(),
            "kubernetes_subject": token.sub,
        });
        if let Some(email) = &token.account {
            info["email"] = email.as_str().into();
            info["email_verified"] = "true".into();
        }
        if let Some(principal) = token.principal {
            info["sub"] = principal.into();
        }
        reply::json(StatusCode::OK, &info)
    }

    /// The caller that the `Authorization` header proves.
    fn caller(&self, request: &Request<Incoming>) -> Option<AccessToken> {
        let header = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = header.split_once(' ')?;
        if scheme.eq_ignore_ascii_case("Bearer") { self.access_token(token.trim()) } else { None }
    }

    /// A token that acts as a service account.
    pub(super) fn service_account_token(
        &self,
        sub: String,
        account: &str,
        scopes: Vec<String>,
        lifetime: Duration,
    ) -> String {
        let exp = self.end_of(lifetime);
        self.mint.issue(AccessToken {
            sub,
            account: Some(account.to_owned()),
            scopes,
            exp,
            n: 0,
            principal: None,
        })
    }

    /// An identity token, signed with the published key.
    pub(super) async fn signed(&self, claims: &Value) -> Result<String, KeyError> {
        let key = self.key().await?;
        jwt::sign(key, &json!({"alg": key.algorithm().name(), "kid": key.id(), "typ": "JWT"}), claims)
    }

    async fn key(&self) -> Result<&SigningKey, KeyError> {
        let made = self.key.get_or_try_init(async || {
            let making = tokio::task::spawn_blocking(|| SigningKey::generate(Algorithm::Rs256));
            making.await.map_err(|_| KeyError::Library)?.map(Arc::new)
        });
        made.await.map(|key| &**key)
    }

    pub(super) fn seconds(&self) -> u64 {
        jwt::seconds(self.clock.wall())
    }

    pub(super) fn token_lifetime(&self) -> Duration {
        self.policy().token_lifetime
    }

    fn end_of(&self, lifetime: Duration) -> u64 {
        self.seconds().saturating_add(lifetime.as_secs())
    }

    fn policy(&self) -> Policy {
        self.lock().clone()
    }

    /// A lock, because a test's thread writes; never held across an await.
    fn lock(&self) -> MutexGuard<'_, Policy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What [`super::Running`] passes on.
impl Cloud {
    pub(super) fn set_faults(&self, endpoint: Endpoint, faults: Faults) {
        if let Some(gate) = self.gates.get(&endpoint) {
            gate.set(faults);
        }
    }

    pub(super) fn set_token_lifetime(&self, lifetime: Duration) {
        self.lock().token_lifetime = lifetime;
    }

    pub(super) fn set_impersonation(&self, impersonation: Impersonation) {
        self.lock().impersonation = impersonation;
    }

    pub(super) fn set_attribute(&self, name: &str, value: &str) {
        self.metadata.set_attribute(name, value);
    }

    pub(super) fn counts(&self, endpoint: Endpoint) -> Counts {
        self.ledger.counts(endpoint)
    }

    pub(super) fn exchanges(&self) -> BTreeMap<String, u64> {
        self.ledger.exchanges()
    }

    pub(super) fn impersonations(&self) -> BTreeMap<(String, String), u64> {
        self.ledger.impersonations()
    }

    pub(super) fn access_token(&self, token: &str) -> Option<AccessToken> {
        self.mint.read(token, self.seconds())
    }
}

/// Which service a path names, with the service account it is about.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    Exchange,
    AccessToken(String),
    IdToken(String),
    Keys,
    TokenInfo,
    Metadata,
}

impl Route {
    fn of(method: &Method, path: &str) -> Self {
        let post = method == Method::POST;
        match path {
            "/v1/token" if post => Self::Exchange,
            "/oauth2/v3/certs" => Self::Keys,
            "/tokeninfo" | "/oauth2/v3/tokeninfo" => Self::TokenInfo,
            _ if post => Self::impersonation(path).unwrap_or(Self::Metadata),
            _ => Self::Metadata,
        }
    }

    /// `/v1/projects/-/serviceAccounts/EMAIL:METHOD`, the last part percent-encoded or not.
    fn impersonation(path: &str) -> Option<Self> {
        let last = path.strip_prefix("/v1/projects/-/serviceAccounts/")?;
        let last = super::metadata::percent_decoded(last);
        let (account, method) = last.rsplit_once(':').filter(|(account, _)| !account.contains('/'))?;
        match method {
            "generateAccessToken" => Some(Self::AccessToken(account.to_owned())),
            "generateIdToken" => Some(Self::IdToken(account.to_owned())),
            _ => None,
        }
    }

    fn endpoint(&self) -> Endpoint {
        match self {
            Self::Exchange => Endpoint::Exchange,
            Self::AccessToken(_) => Endpoint::AccessToken,
            Self::IdToken(_) => Endpoint::IdToken,
            Self::Keys => Endpoint::Keys,
            Self::TokenInfo => Endpoint::TokenInfo,
            Self::Metadata => Endpoint::Metadata,
        }
    }
}

fn is_form(request: &Request<Incoming>) -> bool {
    let stated = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = stated.unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// The whole body, within its bounds of size and time.
async fn body(request: Request<Incoming>) -> Result<Bytes, Reply> {
    let whole = Limited::new(request.into_body(), BODY_LIMIT).collect();
    match tokio::time::timeout(BODY_TIMEOUT, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => {
            Err(api_error(StatusCode::PAYLOAD_TOO_LARGE, "INVALID_ARGUMENT", "the body is too long"))
        }
        Err(_) => Err(api_error(StatusCode::REQUEST_TIMEOUT, "DEADLINE_EXCEEDED", "the body took too long")),
    }
}

/// The answer that a fault gives instead of the service's.
fn broken(endpoint: Endpoint, fate: Fate) -> Option<Reply> {
    let metadata = endpoint == Endpoint::Metadata;
    let reply = match fate {
        Fate::Answer | Fate::Garble | Fate::Close => return None,
        Fate::Throttle(wait) if metadata => {
            reply::throttled(reply::html(StatusCode::TOO_MANY_REQUESTS, "Too many requests."), wait)
        }
        Fate::Throttle(wait) => {
            let told =
                api_error(StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", "The rate limit is exceeded.");
            reply::throttled(told, wait)
        }
        Fate::Fail { status, html } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            if html || metadata {
                reply::html(status, "The emulator was told to fail.")
            } else {
                reply::failure(status)
            }
        }
    };
    Some(if metadata { super::metadata::dressed(reply) } else { reply })
}

/// The answer with half of its body: well-formed HTTP around ill-formed content.
async fn garbled(reply: Reply) -> Reply {
    let (head, body) = reply.into_parts();
    let whole = body.collect().await.map_or_else(|never| match never {}, |body| body.to_bytes());
    let half = whole.slice(..whole.len() / 2);
    Response::from_parts(head, Full::new(half))
}
