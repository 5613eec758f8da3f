//! What the emulated cloud knows and may do: its clock, providers, roles and users, and the sessions that it issues.
//!
//! Knows nothing of HTTP but the headers that a signature is of; the services ask it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::request::Parts;
use seawall_core::{Clock, Secret};

use super::endpoint::Endpoint;
use super::mint::{Credentials, Mint, Session, Unknown};
use super::options::{Instance, Options, Provider, User};
use super::role::Role;
use super::sigv4::{Claimed, Unsigned};
use crate::jwt::{self, Claims, Unverified};
use crate::keys::KeyError;
use crate::ledger::{Ledger, Tally};

/// The name under which everything above the bound is counted.
const OTHERS: &str = "(others)";

/// Everything that outlives a request, but for the gates.
#[derive(Debug)]
pub(super) struct State {
    pub(super) clock: Clock,
    pub(super) ledger: Ledger<Endpoint>,
    /// Sessions issued, by who took them and the role.
    pub(super) sessions: Tally<(String, String)>,
    providers: Vec<Provider>,
    users: Vec<User>,
    pub(super) instance: Instance,
    pub(super) mint: Mint,
    policy: Mutex<Arc<Policy>>,
}

/// What a test may change while the emulator runs.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) roles: Vec<Role>,
    /// The role of each subject at EKS.
    pub(super) associations: BTreeMap<String, String>,
    pub(super) everyone: bool,
    pub(super) session_lifetime: Duration,
    pub(super) fractions: bool,
}

/// Who signed a request.
#[derive(Debug)]
pub(super) struct Caller {
    /// The ARN that policies know: a user's, or that of the session's role.
    pub(super) arn: String,
    /// The session, if it is one: what it takes from there is a chain.
    pub(super) session: Option<Session>,
}

impl Caller {
    /// The ARN that answers and audit logs name.
    pub(super) fn name(&self) -> String {
        self.session.as_ref().map_or_else(|| self.arn.clone(), Session::arn)
    }
}

/// Why a Kubernetes token is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Untrusted {
    #[error("No OpenIDConnect provider found in your account for the token's issuer")]
    Issuer,
    #[error("Incorrect token audience")]
    Audience,
    #[error(transparent)]
    Token(#[from] Unverified),
}

impl State {
    pub(super) fn new(options: Options, clock: Clock) -> Result<Self, KeyError> {
        Ok(Self {
            clock,
            ledger: Ledger::default(),
            sessions: Tally::new((OTHERS.to_owned(), OTHERS.to_owned())),
            providers: options.providers,
            users: options.users,
            instance: options.instance,
            mint: Mint::new()?,
            policy: Mutex::new(Arc::new(Policy {
                roles: options.roles,
                associations: options.associations,
                everyone: options.everyone,
                session_lifetime: options.session_lifetime,
                fractions: options.fractions,
            })),
        })
    }

    /// The claims of a token that one of the providers vouches for, `audiences` being its own if none is given.
    pub(super) fn trusted(&self, token: &str, audience: Option<&str>) -> Result<Claims, Untrusted> {
        // A token is believed by the key that signed it, and then only as the provider of that key.
        let mut refusal = Untrusted::Issuer;
        for provider in &self.providers {
            match jwt::verify(token, &provider.keys) {
                Err(error) => refusal = Untrusted::Token(error),
                Ok(claims) if claims.issuer != provider.issuer => refusal = Untrusted::Issuer,
                Ok(claims) => {
                    claims.check_times(self.seconds())?;
                    let is_for = |aud: &String| {
                        audience.map_or_else(|| provider.audiences.contains(aud), |wanted| aud == wanted)
                    };
                    let is_known = claims.audiences.iter().any(is_for);
                    return if is_known { Ok(claims) } else { Err(Untrusted::Audience) };
                }
            }
        }
        Err(refusal)
    }

    /// Who signed a request to `service`.
    pub(super) fn caller(&self, service: &str, request: &Parts, body: &[u8]) -> Result<Caller, Unsigned> {
        let claimed = Claimed::read(&request.headers)?;
        let token = request.headers.get("x-amz-security-token");
        let (secret, caller) = match token {
            Some(token) => self.session_of(claimed.access_key_id, token.to_str().unwrap_or_default())?,
            None => self.user_of(claimed.access_key_id)?,
        };
        claimed.check(service, request, body, secret.expose(), self.seconds())?;
        Ok(caller)
    }

    fn session_of(&self, access_key_id: &str, token: &str) -> Result<(Secret<String>, Caller), Unsigned> {
        let session = self.mint.read(token, self.seconds()).map_err(|unknown| match unknown {
            Unknown::NotOurs => Unsigned::UnknownKey,
            Unknown::Expired => Unsigned::Expired,
        })?;
        if session.access_key_id != access_key_id {
            return Err(Unsigned::UnknownKey);
        }
        let secret = self.mint.secret_of(access_key_id);
        Ok((secret, Caller { arn: session.role.clone(), session: Some(session) }))
    }

    fn user_of(&self, access_key_id: &str) -> Result<(Secret<String>, Caller), Unsigned> {
        let user = self.users.iter().find(|user| user.access_key_id == access_key_id);
        let user = user.ok_or(Unsigned::UnknownKey)?;
        Ok((user.secret_access_key.clone(), Caller { arn: user.arn.clone(), session: None }))
    }

    /// The role of this ARN, if there is one.
    pub(super) fn role(&self, arn: &str) -> Option<Role> {
        let policy = self.policy();
        let known = policy.roles.iter().find(|role| role.arn == arn).cloned();
        known.or_else(|| policy.everyone.then(|| Role::open(arn)))
    }

    /// Issues a session that lives for `lifetime` or, if that is less, for as long as any may.
    pub(super) fn issue(&self, session: Session, lifetime: Duration) -> Credentials {
        self.sessions.count((session.taken_by.clone(), session.role.clone()));
        let lifetime = lifetime.min(self.policy().session_lifetime);
        let exp = self.seconds().saturating_add(lifetime.as_secs());
        self.mint.issue(Session { exp, ..session })
    }

    pub(super) fn seconds(&self) -> u64 {
        jwt::seconds(self.clock.wall())
    }

    /// The end of a session as it is written: UTC, with a fraction that is never later than the end if it is told so.
    pub(super) fn written(&self, exp: u64) -> String {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(exp);
        let at = jiff::Timestamp::try_from(at).unwrap_or(jiff::Timestamp::MAX);
        let form = if self.policy().fractions { "%Y-%m-%dT%H:%M:%S.250Z" } else { "%Y-%m-%dT%H:%M:%SZ" };
        at.strftime(form).to_string()
    }

    pub(super) fn policy(&self) -> Arc<Policy> {
        self.lock().clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Policy)) {
        change(Arc::make_mut(&mut self.lock()));
    }

    /// A lock, because a test's thread writes; never held across an await.
    fn lock(&self) -> MutexGuard<'_, Arc<Policy>> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
