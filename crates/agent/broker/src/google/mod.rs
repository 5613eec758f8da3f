//! Exchanges a Kubernetes token for a Google federated token. If the pod impersonates a service account, a second call exchanges
//! the federated token for the account's token.
//!
//! An exchange takes at most two POST requests: the token exchange of RFC 8693 at STS, then `generateAccessToken` or
//! `generateIdToken` at IAM Credentials. The library google-auth-library-python uses the same formats (`google/oauth2/sts.py`,
//! `google/auth/iam.py`, `google/auth/impersonated_credentials.py`). The agent does not cache federated tokens. A cached token
//! would be one more secret in memory and would save only one call per hour. Every response has a size limit and is parsed into a
//! type. An unexpected response is an [`ExchangeError`] that names the step.

mod credential;
mod credential_request;
mod post_request;
mod principal;
mod refresh_policy;
mod response_parser;

use std::sync::Arc;
use std::time::Duration;

use seawall_core::pod::SubjectTokens;
use seawall_core::{Clock, Secret};

use crate::credential_exchange::{ExchangeFuture, IssuedCredential, TokenExchange};
use crate::failure::{ExchangeError, ExchangeFault};
use crate::https::{self, HttpsClient};
use crate::upstream_bodies::encode_form;

pub use crate::https::UpstreamConfigError;
pub use credential::{GoogleCredentialError, GoogleTokenText};
pub use credential_request::{CredentialRequest, CredentialRequestRef};
pub use principal::GooglePrincipal;
pub use refresh_policy::{BROKER_SETTINGS, LIFETIME_FLOOR};

/// The broker for Google credentials.
pub type GoogleBroker = crate::Broker<GoogleExchange>;

/// A pod's client for Google credentials.
pub type GooglePodLeaseClient = crate::PodLeaseClient<GoogleExchange>;

/// A pod that is allowed to get Google credentials, and the service account that the pod impersonates, if any.
pub type GooglePodCredentialsSpec = crate::PodCredentialsSpec<Option<Arc<str>>>;

/// The state of one principal, as operators see it.
pub type GooglePrincipalView = crate::PrincipalView<GooglePrincipal>;

/// The configuration of the exchange with Google.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoogleExchangeConfig {
    /// The API that exchanges a Kubernetes token for a federated token.
    pub exchange_api: GoogleExchangeApi,
    /// The URL of STS: `https://sts.googleapis.com`, or http on loopback.
    /// For [`GoogleExchangeApi::IdentityBindingToken`], the URL is `https://securetoken.googleapis.com`.
    pub sts_url: String,
    /// The URL of IAM Credentials: `https://iamcredentials.googleapis.com`, or http on loopback.
    pub iam_url: String,
    /// The `audience` of the token exchange: the full name of the workload identity pool provider, or
    /// `identitynamespace:POOL:CLUSTER`.
    pub workload_identity_provider: String,
    /// The `aud` that the provider expects in Kubernetes tokens.
    pub token_audience: String,
    /// Additional root certificates in PEM format. The public roots are trusted, too.
    pub extra_roots: Option<String>,
    /// The proxy for both URLs (`http://HOST:PORT`). The agent sends CONNECT requests to the proxy.
    pub proxy: Option<String>,
}

/// The two APIs of Google's token exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoogleExchangeApi {
    /// The form-encoded API of RFC 8693 at `/v1/token`.
    Sts,
    /// The JSON API with the same members at `/v1/identitybindingtoken`, which GKE's own pools use.
    /// Google does not document it. The requests follow existing clients: secrets-store-csi-driver-provider-gcp `auth/auth.go`,
    /// istio `security/pkg/nodeagent/plugin/providers/google/stsclient`. These clients request only the scope cloud-platform and
    /// never name an account in the exchange. Google does not document whether the API grants other scopes.
    IdentityBindingToken,
}

/// The scope of a federated token for impersonation. The account's own policies decide what the account is allowed to do.
const CLOUD_PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The lifetime that the agent requests from IAM Credentials.
/// This lifetime is the maximum, unless an organisation policy raises the maximum. Every identity token has this lifetime, too.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The plausible lifetimes in seconds. Any other lifetime is an error of the upstream.
const PLAUSIBLE: std::ops::RangeInclusive<u64> = 1..=12 * 3600;

/// The [`TokenExchange`] for Google. It calls Google's token service and IAM Credentials.
#[derive(Debug)]
pub struct GoogleExchange {
    config: GoogleExchangeConfig,
    https: HttpsClient,
    clock: Clock,
}

impl GoogleExchange {
    /// Returns an exchange. The exchange opens its first connection at the first call.
    ///
    /// # Errors
    /// A URL is not https (or http on loopback), or the root certificates or the proxy are unusable.
    pub fn new(config: GoogleExchangeConfig, clock: Clock) -> Result<Self, UpstreamConfigError> {
        https::require_https_unless_loopback(&config.sts_url)?;
        https::require_https_unless_loopback(&config.iam_url)?;
        let https = HttpsClient::new(config.extra_roots.as_deref(), config.proxy.as_deref())?;
        https.check_proxy_for(&[&config.sts_url, &config.iam_url])?;
        Ok(Self { config, https, clock })
    }

    async fn chain(
        &self,
        principal: &GooglePrincipal,
        subject: &dyn SubjectTokens,
    ) -> Result<IssuedCredential<GoogleTokenText>, ExchangeError> {
        let kubernetes = subject.subject_token(&self.config.token_audience).await?;
        match (&principal.account, &principal.requested_credential) {
            (None, CredentialRequest::AccessToken { scopes }) => {
                let federated = self.federate(&kubernetes, scopes).await?;
                issued("sts", federated.token, federated.lifetime)
            }
            (None, CredentialRequest::IdToken { .. }) => Err(ExchangeError::new(
                ExchangeFault::AccessDenied,
                "generateIdToken",
                "Google issues identity tokens only to service accounts",
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
    ) -> Result<response_parser::GoogleToken, ExchangeError> {
        let members = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("audience", &self.config.workload_identity_provider),
            ("scope", scopes),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
            ("subject_token", kubernetes.expose()),
        ];
        let (path, kind, body) = match self.config.exchange_api {
            GoogleExchangeApi::Sts => {
                ("/v1/token", "application/x-www-form-urlencoded", encode_form(&members))
            }
            GoogleExchangeApi::IdentityBindingToken => {
                ("/v1/identitybindingtoken", "application/json", json(&members))
            }
        };
        let url = format!("{}{path}", self.config.sts_url);
        let answer = post_request::send_post(&self.https, "sts", &url, kind, None, &body).await?;
        response_parser::parse_sts_token(&answer.body)
    }

    async fn impersonate(
        &self,
        federated: &Secret<String>,
        account: &str,
        want: &CredentialRequest,
    ) -> Result<IssuedCredential<GoogleTokenText>, ExchangeError> {
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
        let answer =
            post_request::send_post(&self.https, step, &url, "application/json", Some(federated), &body)
                .await?;
        // The expiry time and `date` both come from Google's clock. So the remaining lifetime is correct even if the node's clock
        // is wrong. `date` is truncated to seconds, so the code adds one second; otherwise the lifetime could be too long.
        // Without `date`, the code uses the node's clock, and `LIFETIME` limits the error.
        let now =
            answer.server_time.map_or_else(|| self.clock.wall_time(), |date| date + Duration::from_secs(1));
        let token = match want {
            CredentialRequest::AccessToken { .. } => response_parser::parse_access_token(&answer.body, now)?,
            CredentialRequest::IdToken { .. } => response_parser::parse_id_token(&answer.body, now)?,
        };
        issued(step, token.token, token.lifetime.min(LIFETIME))
    }
}

fn json(members: &[(&str, &str)]) -> Secret<String> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let members = members.iter().map(|(name, value)| format!("{}:{}", quoted(name), quoted(value)));
    Secret::new(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
}

/// Checks that the account can be part of a URL path.
/// The agent has already checked the configuration. This function repeats the check, because a slash in the account would make
/// the URL name another account's method.
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
) -> Result<IssuedCredential<GoogleTokenText>, ExchangeError> {
    let nonsense = |what: String| ExchangeError::new(ExchangeFault::Unavailable, step, what);
    if !PLAUSIBLE.contains(&lifetime.as_secs()) {
        return Err(nonsense(format!("answered with an implausible lifetime of {} s", lifetime.as_secs())));
    }
    let credential = GoogleTokenText::new(token).map_err(|error| nonsense(error.to_string()))?;
    Ok(IssuedCredential::new(credential, lifetime))
}

impl TokenExchange for GoogleExchange {
    const CLOUD: &'static str = "google";
    type Principal = GooglePrincipal;
    type Credential = GoogleTokenText;

    fn issue<'a>(
        &'a self,
        principal: &'a GooglePrincipal,
        subject: &'a dyn SubjectTokens,
    ) -> ExchangeFuture<'a, GoogleTokenText> {
        Box::pin(self.chain(principal, subject))
    }
}
