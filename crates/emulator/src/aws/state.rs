//! The state of the emulated cloud: its clock, providers, roles and users, and the issuer of sessions.
//!
//! It knows nothing of HTTP except the headers of a signature. The services use it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::request::Parts;
use seawall_core::{Clock, Secret};

use super::endpoint::AwsEndpoint;
use super::mint::{AwsSession, SessionCredentials, SessionIssuer, SessionTokenError};
use super::options::{AwsEmulatorOptions, Ec2Instance, IamUser, OidcProvider};
use super::role::IamRole;
use super::sigv4::{SigV4Header, SignatureError};
use crate::jwt::{self, JwtClaims, JwtError};
use crate::keys::KeyError;
use crate::request_counters::{NameCounter, RequestCounters};

/// The name that counts all names above the limit.
const OTHERS: &str = "(others)";

/// The state beyond a single request, without the faults.
#[derive(Debug)]
pub(super) struct AwsState {
    pub(super) clock: Clock,
    pub(super) request_counters: RequestCounters<AwsEndpoint>,
    /// The number of issued sessions, by caller and role.
    pub(super) session_counts: NameCounter<(String, String)>,
    providers: Vec<OidcProvider>,
    users: Vec<IamUser>,
    pub(super) instance: Ec2Instance,
    pub(super) mint: SessionIssuer,
    policy: Mutex<Arc<AwsSettings>>,
}

/// The settings that a test may change while the emulator runs.
#[derive(Clone, Debug)]
pub(super) struct AwsSettings {
    pub(super) roles: Vec<IamRole>,
    /// The role of each subject at EKS.
    pub(super) associations: BTreeMap<String, String>,
    pub(super) unknown_roles_trust_everyone: bool,
    pub(super) max_session_lifetime: Duration,
    pub(super) fractional_expiry: bool,
}

/// The signer of a request.
#[derive(Debug)]
pub(super) struct RequestSigner {
    /// The ARN for policies: the user's, or that of the session's role.
    pub(super) arn: String,
    /// The session of the signer, if any. A session created from it is a chained one.
    pub(super) session: Option<AwsSession>,
}

impl RequestSigner {
    /// Returns the ARN for responses and audit logs.
    pub(super) fn audit_arn(&self) -> String {
        self.session.as_ref().map_or_else(|| self.arn.clone(), AwsSession::arn)
    }
}

/// The reason why a Kubernetes token is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KubernetesTokenRefusal {
    #[error("No OpenIDConnect provider found in your account for the token's issuer")]
    Issuer,
    #[error("Incorrect token audience")]
    Audience,
    #[error(transparent)]
    Token(#[from] JwtError),
}

impl AwsState {
    pub(super) fn new(options: AwsEmulatorOptions, clock: Clock) -> Result<Self, KeyError> {
        Ok(Self {
            clock,
            request_counters: RequestCounters::default(),
            session_counts: NameCounter::new((OTHERS.to_owned(), OTHERS.to_owned())),
            providers: options.providers,
            users: options.users,
            instance: options.instance,
            mint: SessionIssuer::new()?,
            policy: Mutex::new(Arc::new(AwsSettings {
                roles: options.roles,
                associations: options.associations,
                unknown_roles_trust_everyone: options.unknown_roles_trust_everyone,
                max_session_lifetime: options.max_session_lifetime,
                fractional_expiry: options.fractional_expiry,
            })),
        })
    }

    /// Verifies a token against the providers and returns its claims. Without `audience`, the provider's own audiences count.
    pub(super) fn verify_token(
        &self,
        token: &str,
        audience: Option<&str>,
    ) -> Result<JwtClaims, KubernetesTokenRefusal> {
        // The key that signed the token decides the provider.
        let mut refusal = KubernetesTokenRefusal::Issuer;
        for provider in &self.providers {
            match jwt::verify(token, &provider.keys) {
                Err(error) => refusal = KubernetesTokenRefusal::Token(error),
                Ok(claims) if claims.issuer != provider.issuer => refusal = KubernetesTokenRefusal::Issuer,
                Ok(claims) => {
                    claims.check_times(self.unix_seconds())?;
                    let is_for = |aud: &String| {
                        audience.map_or_else(|| provider.audiences.contains(aud), |wanted| aud == wanted)
                    };
                    let is_known = claims.audiences.iter().any(is_for);
                    return if is_known { Ok(claims) } else { Err(KubernetesTokenRefusal::Audience) };
                }
            }
        }
        Err(refusal)
    }

    /// Verifies the signature of a request to `service` and returns the signer.
    pub(super) fn verify_signer(
        &self,
        service: &str,
        request: &Parts,
        body: &[u8],
    ) -> Result<RequestSigner, SignatureError> {
        let claimed = SigV4Header::read(&request.headers)?;
        let token = request.headers.get("x-amz-security-token");
        let (secret, caller) = match token {
            Some(token) => self.session_of(claimed.access_key_id, token.to_str().unwrap_or_default())?,
            None => self.user_of(claimed.access_key_id)?,
        };
        claimed.check(service, request, body, secret.expose(), self.unix_seconds())?;
        Ok(caller)
    }

    fn session_of(
        &self,
        access_key_id: &str,
        token: &str,
    ) -> Result<(Secret<String>, RequestSigner), SignatureError> {
        let session = self.mint.read(token, self.unix_seconds()).map_err(|unknown| match unknown {
            SessionTokenError::NotOurs => SignatureError::UnknownKey,
            SessionTokenError::Expired => SignatureError::ExpiredSessionToken,
        })?;
        if session.access_key_id != access_key_id {
            return Err(SignatureError::UnknownKey);
        }
        let secret = self.mint.secret_of(access_key_id);
        Ok((secret, RequestSigner { arn: session.role.clone(), session: Some(session) }))
    }

    fn user_of(&self, access_key_id: &str) -> Result<(Secret<String>, RequestSigner), SignatureError> {
        let user = self.users.iter().find(|user| user.access_key_id == access_key_id);
        let user = user.ok_or(SignatureError::UnknownKey)?;
        Ok((user.secret_access_key.clone(), RequestSigner { arn: user.arn.clone(), session: None }))
    }

    /// Returns the role with this ARN, if it exists.
    pub(super) fn role_by_arn(&self, arn: &str) -> Option<IamRole> {
        let policy = self.settings();
        let known = policy.roles.iter().find(|role| role.arn == arn).cloned();
        known.or_else(|| policy.unknown_roles_trust_everyone.then(|| IamRole::trusting_everyone(arn)))
    }

    /// Issues a session for `lifetime`, but at most for the longest allowed lifetime.
    pub(super) fn issue(&self, session: AwsSession, lifetime: Duration) -> SessionCredentials {
        self.session_counts.increment((session.taken_by.clone(), session.role.clone()));
        let lifetime = lifetime.min(self.settings().max_session_lifetime);
        let exp = self.unix_seconds().saturating_add(lifetime.as_secs());
        self.mint.issue(AwsSession { exp, ..session })
    }

    pub(super) fn unix_seconds(&self) -> u64 {
        jwt::unix_seconds(self.clock.wall_time())
    }

    /// Formats the end of a session in UTC. A fraction of a second, if enabled, is never after the end.
    pub(super) fn format_expiry(&self, exp: u64) -> String {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(exp);
        let at = jiff::Timestamp::try_from(at).unwrap_or(jiff::Timestamp::MAX);
        let form =
            if self.settings().fractional_expiry { "%Y-%m-%dT%H:%M:%S.250Z" } else { "%Y-%m-%dT%H:%M:%SZ" };
        at.strftime(form).to_string()
    }

    pub(super) fn settings(&self) -> Arc<AwsSettings> {
        self.lock().clone()
    }

    pub(super) fn update_settings(&self, change: impl FnOnce(&mut AwsSettings)) {
        change(Arc::make_mut(&mut self.lock()));
    }

    /// Locks the settings. They need a mutex because a test's thread may write; it is never held across an await.
    fn lock(&self) -> MutexGuard<'_, Arc<AwsSettings>> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
