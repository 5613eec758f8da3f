//! Parses Google's responses. A missing or invalid field is an error; no field has a default value.

use std::fmt;
use std::time::{Duration, SystemTime};

use seawall_core::Secret;
use serde::Deserialize;

use crate::failure::{ExchangeError, ExchangeFault};
use crate::upstream_bodies::{parse_json, redact_long_words};

#[derive(Debug)]
pub(super) struct GoogleToken {
    pub(super) token: Secret<String>,
    pub(super) lifetime: Duration,
}

/// The response of STS (RFC 8693 section 2.2.1).
#[derive(Deserialize)]
struct StsResponse {
    access_token: String,
    token_type: String,
    expires_in: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccessTokenResponse {
    access_token: String,
    /// The expiry time, in the format of RFC 3339 with `Z`.
    expire_time: jiff::Timestamp,
}

#[derive(Deserialize)]
struct IdTokenResponse {
    token: String,
}

pub(super) fn parse_sts_token(body: &Secret<Vec<u8>>) -> Result<GoogleToken, ExchangeError> {
    let answer: StsResponse = parse_json("sts", body.expose())?;
    let token = Secret::new(answer.access_token);
    if !answer.token_type.eq_ignore_ascii_case("bearer") {
        return Err(ExchangeError::new(
            ExchangeFault::Unavailable,
            "sts",
            "answered with a token that is not a bearer token",
        ));
    }
    Ok(GoogleToken { token, lifetime: Duration::from_secs(answer.expires_in) })
}

pub(super) fn parse_access_token(
    body: &Secret<Vec<u8>>,
    now: SystemTime,
) -> Result<GoogleToken, ExchangeError> {
    let answer: AccessTokenResponse = parse_json("generateAccessToken", body.expose())?;
    let token = Secret::new(answer.access_token);
    Ok(GoogleToken { token, lifetime: until(answer.expire_time.into(), now) })
}

/// Parses an identity token. This function reads the expiry time from the token, because the response does not state it.
pub(super) fn parse_id_token(body: &Secret<Vec<u8>>, now: SystemTime) -> Result<GoogleToken, ExchangeError> {
    let answer: IdTokenResponse = parse_json("generateIdToken", body.expose())?;
    let token = Secret::new(answer.token);
    let expires = expiry(token.expose()).ok_or_else(|| {
        ExchangeError::new(
            ExchangeFault::Unavailable,
            "generateIdToken",
            "answered with a token whose expiry is unreadable",
        )
    })?;
    Ok(GoogleToken { token, lifetime: until(expires, now) })
}

/// Returns the time from `now` until `instant`, or zero if `instant` has passed.
fn until(instant: SystemTime, now: SystemTime) -> Duration {
    instant.duration_since(now).unwrap_or_default()
}

/// Returns the `exp` of a JWT.
/// This function does not verify the signature: the issuer sent the token over TLS, and `exp` only sets the renewal time.
fn expiry(jwt: &str) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Claims {
        exp: u64,
    }
    let payload = base64url(jwt.split('.').nth(1)?)?;
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(claims.exp))
}

/// Decodes base64url (RFC 4648 section 5) without padding (RFC 7515 section 2).
fn base64url(text: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).ok()
}

/// The error code and message of the provider, if the body has a known format.
/// For any other body, the code is empty and the message is a fixed text. The body of an unknown server must not enter the log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProviderError {
    pub(super) code: String,
    message: String,
}

impl ProviderError {
    pub(super) fn parse(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Body {
            /// The OAuth error format (RFC 6749 section 5.2).
            OAuth { error: String, error_description: Option<String> },
            /// The format of `google.rpc.Status`.
            Api { error: Status },
        }
        #[derive(Deserialize)]
        struct Status {
            status: Option<String>,
            message: Option<String>,
        }
        let (code, message) = match serde_json::from_slice(body) {
            Ok(Body::OAuth { error, error_description }) => (error, error_description.unwrap_or_default()),
            Ok(Body::Api { error }) => (error.status.unwrap_or_default(), error.message.unwrap_or_default()),
            Err(_) => (String::new(), "the body is not a Google error".into()),
        };
        Self {
            code: redact_long_words(&code, LONGEST_WORD),
            message: redact_long_words(&message, LONGEST_WORD),
        }
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// The longest word, in bytes, that the agent's errors quote from Google's message.
/// The agent replaces longer words, because a token in a message is one long word.
const LONGEST_WORD: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Secret<Vec<u8>> {
        Secret::new(text.as_bytes().to_vec())
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn good_answers_give_token_and_lifetime() {
        let token = parse_sts_token(&body(
            r#"{"access_token":"a","issued_token_type":"x","token_type":"Bearer","expires_in":3599}"#,
        ));
        assert_eq!(token.unwrap().lifetime, Duration::from_secs(3599));
        let token =
            parse_access_token(&body(r#"{"accessToken":"a","expireTime":"1970-01-01T01:00:00Z"}"#), at(600));
        assert_eq!(token.unwrap().lifetime, Duration::from_secs(3000));
        // The payload is {"exp":3600}.
        let token = parse_id_token(&body(r#"{"token":"e30.eyJleHAiOjM2MDB9.c2ln"}"#), at(600));
        assert_eq!(token.unwrap().lifetime, Duration::from_secs(3000));
    }

    #[test]
    fn odd_answers_are_named_and_never_quoted() {
        let odd = [
            "",
            "<html>secret</html>",
            "{",
            "[]",
            r#"{"access_token":"secret"}"#,
            r#"{"access_token":"secret","token_type":"Bearer","expires_in":-1}"#,
            r#"{"access_token":"secret","token_type":"Bearer","expires_in":"secret"}"#,
            r#"{"access_token":"secret","token_type":"mac","expires_in":3600}"#,
        ];
        for text in odd {
            let error = parse_sts_token(&body(text)).unwrap_err();
            assert_eq!(error.fault, ExchangeFault::Unavailable);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for text in [r#"{"accessToken":"secret","expireTime":"soon"}"#, r#"{"accessToken":"secret"}"#] {
            assert!(!parse_access_token(&body(text), at(0)).unwrap_err().to_string().contains("secret"));
        }
        for text in [r#"{"token":"secret"}"#, r#"{"token":"a.secret.b"}"#, r#"{"token":"a.e30.b"}"#] {
            assert!(!parse_id_token(&body(text), at(0)).unwrap_err().to_string().contains("secret"));
        }
    }

    #[test]
    fn an_expiry_in_the_past_leaves_no_life() {
        let token =
            parse_access_token(&body(r#"{"accessToken":"a","expireTime":"1970-01-01T00:00:00Z"}"#), at(600))
                .unwrap();
        assert_eq!(token.lifetime, Duration::ZERO);
    }

    #[test]
    fn only_known_error_shapes_are_repeated_and_no_token_in_them() {
        let text = |body: &str| ProviderError::parse(body.as_bytes()).to_string();
        let oauth = text(r#"{"error":"invalid_grant","error_description":"expired"}"#);
        assert_eq!(oauth, "invalid_grant expired");
        let api = text(r#"{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}"#);
        assert_eq!(api, "PERMISSION_DENIED no");
        assert!(!text("<html>internal host name</html>").contains("host"));
        let token = "e30.".repeat(30);
        let echo =
            text(&format!(r#"{{"error":"invalid_grant","error_description":"bad token {token} given"}}"#));
        assert_eq!(echo, "invalid_grant bad token … given");
    }
}
