//! JSON web tokens in compact form: signs claims, and verifies tokens with a key set.
//!
//! This module knows no cloud; the caller checks the issuer and the audience.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde::Deserialize;
use serde_json::Value;

use crate::keys::{KeyError, KeySet, SigningKey};

/// The reason why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwtError {
    #[error("the subject token is not a JSON web token")]
    Malformed,
    #[error("no published key has the token's key id")]
    UnknownKey,
    #[error("the token's algorithm does not match the published key")]
    WrongAlgorithm,
    #[error("the token's signature is invalid")]
    BadSignature,
    #[error("the token lacks the claim {0}, or the claim has the wrong type")]
    Claim(&'static str),
    #[error("the token is not yet valid")]
    NotYetValid,
    #[error("the token has expired")]
    Expired,
}

/// The claims of a verified token that decisions need.
#[derive(Clone, Debug)]
pub(crate) struct JwtClaims {
    pub(crate) issuer: String,
    pub(crate) subject: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) issued: u64,
    pub(crate) not_before: u64,
    pub(crate) expires: u64,
    /// The name and the UID of the pod to which a Kubernetes token is bound, if any.
    pub(crate) pod: Option<(String, String)>,
}

/// The clock difference in seconds that a verifier accepts. Google's libraries allow at least 10 s (google-auth-library-python
/// `google/auth/jwt.py`, 2024: 10 s).
pub(crate) const SKEW: u64 = 10;

impl JwtClaims {
    /// Checks the token's times against `now`.
    pub(crate) fn check_times(&self, now: u64) -> Result<(), JwtError> {
        if now >= self.expires {
            return Err(JwtError::Expired);
        }
        if self.issued.max(self.not_before) > now.saturating_add(SKEW) {
            return Err(JwtError::NotYetValid);
        }
        Ok(())
    }
}

/// Verifies the signature and then reads the claims. The key decides the algorithm, and the header must agree.
pub(crate) fn verify(token: &str, keys: &KeySet) -> Result<JwtClaims, JwtError> {
    let (header, payload, signature) = parts(token)?;
    let stated: Header = serde_json::from_value(json(header)?).map_err(|_| JwtError::Malformed)?;
    if stated.crit.is_some() {
        return Err(JwtError::Malformed);
    }
    let signature = BASE64URL.decode(signature).map_err(|_| JwtError::Malformed)?;
    let message = token.get(..header.len() + 1 + payload.len()).unwrap_or_default().as_bytes();
    let mut refusal = JwtError::UnknownKey;
    for key in keys.candidates(stated.kid.as_deref()) {
        if key.algorithm().name() != stated.alg {
            refusal = JwtError::WrongAlgorithm;
        } else if key.verifies(message, &signature) {
            return claims(&json(payload)?);
        } else {
            refusal = JwtError::BadSignature;
        }
    }
    Err(refusal)
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// The extensions that a verifier must know (RFC 7515 section 4.1.11); this one knows none.
    crit: Option<Value>,
}

fn parts(token: &str) -> Result<(&str, &str, &str), JwtError> {
    let mut parts = token.split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(payload), Some(signature), None) => Ok((header, payload, signature)),
        _ => Err(JwtError::Malformed),
    }
}

fn json(part: &str) -> Result<Value, JwtError> {
    let bytes = BASE64URL.decode(part).map_err(|_| JwtError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| JwtError::Malformed)
}

fn claims(value: &Value) -> Result<JwtClaims, JwtError> {
    let issued = time(value, "iat")?;
    Ok(JwtClaims {
        issuer: text(value, "iss")?,
        subject: text(value, "sub")?,
        audiences: audiences(&value["aud"]).ok_or(JwtError::Claim("aud"))?,
        issued,
        // The claim is optional (RFC 7519 section 4.1.5).
        not_before: if value["nbf"].is_null() { issued } else { time(value, "nbf")? },
        expires: time(value, "exp")?,
        pod: pod(&value["kubernetes.io"]["pod"]),
    })
}

fn pod(value: &Value) -> Option<(String, String)> {
    Some((value["name"].as_str()?.to_owned(), value["uid"].as_str()?.to_owned()))
}

/// Returns the audiences: one string or an array (RFC 7519 section 4.1.3).
fn audiences(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(many) => many.iter().map(|each| each.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

fn text(value: &Value, name: &'static str) -> Result<String, JwtError> {
    value[name].as_str().map(str::to_owned).ok_or(JwtError::Claim(name))
}

fn time(value: &Value, name: &'static str) -> Result<u64, JwtError> {
    value[name].as_u64().ok_or(JwtError::Claim(name))
}

/// Signs any header and claims as a compact token.
pub(crate) fn sign(key: &SigningKey, header: &Value, claims: &Value) -> Result<String, KeyError> {
    let message =
        format!("{}.{}", BASE64URL.encode(header.to_string()), BASE64URL.encode(claims.to_string()));
    let signature = BASE64URL.encode(key.sign(message.as_bytes())?);
    Ok(format!("{message}.{signature}"))
}

/// Returns the whole seconds since 1970, as in JSON web tokens.
pub(crate) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
