//! Access tokens: opaque to a client, readable by a test.
//!
//! `ya29.emu.CLAIMS.MAC`, both parts base64url: the claims are JSON, the MAC is HMAC-SHA-256 under a key that lives as
//! long as the emulator. Stateless on purpose: nothing issued has to be remembered, so nothing grows.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde::{Deserialize, Serialize};

use crate::keys::KeyError;

/// How every access token begins. Google's begin with `ya29.`, and some log filters look for that.
const PREFIX: &str = "ya29.emu.";

/// What an access token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulatedAccessToken {
    /// Who asked: `system:serviceaccount:NS:NAME`, or the machine's own e-mail for the metadata server's token.
    pub sub: String,
    /// The service account it acts as; `None` is the federated identity itself.
    pub account: Option<String>,
    /// Scopes, in the order asked for.
    pub scopes: Vec<String>,
    /// When it ends, in seconds since 1970.
    pub exp: u64,
    /// A number that no other token of this emulator has.
    pub n: u64,
    /// Which identity pool's subject it is; `None` for a service account's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

impl EmulatedAccessToken {
    /// Reads a token without checking who made it or whether it has expired: for the assertions of a test.
    pub fn peek(token: &str) -> Option<Self> {
        let (claims, _) = token.strip_prefix(PREFIX)?.split_once('.')?;
        serde_json::from_slice(&BASE64URL.decode(claims).ok()?).ok()
    }

    /// Whether it allows `scope`. The wide scope allows everything.
    pub(crate) fn allows(&self, scope: &str) -> bool {
        self.scopes.iter().any(|own| own == scope || own == CLOUD_PLATFORM)
    }
}

/// The scope that includes all of Google Cloud.
pub(crate) const CLOUD_PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Issues and reads access tokens.
#[derive(Debug)]
pub(crate) struct AccessTokenIssuer {
    key: hmac::Key,
    issued: AtomicU64,
}

impl AccessTokenIssuer {
    pub(crate) fn new() -> Result<Self, KeyError> {
        let key =
            hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| KeyError::Library)?;
        Ok(Self { key, issued: AtomicU64::new(0) })
    }

    /// A token unlike any before it.
    pub(crate) fn issue(&self, mut token: EmulatedAccessToken) -> String {
        token.n = self.issued.fetch_add(1, Ordering::Relaxed) + 1;
        // Strings and numbers always have a JSON form.
        let claims = BASE64URL.encode(serde_json::to_vec(&token).unwrap_or_default());
        let mac = hmac::sign(&self.key, claims.as_bytes());
        format!("{PREFIX}{claims}.{}", BASE64URL.encode(mac))
    }

    /// What a token says if this mint issued it and it has not expired.
    pub(crate) fn read(&self, token: &str, now: u64) -> Option<EmulatedAccessToken> {
        let (claims, mac) = token.strip_prefix(PREFIX)?.split_once('.')?;
        hmac::verify(&self.key, claims.as_bytes(), &BASE64URL.decode(mac).ok()?).ok()?;
        EmulatedAccessToken::peek(token).filter(|token| now < token.exp)
    }
}
