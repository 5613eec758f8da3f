//! Classifies failed calls to AWS by the status and the error code. The status alone is not enough: STS uses status 400 for wrong
//! requests, for throttling and for temporary errors.

use std::fmt;

use http::{HeaderMap, StatusCode};
use seawall_core::Secret;
use serde::Deserialize;

use super::xml;
use crate::failure::{ExchangeError, ExchangeFault};
use crate::https::parse_retry_after;
use crate::upstream_bodies::redact_long_words;

/// A failed call, and what the agent must change before a retry can succeed.
#[derive(Debug)]
pub(super) enum AwsCallError {
    /// The signing keys have expired or are unknown to AWS. Newer keys may work.
    KeysRejected(ExchangeError),
    /// The requested session is longer than the role allows.
    SessionTooLong(ExchangeError),
    /// Other keys or a shorter session would not help.
    Final(ExchangeError),
}

impl From<AwsCallError> for ExchangeError {
    fn from(refused: AwsCallError) -> Self {
        match refused {
            AwsCallError::KeysRejected(error)
            | AwsCallError::SessionTooLong(error)
            | AwsCallError::Final(error) => error,
        }
    }
}

impl From<ExchangeError> for AwsCallError {
    fn from(error: ExchangeError) -> Self {
        Self::Final(error)
    }
}

/// The authentication of a call. If the call fails because a token or keys have expired, this value determines who must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwsCallAuth {
    /// The pod's Kubernetes token.
    Token,
    /// A signature with keys.
    Keys,
    /// A Kubernetes token in a signed request to EKS Auth. EKS Auth answers 403 if the signature is wrong. So only status 403
    /// means that the keys are wrong.
    Both,
}

/// Error codes for throttling (botocore `botocore/data/_retry.json` and `botocore/retries/standard.py`; aws-sdk-rust
/// `aws-runtime/src/retries/classifiers.rs`).
const THROTTLING: [&str; 13] = [
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "TooManyRequestsException",
    "RequestLimitExceeded",
    "BandwidthLimitExceeded",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "PriorRequestNotComplete",
    "SlowDown",
    "EC2ThrottledException",
];

/// Error codes of temporary errors, whatever the status. `IDPCommunicationError` means that STS could not fetch the cluster's
/// keys.
const PASSING: [&str; 8] = [
    "IDPCommunicationError",
    "ServiceUnavailable",
    "ServiceUnavailableException",
    "InternalFailure",
    "InternalError",
    "InternalServerException",
    "RequestTimeout",
    "RequestTimeoutException",
];

/// Error codes for an expired token or expired keys.
const EXPIRED: [&str; 2] = ["ExpiredToken", "ExpiredTokenException"];

/// Error codes for signing keys that are unknown to AWS.
const UNKNOWN_KEYS: [&str; 2] = ["InvalidClientTokenId", "UnrecognizedClientException"];

/// Error codes for a denied call. An operator must change a policy.
const DENIED: [&str; 5] = [
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "IDPRejectedClaim",
    "IDPRejectedClaimException",
];

/// Error codes for a rejected token. STS uses the same code for a single bad token and for an account that accepts no token of
/// this cluster.
const BAD_TOKEN: [&str; 2] = ["InvalidIdentityToken", "InvalidTokenException"];

/// Lower-case parts of the messages that STS sends with a [`BAD_TOKEN`] code in one special case.
/// The case is that the account has no identity provider for this cluster or audience. No reference lists the messages. For an
/// unknown message, the agent assumes a bad token and tries again.
const NOT_SET_UP: [&str; 2] = ["no openidconnect provider", "incorrect token audience"];

/// A lower-case part of STS's message for this error: STS could not fetch the cluster's keys.
const KEYS_NOT_FETCHED: &str = "retrieve verification key";

/// The error code of EKS Auth for a ServiceAccount without an association, or for an unknown cluster.
const UNASSIGNED: &str = "ResourceNotFoundException";

/// Returns the error for a response with an error status.
pub(super) fn error_from_response(
    step: &'static str,
    proof: AwsCallAuth,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> AwsCallError {
    let provider = ProviderError::read(headers, body);
    let retry_after = parse_retry_after(headers);
    let is_signed =
        proof == AwsCallAuth::Keys || (proof == AwsCallAuth::Both && status == StatusCode::FORBIDDEN);
    let fault = match &*provider.code {
        UNASSIGNED if proof == AwsCallAuth::Both => ExchangeFault::NoAssociation,
        code if BAD_TOKEN.contains(&code) && proof != AwsCallAuth::Keys => provider.fault_of_a_token(),
        code => fault(status, retry_after.is_some(), is_signed, code),
    };
    let error = ExchangeError::new(fault, step, format_args!("{status}: {provider}"));
    let error = ExchangeError { retry_after, ..error };
    match &*provider.code {
        code if is_signed && (EXPIRED.contains(&code) || UNKNOWN_KEYS.contains(&code)) => {
            AwsCallError::KeysRejected(error)
        }
        "ValidationError" if provider.is_about_length() => AwsCallError::SessionTooLong(error),
        _ => AwsCallError::Final(error),
    }
}

/// Returns the fault for an error code. The fault determines who must act.
fn fault(status: StatusCode, says_when: bool, is_signed: bool, code: &str) -> ExchangeFault {
    match code {
        code if THROTTLING.contains(&code) => ExchangeFault::Throttled,
        code if PASSING.contains(&code) => ExchangeFault::Unavailable,
        // If a token has expired, another pod of the same ServiceAccount may have a valid token. If signing keys have expired,
        // newer keys may work.
        code if EXPIRED.contains(&code) && !is_signed => ExchangeFault::PodTokenUnavailable,
        code if EXPIRED.contains(&code) => ExchangeFault::Unavailable,
        code if DENIED.contains(&code) => ExchangeFault::AccessDenied,
        _ => by_status(status, says_when),
    }
}

fn by_status(status: StatusCode, says_when: bool) -> ExchangeFault {
    match status {
        StatusCode::TOO_MANY_REQUESTS => ExchangeFault::Throttled,
        StatusCode::SERVICE_UNAVAILABLE if says_when => ExchangeFault::Throttled,
        StatusCode::REQUEST_TIMEOUT => ExchangeFault::Unavailable,
        status if status.is_client_error() => ExchangeFault::ExchangeRejected,
        _ => ExchangeFault::Unavailable,
    }
}

/// The error code and message of AWS, if the body has a known format.
/// For any other body, the code is empty and the message is a fixed text. The body of an unknown server must not enter the log.
#[derive(Debug, Default, PartialEq, Eq)]
struct ProviderError {
    code: String,
    message: String,
}

/// The restJson1 format: the code is in a header or in `__type`. A namespace can precede the code and a URL can follow it
/// (smithy.io/2.0/aws/protocols/aws-restjson1-protocol.html, "Operation error serialization").
#[derive(Deserialize)]
struct Json {
    #[serde(rename = "__type", alias = "code")]
    code: Option<String>,
    #[serde(alias = "Message")]
    message: Option<String>,
}

impl ProviderError {
    fn read(headers: &HeaderMap, body: &[u8]) -> Self {
        let found = Self::xml(body).or_else(|| Self::json(headers, body));
        let (code, message) =
            found.unwrap_or_else(|| (String::new(), "the body is not an AWS error".to_owned()));
        Self {
            code: redact_long_words(&code, LONGEST_WORD),
            message: redact_long_words(&message, LONGEST_WORD),
        }
    }

    fn xml(body: &[u8]) -> Option<(String, String)> {
        let places = ["ErrorResponse/Error/Code", "ErrorResponse/Error/Message"];
        let [code, message] = xml::element_texts(body, places).ok()?;
        let text = |found: Secret<String>| found.expose().trim().to_owned();
        Some((text(code?), message.map(text).unwrap_or_default()))
    }

    fn json(headers: &HeaderMap, body: &[u8]) -> Option<(String, String)> {
        let json: Json = serde_json::from_slice(body).ok()?;
        let header = headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok());
        let code = header.or(json.code.as_deref())?;
        let code = code.split(':').next().unwrap_or_default();
        let code = code.rsplit('#').next().unwrap_or_default();
        Some((code.to_owned(), json.message.unwrap_or_default()))
    }

    /// True if the error concerns the session's duration.
    /// STS has one code for all invalid parameters, so this function checks the message. The known messages are "The requested
    /// DurationSeconds exceeds the MaxSessionDuration set for this role" and "… exceeds the 1 hour session limit for roles
    /// assumed by role chaining". If a message matches by mistake, the agent only makes one or two more calls, with shorter
    /// durations.
    fn is_about_length(&self) -> bool {
        self.message.to_ascii_lowercase().contains("durationseconds")
    }

    /// Returns the fault of a rejected token.
    /// Usually a retry can succeed: another pod of the same ServiceAccount may have a token that STS accepts, and this pod may
    /// soon get a new token. aws-sdk-go-v2 retries, too (`credentials/stscreds/web_identity_provider.go`). If the message
    /// contains a text of [`NOT_SET_UP`], STS accepts no token of this cluster, and an operator must act.
    fn fault_of_a_token(&self) -> ExchangeFault {
        let message = self.message.to_ascii_lowercase();
        if NOT_SET_UP.iter().any(|sentence| message.contains(sentence)) {
            return ExchangeFault::ExchangeRejected;
        }
        if message.contains(KEYS_NOT_FETCHED) {
            ExchangeFault::Unavailable
        } else {
            ExchangeFault::PodTokenUnavailable
        }
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// The longest word, in bytes, that the agent's errors quote from AWS's message.
/// The agent replaces longer words, because a token in a message is one long word. The agent also replaces a role's ARN if the
/// ARN is longer than this limit.
const LONGEST_WORD: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    fn sts(proof: AwsCallAuth, status: u16, code: &str, message: &str) -> AwsCallError {
        let body = format!(
            "<ErrorResponse xmlns=\"u\"><Error><Type>Sender</Type><Code>{code}</Code>\
             <Message>{message}</Message></Error></ErrorResponse>"
        );
        error_from_response(
            "sts",
            proof,
            StatusCode::from_u16(status).unwrap(),
            &HeaderMap::new(),
            body.as_bytes(),
        )
    }

    fn fault_of(status: u16, code: &str) -> ExchangeFault {
        ExchangeError::from(sts(AwsCallAuth::Token, status, code, "no")).fault
    }

    #[test]
    fn a_code_says_whose_move_it_is_whatever_the_status() {
        for code in THROTTLING {
            assert_eq!(fault_of(400, code), ExchangeFault::Throttled, "{code}");
        }
        for code in PASSING {
            assert_eq!(fault_of(400, code), ExchangeFault::Unavailable, "{code}");
        }
        for (status, code, fault) in [
            (403, "AccessDenied", ExchangeFault::AccessDenied),
            (403, "IDPRejectedClaim", ExchangeFault::AccessDenied),
            (400, "InvalidIdentityToken", ExchangeFault::PodTokenUnavailable),
            (400, "MalformedPolicyDocument", ExchangeFault::ExchangeRejected),
            (400, "PackedPolicyTooLarge", ExchangeFault::ExchangeRejected),
            (400, "ValidationError", ExchangeFault::ExchangeRejected),
            (403, "RegionDisabledException", ExchangeFault::ExchangeRejected),
            (403, "SignatureDoesNotMatch", ExchangeFault::ExchangeRejected),
            (400, "ExpiredTokenException", ExchangeFault::PodTokenUnavailable),
            (429, "Whatever", ExchangeFault::Throttled),
            (408, "Whatever", ExchangeFault::Unavailable),
            (500, "Whatever", ExchangeFault::Unavailable),
        ] {
            assert_eq!(fault_of(status, code), fault, "{code}");
        }
    }

    /// Regression: these errors counted as permanent. The agent posted an event, paused for half a minute and tried no other
    /// pod's token.
    #[test]
    fn a_token_that_is_not_taken_is_the_tokens_fault_unless_the_sentence_says_that_none_will_be() {
        let code = "InvalidIdentityToken";
        for (message, fault) in [
            (
                "No OpenIDConnect provider found in your account for https://x",
                ExchangeFault::ExchangeRejected,
            ),
            ("no openidconnect Provider found", ExchangeFault::ExchangeRejected),
            ("Incorrect token audience", ExchangeFault::ExchangeRejected),
            (
                "Couldn't retrieve verification key from your identity provider, please",
                ExchangeFault::Unavailable,
            ),
            ("The web identity token provided could not be validated", ExchangeFault::PodTokenUnavailable),
            ("", ExchangeFault::PodTokenUnavailable),
        ] {
            let refused = ExchangeError::from(sts(AwsCallAuth::Token, 400, code, message));
            assert_eq!(refused.fault, fault, "{message}");
        }
        for (proof, fault) in [
            (AwsCallAuth::Both, ExchangeFault::PodTokenUnavailable),
            (AwsCallAuth::Keys, ExchangeFault::ExchangeRejected),
        ] {
            let refused = ExchangeError::from(sts(proof, 400, "InvalidTokenException", "bad"));
            assert_eq!(refused.fault, fault, "{proof:?}");
        }
    }

    #[test]
    fn keys_that_ended_are_told_from_a_token_that_did() {
        assert!(
            matches!(sts(AwsCallAuth::Keys, 403, "ExpiredToken", ""), AwsCallError::KeysRejected(e) if e.fault == ExchangeFault::Unavailable)
        );
        assert!(
            matches!(sts(AwsCallAuth::Keys, 403, "InvalidClientTokenId", ""), AwsCallError::KeysRejected(e) if e.fault == ExchangeFault::ExchangeRejected)
        );
        let both = |status| sts(AwsCallAuth::Both, status, "ExpiredTokenException", "");
        assert!(matches!(both(400), AwsCallError::Final(e) if e.fault == ExchangeFault::PodTokenUnavailable));
        assert!(matches!(both(403), AwsCallError::KeysRejected(_)));
    }

    #[test]
    fn only_eks_says_that_nothing_is_assigned() {
        for (proof, fault) in [
            (AwsCallAuth::Both, ExchangeFault::NoAssociation),
            (AwsCallAuth::Keys, ExchangeFault::ExchangeRejected),
        ] {
            let refused = sts(proof, 404, UNASSIGNED, "no association");
            assert!(matches!(refused, AwsCallError::Final(e) if e.fault == fault), "{proof:?}");
        }
    }

    #[test]
    fn a_length_that_is_refused_may_be_asked_for_shorter() {
        let message = "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.";
        assert!(matches!(
            sts(AwsCallAuth::Token, 400, "ValidationError", message),
            AwsCallError::SessionTooLong(_)
        ));
        assert!(matches!(
            sts(AwsCallAuth::Token, 400, "ValidationError", "RoleArn is bad"),
            AwsCallError::Final(_)
        ));
    }

    #[test]
    fn only_known_shapes_are_repeated_and_no_token_in_them() {
        let read = |headers: &[(&'static str, &'static str)], body: &str| {
            let header = |(name, value): &(&'static str, &'static str)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
            };
            let headers = HeaderMap::from_iter(headers.iter().map(header));
            ProviderError::read(&headers, body.as_bytes()).to_string()
        };
        let named = [("x-amzn-errortype", "AccessDeniedException:http://x/")];
        assert_eq!(read(&named, r#"{"message":"no"}"#), "AccessDeniedException no");
        assert_eq!(
            read(&[], r#"{"__type":"a.b#InvalidTokenException","Message":"x"}"#),
            "InvalidTokenException x"
        );
        assert!(!read(&[], "<html>internal host name</html>").contains("host"));
        assert!(!read(&[], r#"{"message":"internal host name"}"#).contains("host"));
        let echo = format!(
            "<ErrorResponse><Error><Code>X</Code><Message>bad {} given</Message></Error></ErrorResponse>",
            "e30.".repeat(50)
        );
        assert_eq!(read(&[], &echo), "X bad … given");
    }
}
