//! Access tokens: opaque to clients, readable by tests.
//!
//! The form is `ya29.emu.CLAIMS.MAC`, with both parts in base64url. The claims are JSON, and the MAC is HMAC-SHA-256 with a key that lives
//! as long as the emulator. So the emulator keeps no list of tokens.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde::{Deserialize, Serialize};

use crate::keys::KeyError;

/// The prefix of every access token. Google's tokens start with `ya29.`, and some log filters look for it.
const PREFIX: &str = "ya29.emu.";

/// The claims of an access token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulatedAccessToken {
    /// The requester: `system:serviceaccount:NS:NAME`, or the machine's own e-mail for a token of the metadata server.
    pub sub: String,
    /// The impersonated service account; `None` for the federated identity itself.
    pub account: Option<String>,
    /// The scopes in the requested order.
    pub scopes: Vec<String>,
    /// The end of the token, in seconds since 1970.
    pub exp: u64,
    /// A number that is unique among the tokens of this emulator.
    pub n: u64,
    /// The principal of a federated identity; `None` for a service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

impl EmulatedAccessToken {
    /// Reads a token without checking its authenticity or its end, for the assertions of a test.
    pub fn peek(token: &str) -> Option<Self> {
        let (claims, _) = token.strip_prefix(PREFIX)?.split_once('.')?;
        serde_json::from_slice(&BASE64URL.decode(claims).ok()?).ok()
    }

    /// Returns whether the token allows `scope`. The cloud-platform scope allows everything.
    pub(crate) fn allows(&self, scope: &str) -> bool {
        self.scopes.iter().any(|own| own == scope || own == CLOUD_PLATFORM_SCOPE)
    }
}

/// The scope that includes all of Google Cloud.
pub(crate) const CLOUD_PLATFORM_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

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

    /// Issues a new token.
    pub(crate) fn issue(&self, mut token: EmulatedAccessToken) -> String {
        token.n = self.issued.fetch_add(1, Ordering::Relaxed) + 1;
        // Strings and numbers can always be written as JSON.
        let claims = BASE64URL.encode(serde_json::to_vec(&token).unwrap_or_default());
        let mac = hmac::sign(&self.key, claims.as_bytes());
        format!("{PREFIX}{claims}.{}", BASE64URL.encode(mac))
    }

    /// Returns the claims of a token, if this issuer made it and it has not expired.
    pub(crate) fn read(&self, token: &str, now: u64) -> Option<EmulatedAccessToken> {
        let (claims, mac) = token.strip_prefix(PREFIX)?.split_once('.')?;
        hmac::verify(&self.key, claims.as_bytes(), &BASE64URL.decode(mac).ok()?).ok()?;
        EmulatedAccessToken::peek(token).filter(|token| now < token.exp)
    }
}
