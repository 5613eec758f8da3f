//! Exchanges a Kubernetes token for a Google federated token, and that for a service account's token if one is impersonated.
//!
//! Two POSTs at most (formats as google-auth-library-python writes and reads them in `google/oauth2/sts.py`, `google/auth/iam.py`,
//! `google/auth/impersonated_credentials.py`): the token exchange of RFC 8693 at STS, then `generateAccessToken` or
//! `generateIdToken` at IAM Credentials. The federated token between them is not kept: it would be one more secret in memory to
//! save one call an hour. Every response is bounded and parsed into a type. An unexpected response is an [`ExchangeError`] that
//! names the step.

mod credential;
mod credential_request;
mod http;
mod principal;
mod refresh_policy;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use seawall_core::pod::SubjectTokens;
use seawall_core::{Clock, Secret};

use crate::exchange::{ExchangeFuture, IssuedCredential, TokenExchange};
use crate::failure::{ExchangeError, ExchangeFault};
use crate::https::{self, HttpsClient};
use crate::reply::form;

pub use crate::https::UpstreamConfigError;
pub use credential::{GoogleCredential, GoogleCredentialError};
pub use credential_request::{CredentialRequest, CredentialRequestRef};
pub use principal::GooglePrincipal;
pub use refresh_policy::{FLOOR, SETTINGS};

/// The broker of Google's credentials.
pub type GoogleBroker = crate::Broker<GoogleExchange>;

/// A pod's client for Google's credentials.
pub type GooglePodCredentials = crate::PodLeaseClient<GoogleExchange>;

/// A pod that may hold Google's credentials, and the service account that it impersonates, if any.
pub type GooglePodCredentialsSpec = crate::PodCredentialsSpec<Option<Arc<str>>>;

/// One principal, as operators may see it.
pub type GooglePrincipalView = crate::PrincipalView<GooglePrincipal>;

/// The configuration of the exchange with Google.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoogleExchangeConfig {
    /// The API that exchanges a Kubernetes token for a federated one.
    pub exchange: GoogleExchangeApi,
    /// STS: `https://sts.googleapis.com`, or http on loopback. For [`GoogleExchangeApi::IdentityBindingToken`]:
    /// `https://securetoken.googleapis.com`.
    pub sts_url: String,
    /// IAM Credentials: `https://iamcredentials.googleapis.com`, or http on loopback.
    pub iam_url: String,
    /// The exchange's `audience`: the full name of the workload identity pool provider, or
    /// `identitynamespace:POOL:CLUSTER`.
    pub workload_identity_provider: String,
    /// The `aud` that the provider expects in Kubernetes tokens.
    pub token_audience: String,
    /// Certificates in PEM, trusted beside the public roots.
    pub extra_roots: Option<String>,
    /// `http://HOST:PORT` of a proxy through which both URLs are reached, by CONNECT.
    pub proxy: Option<String>,
}

/// The two shapes of Google's token exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoogleExchangeApi {
    /// RFC 8693, form encoded, at `/v1/token`.
    Sts,
    /// The same members as JSON at `/v1/identitybindingtoken`, which GKE's own pools speak. Google documents it nowhere;
    /// this is what its clients send: secrets-store-csi-driver-provider-gcp `auth/auth.go`, istio
    /// `security/pkg/nodeagent/plugin/providers/google/stsclient`. They ask for the scope cloud-platform only, and
    /// never name an account in the exchange; whether others are granted there is not known.
    IdentityBindingToken,
}

/// The scope of a federated token that is used to impersonate: what the account may do is decided by its own policy.
const CLOUD_PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The lifetime requested from IAM Credentials: its longest without an organisation policy, and the life of every identity token.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The plausible lifetimes in seconds. A lifetime outside is an upstream's error.
const PLAUSIBLE: std::ops::RangeInclusive<u64> = 1..=12 * 3600;

/// Google's token service and IAM Credentials.
#[derive(Debug)]
pub struct GoogleExchange {
    config: GoogleExchangeConfig,
    https: HttpsClient,
    clock: Clock,
}

impl GoogleExchange {
    /// Returns an exchange; it connects on the first call.
    ///
    /// # Errors
    /// A URL that is not https (or http on loopback).
    pub fn new(config: GoogleExchangeConfig, clock: Clock) -> Result<Self, UpstreamConfigError> {
        https::check_url(&config.sts_url)?;
        https::check_url(&config.iam_url)?;
        let https = HttpsClient::new(config.extra_roots.as_deref(), config.proxy.as_deref())?;
        https.check_proxy_for(&[&config.sts_url, &config.iam_url])?;
        Ok(Self { config, https, clock })
    }

    async fn chain(
        &self,
        principal: &GooglePrincipal,
        subject: &dyn SubjectTokens,
    ) -> Result<IssuedCredential<GoogleCredential>, ExchangeError> {
        let kubernetes = subject.subject_token(&self.config.token_audience).await?;
        match (&principal.account, &principal.want) {
            (None, CredentialRequest::AccessToken { scopes }) => {
                let federated = self.federate(&kubernetes, scopes).await?;
                issued("sts", federated.token, federated.lifetime)
            }
            (None, CredentialRequest::IdToken { .. }) => Err(ExchangeError::new(
                ExchangeFault::AccessDenied,
                "generateIdToken",
                "identity tokens are issued to service accounts only",
            )),
            (Some(account), want) => {
                let federated = self.federate(&kubernetes, CLOUD_PLATFORM).await?;
                self.impersonate(&federated.token, account, want).await
            }
        }
    }

    async fn federate(
        &self,
        kubernetes: &Secret<String>,
        scopes: &str,
    ) -> Result<reply::GoogleToken, ExchangeError> {
        let members = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("audience", &self.config.workload_identity_provider),
            ("scope", scopes),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
            ("subject_token", kubernetes.expose()),
        ];
        let (path, kind, body) = match self.config.exchange {
            GoogleExchangeApi::Sts => ("/v1/token", "application/x-www-form-urlencoded", form(&members)),
            GoogleExchangeApi::IdentityBindingToken => {
                ("/v1/identitybindingtoken", "application/json", json(&members))
            }
        };
        let url = format!("{}{path}", self.config.sts_url);
        let answer = http::post(&self.https, "sts", &url, kind, None, &body).await?;
        reply::sts(&answer.body)
    }

    async fn impersonate(
        &self,
        federated: &Secret<String>,
        account: &str,
        want: &CredentialRequest,
    ) -> Result<IssuedCredential<GoogleCredential>, ExchangeError> {
        let (step, body) = match want {
            CredentialRequest::AccessToken { scopes } => {
                let scopes: Vec<&str> = scopes.split(' ').collect();
                let lifetime = format!("{}s", LIFETIME.as_secs());
                ("generateAccessToken", serde_json::json!({ "scope": scopes, "lifetime": lifetime }))
            }
            CredentialRequest::IdToken { audience, include_email } => (
                "generateIdToken",
                serde_json::json!({ "audience": &**audience, "includeEmail": include_email }),
            ),
        };
        let url =
            format!("{}/v1/projects/-/serviceAccounts/{}:{step}", self.config.iam_url, email(step, account)?);
        let body = Secret::new(body.to_string());
        let answer = http::post(&self.https, step, &url, "application/json", Some(federated), &body).await?;
        // The life left is the difference of two instants of the upstream's clock, so that it is true on a node whose own is
        // wrong. Without its time there is only ours; then the longest life that was possible bounds the error.
        // Its time is cut to the second, so the instant is up to one later; read as it stands, it would add a life that the
        // token does not have.
        let now = answer.date.map_or_else(|| self.clock.wall(), |date| date + Duration::from_secs(1));
        let token = match want {
            CredentialRequest::AccessToken { .. } => reply::access_token(&answer.body, now)?,
            CredentialRequest::IdToken { .. } => reply::id_token(&answer.body, now)?,
        };
        issued(step, token.token, token.lifetime.min(LIFETIME))
    }
}

fn json(members: &[(&str, &str)]) -> Secret<String> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let members = members.iter().map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)));
    Secret::new(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
}

/// Checks that the account may stand in a URL path. The configuration was checked before. But a slash here would be another
/// account's method, so the check is repeated where it matters.
fn email<'a>(step: &'static str, account: &'a str) -> Result<&'a str, ExchangeError> {
    if account.bytes().all(|b| b.is_ascii_alphanumeric() || b"@.-_".contains(&b)) {
        return Ok(account);
    }
    Err(ExchangeError::new(
        ExchangeFault::ExchangeRejected,
        step,
        "the service account is not an e-mail address",
    ))
}

fn issued(
    step: &'static str,
    token: Secret<String>,
    lifetime: Duration,
) -> Result<IssuedCredential<GoogleCredential>, ExchangeError> {
    let nonsense = |what: String| ExchangeError::new(ExchangeFault::Unavailable, step, what);
    if !PLAUSIBLE.contains(&lifetime.as_secs()) {
        return Err(nonsense(format!("answered with an implausible lifetime of {} s", lifetime.as_secs())));
    }
    let credential = GoogleCredential::new(token).map_err(|error| nonsense(error.to_string()))?;
    Ok(IssuedCredential::new(credential, lifetime))
}

impl TokenExchange for GoogleExchange {
    const CLOUD: &'static str = "google";
    type Principal = GooglePrincipal;
    type Credential = GoogleCredential;

    fn issue<'a>(
        &'a self,
        principal: &'a GooglePrincipal,
        subject: &'a dyn SubjectTokens,
    ) -> ExchangeFuture<'a, GoogleCredential> {
        Box::pin(self.chain(principal, subject))
    }
}
