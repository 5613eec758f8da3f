//! Requests, caches and renews a pod's own Kubernetes token for one audience.
//!
//! Each token is bound to the pod (`boundObjectRef` with its UID). After the pod is deleted, the API server rejects the token.
//! A cloud that validates tokens at the API server then rejects the token too, so a stolen token is worthless there. No
//! background task renews tokens. The agent renews a token only when it needs the token and the token's renewal time has
//! passed. A pod that needs no token causes no token requests.
//!
//! Source of the request: Kubernetes API reference, TokenRequest authentication.k8s.io/v1. Source of the renewal rule:
//! kubernetes, pkg/kubelet/token/token_manager.go (after 80 % of the token's life or after a day, minus up to 10 s of jitter).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seawall_core::pod::{SubjectFuture, SubjectTokenError, SubjectTokens};
use seawall_core::{Moment, Pod, Secret};
use seawall_kube::{KubeError, RetryBackoff, TimedKubeClient, request};
use serde::Deserialize;
use tracing::warn;

/// The reason why a token request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the API server does not allow the agent to request a token for {0}: {1}")]
    Forbidden(String, String),
    #[error("the ServiceAccount {0} does not exist")]
    AccountGone(String),
    #[error("the pod {0} is gone: {1}")]
    PodGone(String, String),
    #[error("the API server limits the rate of token requests")]
    Throttled,
    #[error("the API server rejects the token request: {0}")]
    Refused(String),
    #[error("{0}")]
    Unreachable(String),
}

impl TokenError {
    fn of(failure: KubeError, pod: &Pod) -> Self {
        let account = pod.service_account.to_string();
        match failure {
            KubeError::Forbidden(message) => Self::Forbidden(account, message),
            // The API server looks up the ServiceAccount first and then the pod: registry/core/serviceaccount/storage/token.go.
            KubeError::NotFound { kind, message } if kind == "pods" => {
                Self::PodGone(pod.name.to_string(), message)
            }
            KubeError::NotFound { .. } => Self::AccountGone(account),
            // The pod with this name has another UID, so the requested pod is gone.
            KubeError::Conflict(message) => Self::PodGone(pod.name.to_string(), message),
            KubeError::Throttled(_) => Self::Throttled,
            KubeError::Refused { message, .. } => Self::Refused(message),
            other => Self::Unreachable(other.to_string()),
        }
    }

    /// True if a retry can succeed without a change in the cluster.
    fn is_retryable(&self) -> bool {
        matches!(self, Self::Throttled | Self::Unreachable(_))
    }

    /// True if the agent must no longer use a cached token, even if the token is still valid.
    fn revokes_cached_token(&self) -> bool {
        matches!(self, Self::AccountGone(_) | Self::PodGone(..))
    }
}

impl From<TokenError> for SubjectTokenError {
    fn from(error: TokenError) -> Self {
        Self { reason: error.to_string(), is_retryable: error.is_retryable() }
    }
}

/// Caches the tokens of one pod, by audience. All records of the pod share the cache.
///
/// A list is enough: each configured cloud has one audience, and a pod cannot choose an audience. A task holds the outer lock
/// only for a lookup, and the inner lock for a whole token request. So the agent sends one request at a time for each pod and
/// audience. All tasks that wait for the inner lock use the result of this request.
#[derive(Debug, Default)]
pub(crate) struct TokenCache(Mutex<Vec<(Box<str>, Arc<TokenCell>)>>);

type TokenCell = tokio::sync::Mutex<Option<CachedToken>>;

impl TokenCache {
    /// Returns the cache entry of this audience, and drops expired entries of other audiences.
    fn slot(&self, audience: &str, now: Moment) -> Arc<TokenCell> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A reload of the configuration can remove an audience. No task then asks for that audience, so this code drops the
        // audience's entry once the entry's token has expired.
        let is_good = |slot: &Arc<TokenCell>| {
            // Keep the entry if a task uses it or if its token is still valid.
            let holds = |held: tokio::sync::MutexGuard<'_, Option<CachedToken>>| {
                held.as_ref().is_some_and(|held| now < held.expires)
            };
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(holds)
        };
        slots.retain(|(known, slot)| **known == *audience || is_good(slot));
        if let Some((_, slot)) = slots.iter().find(|(known, _)| **known == *audience) {
            return slot.clone();
        }
        let slot = Arc::<TokenCell>::default();
        // Most pods have one audience. By default, the list would reserve space for four entries.
        slots.reserve_exact(1);
        slots.push((audience.into(), slot.clone()));
        slot
    }
}

#[derive(Debug)]
struct CachedToken {
    token: Secret<String>,
    renew_at: Moment,
    expires: Moment,
    pauses: RetryBackoff,
}

/// The remaining life at which the agent stops using a cached token. The cloud must receive and check the token while the token
/// is valid.
const MARGIN: Duration = Duration::from_secs(10);

/// Requests and caches the tokens of one pod.
#[derive(Debug)]
pub(crate) struct PodTokenSource {
    pub(crate) pod: Pod,
    pub(crate) cache: Arc<TokenCache>,
    /// The client that all pods share. Each pod has its own `PodTokenSource`, and a client takes several hundred bytes.
    pub(crate) kube_client: Arc<TimedKubeClient>,
    pub(crate) lifetime: Duration,
}

impl SubjectTokens for PodTokenSource {
    fn subject_token<'a>(&'a self, audience: &'a str) -> SubjectFuture<'a> {
        Box::pin(async move { Ok(self.token(audience).await?) })
    }
}

impl PodTokenSource {
    async fn token(&self, audience: &str) -> Result<Secret<String>, TokenError> {
        let slot = self.cache.slot(audience, self.kube_client.clock.now());
        let mut held = slot.lock().await;
        let asked = self.kube_client.clock.now();
        if let Some(held) = held.as_ref().filter(|held| asked < held.renew_at) {
            return Ok(held.token.clone());
        }
        held.take_if(|held| asked + MARGIN >= held.expires);
        let patience = &self.kube_client.timeouts;
        let limit = if held.is_some() { patience.token_renewal } else { patience.response };
        match self.request(audience, limit).await {
            Ok(answer) => Ok(held.insert(self.hold(answer, asked)).token.clone()),
            Err(failure) => self.fall_back(&mut held, failure),
        }
    }

    /// Returns the old token while it is valid, and delays the next renewal attempt.
    fn fall_back(
        &self,
        held: &mut Option<CachedToken>,
        failure: KubeError,
    ) -> Result<Secret<String>, TokenError> {
        let pause = held.as_mut().map(|held| held.pauses.delay_after(&failure));
        let error = TokenError::of(failure, &self.pod);
        if error.revokes_cached_token() {
            *held = None;
        }
        match (held, pause) {
            (Some(held), Some(pause)) => {
                warn!(pod = %self.pod.name, %error, "cannot renew a pod's token; the old token is still valid, and the agent tries again");
                held.renew_at = self.kube_client.clock.now() + pause;
                Ok(held.token.clone())
            }
            _ => Err(error),
        }
    }

    /// Creates the cache entry. The renewal time and the expiry time count from the start of the request (`asked`). The API
    /// server issued the token after that start, so both times are early enough.
    fn hold(&self, answer: TokenResponse, asked: Moment) -> CachedToken {
        let life = Duration::from_secs(answer.spec.expiration_seconds);
        CachedToken {
            token: answer.status.token,
            renew_at: asked + renewal(life, fastrand::f64()),
            expires: asked + life,
            pauses: RetryBackoff::new(&self.kube_client.timeouts),
        }
    }

    async fn request(&self, audience: &str, limit: Duration) -> Result<TokenResponse, KubeError> {
        let account = &self.pod.service_account;
        let body = serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [audience],
                "expirationSeconds": self.lifetime.as_secs(),
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": *self.pod.name, "uid": *self.pod.uid.0},
            },
        });
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", account.namespace, account.name);
        self.kube_client.client.call(request::build_create(&path, &body), limit).await
    }
}

/// The maximum time from a token's issue to its renewal. Only long-lived tokens reach this maximum.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The maximum random time by which the agent renews a token earlier.
const JITTER: Duration = Duration::from_secs(10);

/// Returns the time from issue to renewal for a token that lives for `life`. `draw` in 0..=1 selects the jitter.
fn renewal(life: Duration, draw: f64) -> Duration {
    (life * 4 / 5).min(DAY).saturating_sub(JITTER.mul_f64(draw.clamp(0.0, 1.0)))
}

/// The fields that the agent reads from a TokenRequest. The agent uses `expirationSeconds`, not `expirationTimestamp`, because
/// a duration does not depend on the clocks of the node and the API server.
#[derive(Deserialize)]
struct TokenResponse {
    spec: AnswerSpec,
    status: AnswerStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerSpec {
    expiration_seconds: u64,
}

#[derive(Deserialize)]
struct AnswerStatus {
    #[serde(deserialize_with = "secret")]
    token: Secret<String>,
}

fn secret<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Secret<String>, D::Error> {
    String::deserialize(deserializer).map(Secret::new)
}

#[cfg(test)]
mod tests;
