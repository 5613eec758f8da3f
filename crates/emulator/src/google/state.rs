//! The state of the emulated cloud: its clock, keys, providers and policy, and the issuer of tokens.
//!
//! It knows nothing of requests. The services use it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall_core::Clock;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::endpoint::GoogleEndpoint;
use super::impersonation::ImpersonationPolicy;
use super::options::GoogleEmulatorOptions;
use super::provider::WorkloadIdentityProvider;
use super::token::{AccessTokenIssuer, EmulatedAccessToken};
use crate::jwt;
use crate::keys::{Algorithm, KeyError, SigningKey};
use crate::request_counters::{NameCounter, RequestCounters};

/// The name that counts all names above the limit.
const OTHERS: &str = "(others)";

/// The state beyond a single request, without the faults and the machine.
#[derive(Debug)]
pub(super) struct GoogleState {
    pub(super) clock: Clock,
    pub(super) request_counters: RequestCounters<GoogleEndpoint>,
    /// The number of successful exchanges per Kubernetes subject.
    pub(super) exchange_counts: NameCounter<String>,
    /// The number of issued tokens per Kubernetes subject and account.
    pub(super) impersonation_counts: NameCounter<(String, String)>,
    pub(super) providers: Vec<WorkloadIdentityProvider>,
    pub(super) allows_long_token_lifetimes: bool,
    /// The signing key. The first request that needs it creates it, and the others wait.
    key: OnceCell<Arc<SigningKey>>,
    mint: AccessTokenIssuer,
    policy: Mutex<GoogleSettings>,
}

/// The settings that a test may change while the emulator runs.
#[derive(Clone, Debug)]
pub(super) struct GoogleSettings {
    pub(super) max_token_lifetime: Duration,
    pub(super) impersonation: ImpersonationPolicy,
}

impl GoogleState {
    pub(super) fn new(options: GoogleEmulatorOptions, clock: Clock) -> Result<Self, KeyError> {
        Ok(Self {
            clock,
            request_counters: RequestCounters::default(),
            exchange_counts: NameCounter::new(OTHERS.to_owned()),
            impersonation_counts: NameCounter::new((OTHERS.to_owned(), OTHERS.to_owned())),
            providers: options.providers,
            allows_long_token_lifetimes: options.allows_long_token_lifetimes,
            key: OnceCell::new_with(options.identity_key),
            mint: AccessTokenIssuer::new()?,
            policy: Mutex::new(GoogleSettings {
                max_token_lifetime: options.max_token_lifetime,
                impersonation: options.impersonation,
            }),
        })
    }

    /// Issues an access token.
    pub(super) fn issue(&self, token: EmulatedAccessToken) -> String {
        self.mint.issue(token)
    }

    /// Returns the claims of an access token of this emulator, if it has not expired.
    pub(super) fn read_access_token(&self, token: &str) -> Option<EmulatedAccessToken> {
        self.mint.read(token, self.unix_seconds())
    }

    /// Returns a token that acts as a service account.
    pub(super) fn issue_service_account_token(
        &self,
        sub: String,
        account: &str,
        scopes: Vec<String>,
        lifetime: Duration,
    ) -> String {
        let exp = self.expiry_after(lifetime);
        self.mint.issue(EmulatedAccessToken {
            sub,
            account: Some(account.to_owned()),
            scopes,
            exp,
            n: 0,
            principal: None,
        })
    }

    /// Signs an identity token with the published key.
    pub(super) async fn sign_claims(&self, claims: &Value) -> Result<String, KeyError> {
        let key = self.identity_signing_key().await?;
        jwt::sign(key, &json!({"alg": key.algorithm().name(), "kid": key.id(), "typ": "JWT"}), claims)
    }

    pub(super) async fn identity_signing_key(&self) -> Result<&SigningKey, KeyError> {
        let made = self.key.get_or_try_init(async || {
            let making = tokio::task::spawn_blocking(|| SigningKey::generate(Algorithm::Rs256));
            making.await.map_err(|_| KeyError::Library)?.map(Arc::new)
        });
        made.await.map(|key| &**key)
    }

    pub(super) fn unix_seconds(&self) -> u64 {
        jwt::unix_seconds(self.clock.wall_time())
    }

    pub(super) fn max_token_lifetime(&self) -> Duration {
        self.settings().max_token_lifetime
    }

    pub(super) fn expiry_after(&self, lifetime: Duration) -> u64 {
        self.unix_seconds().saturating_add(lifetime.as_secs())
    }

    pub(super) fn settings(&self) -> GoogleSettings {
        self.lock().clone()
    }

    pub(super) fn set_max_token_lifetime(&self, lifetime: Duration) {
        self.lock().max_token_lifetime = lifetime;
    }

    pub(super) fn set_impersonation(&self, impersonation: ImpersonationPolicy) {
        self.lock().impersonation = impersonation;
    }

    /// Locks the settings. They need a mutex because a test's thread may write; it is never held across an await.
    fn lock(&self) -> MutexGuard<'_, GoogleSettings> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
