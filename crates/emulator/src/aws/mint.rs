//! The credentials of sessions: opaque to clients, readable by tests.
//!
//! The session token is `IQoJemu.CLAIMS.MAC`, with both parts in base64url. The secret key is a function of the access key id. So the
//! emulator keeps no list of sessions and can still check every signature.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64URL};
use seawall_core::Secret;
use serde::{Deserialize, Serialize};

use super::role::RoleArnParts;
use crate::keys::KeyError;

/// The prefix of every session token. AWS's current tokens start with `IQoJ`.
const PREFIX: &str = "IQoJemu.";

/// The claims of a session token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwsSession {
    /// The access key id `ASIA…`, unique among the sessions of this emulator.
    pub access_key_id: String,
    /// The role's ARN.
    pub role: String,
    /// The session's name.
    pub name: String,
    /// The caller that created the session: `system:serviceaccount:NS:NAME`, or the ARN of a user or role.
    pub taken_by: String,
    /// The session's tags.
    pub tags: BTreeMap<String, String>,
    /// The end of the session, in seconds since 1970.
    pub exp: u64,
}

impl AwsSession {
    /// Returns the ARN `arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION` in policies and audit logs.
    pub fn arn(&self) -> String {
        match RoleArnParts::of(&self.role) {
            Some(RoleArnParts { partition, account, name }) => {
                format!("arn:{partition}:sts::{account}:assumed-role/{name}/{}", self.name)
            }
            None => String::new(),
        }
    }

    /// Returns the role's account.
    pub fn account(&self) -> &str {
        RoleArnParts::of(&self.role).map_or("", |role| role.account)
    }
}

/// The credentials of a session, for a response.
#[derive(Debug)]
pub(super) struct SessionCredentials {
    pub(super) session: AwsSession,
    pub(super) secret: Secret<String>,
    pub(super) token: Secret<String>,
}

/// Issues and reads credentials.
#[derive(Debug)]
pub(super) struct SessionIssuer {
    key: hmac::Key,
    issued: AtomicU64,
}

impl SessionIssuer {
    pub(super) fn new() -> Result<Self, KeyError> {
        let key =
            hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| KeyError::Library)?;
        Ok(Self { key, issued: AtomicU64::new(0) })
    }

    /// Issues new credentials and sets the session's `access_key_id`.
    pub(super) fn issue(&self, mut session: AwsSession) -> SessionCredentials {
        let number = self.issued.fetch_add(1, Ordering::Relaxed) + 1;
        session.access_key_id = format!("ASIA{number:0>16}");
        // Strings and numbers can always be written as JSON.
        let claims = BASE64URL.encode(serde_json::to_vec(&session).unwrap_or_default());
        let token = self.sealed(PREFIX, &claims);
        SessionCredentials { secret: self.secret_of(&session.access_key_id), token, session }
    }

    /// Returns the claims of a session token, if this issuer made it and the session has not ended.
    pub(super) fn read(&self, token: &str, now: u64) -> Result<AwsSession, SessionTokenError> {
        let claims = self.opened(PREFIX, token).ok_or(SessionTokenError::NotOurs)?;
        let session: AwsSession = serde_json::from_slice(&claims).map_err(|_| SessionTokenError::NotOurs)?;
        if now < session.exp { Ok(session) } else { Err(SessionTokenError::Expired) }
    }

    /// Returns the secret key for an access key id: 40 characters, like AWS's.
    pub(super) fn secret_of(&self, access_key_id: &str) -> Secret<String> {
        let mac = hmac::sign(&self.key, format!("secret of {access_key_id}").as_bytes());
        Secret::new(STANDARD.encode(mac).chars().take(40).collect())
    }

    /// Returns a token of the metadata service that is valid until `exp`.
    pub(super) fn metadata_token(&self, exp: u64) -> Secret<String> {
        self.sealed(METADATA, &BASE64URL.encode(exp.to_string()))
    }

    pub(super) fn is_metadata_token(&self, token: &str, now: u64) -> bool {
        let opened = self.opened(METADATA, token).and_then(|claims| String::from_utf8(claims).ok());
        opened.and_then(|exp| exp.parse().ok()).is_some_and(|exp: u64| now < exp)
    }

    fn sealed(&self, prefix: &str, claims: &str) -> Secret<String> {
        let mac = hmac::sign(&self.key, format!("{prefix}{claims}").as_bytes());
        Secret::new(format!("{prefix}{claims}.{}", BASE64URL.encode(mac)))
    }

    fn opened(&self, prefix: &str, token: &str) -> Option<Vec<u8>> {
        let (claims, mac) = token.strip_prefix(prefix)?.split_once('.')?;
        let signed = format!("{prefix}{claims}");
        hmac::verify(&self.key, signed.as_bytes(), &BASE64URL.decode(mac).ok()?).ok()?;
        BASE64URL.decode(claims).ok()
    }
}

/// The prefix of every token of the metadata service.
const METADATA: &str = "AQAEAemu.";

/// The reason why a session token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionTokenError {
    NotOurs,
    Expired,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(role: &str) -> AwsSession {
        AwsSession {
            access_key_id: String::new(),
            role: role.into(),
            name: "s".into(),
            taken_by: "system:serviceaccount:a:b".into(),
            tags: BTreeMap::new(),
            exp: 100,
        }
    }

    #[test]
    fn what_was_issued_is_read_until_it_ends_and_nothing_else_is() {
        let mint = SessionIssuer::new().unwrap();
        let issued = mint.issue(session("arn:aws:iam::123456789012:role/x/cart"));
        assert_eq!(mint.read(issued.token.expose(), 99).unwrap(), issued.session);
        assert_eq!(issued.session.arn(), "arn:aws:sts::123456789012:assumed-role/cart/s");
        assert_eq!(mint.read(issued.token.expose(), 100), Err(SessionTokenError::Expired));
        let other = SessionIssuer::new().unwrap();
        assert_eq!(other.read(issued.token.expose(), 0), Err(SessionTokenError::NotOurs));
        assert!(!mint.is_metadata_token(issued.token.expose(), 0));
        assert!(mint.is_metadata_token(mint.metadata_token(5).expose(), 4));
    }

    #[test]
    fn no_two_sessions_share_an_id_or_a_secret() {
        let mint = SessionIssuer::new().unwrap();
        let [one, two] = [mint.issue(session("r")), mint.issue(session("r"))];
        assert_ne!(one.session.access_key_id, two.session.access_key_id);
        assert_ne!(one.secret.expose(), two.secret.expose());
        assert_eq!((one.session.access_key_id.len(), one.secret.expose().len()), (20, 40));
    }
}
