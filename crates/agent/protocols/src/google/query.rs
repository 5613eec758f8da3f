//! Parses the query string. Each known key is allowed once, and the parser checks each value.
//!
//! Two servers can interpret `recursive=false&recursive=true` differently, so the parser refuses a known key that occurs twice.
//! The parser decodes percent escapes in keys and values once. After that, a percent sign is an ordinary character. Except for
//! audiences, known keys and valid values contain no percent sign. So no rule interprets a doubly encoded value.

use std::borrow::Cow;
use std::time::Duration;

use super::scopes::{self, Scopes};
use seawall_http::Refusal;
use seawall_http::path::decode_percent_digits;

/// The longest time for which the agent keeps a long poll open.
///
/// The real server keeps a long poll open without limit if the client sends no `timeout_sec`. With this limit, a client gets an
/// early reply with unchanged content every five minutes. The protocol allows early replies.
pub const MAX_LONG_POLL_WAIT: Duration = Duration::from_secs(300);

/// The longest audience of an identity token, in characters. In practice audiences are URLs of services.
pub const MAX_AUDIENCE_LENGTH: usize = 2048;

/// The maximum number of `key=value` pairs.
const MAX_PAIRS: usize = 32;

/// The longest accepted `last_etag`, in characters. The agent's and Google's etags have 16 characters.
const MAX_ETAG: usize = 64;

/// The refusal for a malformed query.
pub const BAD_QUERY: Refusal = Refusal::new(
    400,
    "bad_query",
    "The query has more than 32 key=value pairs, or it is not percent-encoded printable ASCII.",
);
/// The refusal for a key that occurs twice.
pub const REPEATED_PARAMETER: Refusal = Refusal::new(
    400,
    "repeated_parameter",
    "A query parameter that may occur only once occurs more than once.",
);
/// The refusal for a value that its key does not allow.
pub const BAD_PARAMETER_VALUE: Refusal =
    Refusal::new(400, "bad_parameter_value", "A query parameter has a value that is not allowed.");
/// The refusal for an unknown key. Only conceal mode uses this refusal.
pub const UNKNOWN_PARAMETER: Refusal =
    Refusal::new(403, "unknown_parameter", "Pods are not allowed to use this query parameter.");
/// The refusal for a client that requires a certificate-bound token.
///
/// A thief can use an unbound token. So a client that requires a bound token must not get an unbound token. SDKs treat 400 as
/// final, and the SDKs for Java, Go and Python include the message in their error. With 403, users would search for a missing
/// permission. With 404, the SDKs for Go and Java hide the body.
pub const BOUND_TOKEN_UNSUPPORTED: Refusal = Refusal::new(
    400,
    "bound_token_unsupported",
    "The agent does not issue certificate-bound tokens, which binding-enforcement=on requires. Leave that parameter out.",
);
/// The refusal for an invalid audience.
pub const BAD_AUDIENCE: Refusal = Refusal::new(
    400,
    "bad_audience",
    "The request needs the audience parameter: 1 to 2048 visible ASCII characters.",
);

/// The format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFormat {
    /// JSON.
    Json,
    /// Plain text.
    Text,
}

/// A long poll. The server answers when the content changes, or with the current content after the timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitForChange<'b> {
    /// The etag of the client's content, or `None` to wait for the next change.
    ///
    /// Any word is allowed; for example, the guest agent sends `NONE`. An unknown word matches no content.
    pub last_etag: Option<Cow<'b, str>>,
    /// The longest time for which the server keeps the request open, at most [`MAX_LONG_POLL_WAIT`].
    pub timeout: Duration,
}

/// The policy for query keys that this dialect does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownKeyPolicy {
    /// Unknown keys are ignored. New SDK releases add such keys, and no rule of federate mode depends on them.
    Ignored,
    /// Unknown keys are refused unless they are [`HARMLESS`], because the real server could interpret them.
    RefusedUnlessHarmless,
}

/// The query keys with which newer SDKs request certificate-bound tokens.
///
/// Sources: google-auth-library-python, `google/auth/compute_engine/_metadata.py`; cloud.google.com/go/auth. The agent ignores
/// these keys and returns an ordinary token, because a refusal would break those SDKs. The agent refuses only a client that
/// requires the binding ([`BOUND_TOKEN_UNSUPPORTED`]).
const HARMLESS: [&str; 2] = ["transport", "bindCertificateFingerprint"];

/// The known keys of one query, decoded and checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueryParams<'b> {
    pub(super) recursive: Option<bool>,
    pub(super) alt: Option<ResponseFormat>,
    wait_for_change: Option<bool>,
    last_etag: Option<Cow<'b, str>>,
    timeout_sec: Option<u32>,
    /// The decoded scopes before canonicalisation. See [`QueryParams::scopes`].
    scopes: Option<Cow<'b, str>>,
    /// The decoded audience before its check. See [`QueryParams::audience`].
    audience: Option<Cow<'b, str>>,
    /// True if the query has `format=full`; `None` if the query has no `format`.
    full: Option<bool>,
    licenses: Option<bool>,
    /// True if `binding-enforcement` is `on`.
    insists_on_binding: bool,
}

impl<'b> QueryParams<'b> {
    /// Parses a raw query.
    ///
    /// # Errors
    /// [`BAD_QUERY`], [`REPEATED_PARAMETER`], [`BAD_PARAMETER_VALUE`], [`UNKNOWN_PARAMETER`].
    pub(super) fn parse(raw: Option<&'b str>, unknown: UnknownKeyPolicy) -> Result<Self, Refusal> {
        let mut params = Self::default();
        let Some(raw) = raw else { return Ok(params) };
        // The HTTP parser guarantees visible ASCII. This code repeats the check, because a redirect copies the query into a
        // header.
        if !raw.bytes().all(|byte| byte.is_ascii_graphic()) || raw.split('&').count() > MAX_PAIRS {
            return Err(BAD_QUERY);
        }
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            params.take(&decode(key)?, value, unknown)?;
        }
        Ok(params)
    }

    fn take(&mut self, key: &str, value: &'b str, unknown: UnknownKeyPolicy) -> Result<(), Refusal> {
        match key {
            "recursive" => once(&mut self.recursive, flag(value)?),
            "alt" => once(&mut self.alt, alt(value)?),
            "wait_for_change" => once(&mut self.wait_for_change, flag(value)?),
            "last_etag" => once(&mut self.last_etag, etag(value)?),
            "timeout_sec" => once(&mut self.timeout_sec, seconds(value)?),
            "scopes" => once(&mut self.scopes, decode(value)?),
            "audience" => once(&mut self.audience, decode(value)?),
            "format" => once(&mut self.full, format(value)?),
            "licenses" => once(&mut self.licenses, flag(value)?),
            "binding-enforcement" => {
                // The other value, `iam-policy`, leaves the decision to IAM policies, which then evaluate an unbound token.
                self.insists_on_binding |= decode(value)?.eq_ignore_ascii_case("on");
                Ok(())
            }
            _ if unknown == UnknownKeyPolicy::Ignored || HARMLESS.contains(&key) => Ok(()),
            _ => Err(UNKNOWN_PARAMETER),
        }
    }

    pub(super) fn is_recursive(&self) -> bool {
        self.recursive == Some(true)
    }

    /// Refuses a client that requires a certificate-bound token.
    ///
    /// # Errors
    /// [`BOUND_TOKEN_UNSUPPORTED`].
    pub(super) fn refuse_certificate_binding(&self) -> Result<(), Refusal> {
        if self.insists_on_binding { Err(BOUND_TOKEN_UNSUPPORTED) } else { Ok(()) }
    }

    pub(super) fn is_long_poll(&self) -> bool {
        self.wait_for_change == Some(true)
    }

    /// True if the query has a key that is specific to identity tokens.
    pub(super) fn has_id_token_key(&self) -> bool {
        self.audience.is_some() || self.full.is_some() || self.licenses.is_some()
    }

    /// Returns the long poll that the client requests, even if the client's `last_etag` is not current.
    pub(super) fn long_poll(&self) -> Option<WaitForChange<'b>> {
        let asked = self.timeout_sec.map(|seconds| Duration::from_secs(seconds.into()));
        self.is_long_poll().then(|| WaitForChange {
            last_etag: self.last_etag.clone(),
            timeout: asked.unwrap_or(MAX_LONG_POLL_WAIT).min(MAX_LONG_POLL_WAIT),
        })
    }

    /// Returns the requested scopes in canonical form, or `None` if the query has no scopes.
    ///
    /// # Errors
    /// [`scopes::BAD_SCOPES`].
    pub(super) fn scopes(&self) -> Result<Option<String>, Refusal> {
        self.scopes.as_deref().map_or(Ok(None), scopes::canonicalize_scopes)
    }

    /// Returns the requested scopes, or the account's own scopes if the query has no scopes.
    ///
    /// # Errors
    /// [`scopes::BAD_SCOPES`].
    pub(super) fn scopes_or_default<'t>(&self, own: &'t std::sync::Arc<str>) -> Result<Scopes<'t>, Refusal> {
        Ok(match self.scopes()? {
            Some(asked) if *asked != **own => Scopes::Requested(asked),
            _ => Scopes::Default(own),
        })
    }

    /// Returns the checked audience.
    ///
    /// # Errors
    /// [`BAD_AUDIENCE`].
    pub(super) fn audience(&self) -> Result<Cow<'b, str>, Refusal> {
        let is_fit = |audience: &Cow<'_, str>| {
            (1..=MAX_AUDIENCE_LENGTH).contains(&audience.len())
                && audience.bytes().all(|byte| byte.is_ascii_graphic())
        };
        self.audience.clone().filter(is_fit).ok_or(BAD_AUDIENCE)
    }

    pub(super) fn includes_email(&self) -> bool {
        self.full == Some(true)
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Refusal> {
    if place.replace(value).is_none() { Ok(()) } else { Err(REPEATED_PARAMETER) }
}

/// Parses a flag. A key without a value counts as true, because a server could interpret it as true.
fn flag(value: &str) -> Result<bool, Refusal> {
    let value = decode(value)?;
    let is = |word: &&str| value.eq_ignore_ascii_case(word);
    match &value {
        _ if ["", "true", "1"].iter().any(is) => Ok(true),
        _ if ["false", "0"].iter().any(is) => Ok(false),
        _ => Err(BAD_PARAMETER_VALUE),
    }
}

fn alt(value: &str) -> Result<ResponseFormat, Refusal> {
    match &*decode(value)? {
        "json" => Ok(ResponseFormat::Json),
        "text" => Ok(ResponseFormat::Text),
        _ => Err(BAD_PARAMETER_VALUE),
    }
}

fn format(value: &str) -> Result<bool, Refusal> {
    match &*decode(value)? {
        "full" => Ok(true),
        "" | "standard" => Ok(false),
        _ => Err(BAD_PARAMETER_VALUE),
    }
}

fn etag(value: &str) -> Result<Cow<'_, str>, Refusal> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let value = decode(value)?;
    if value.len() <= MAX_ETAG && value.bytes().all(is_plain) { Ok(value) } else { Err(BAD_PARAMETER_VALUE) }
}

/// Parses a number of seconds. The value must consist of digits only; `str::parse` alone would also accept a sign.
fn seconds(value: &str) -> Result<u32, Refusal> {
    let value = decode(value)?;
    if !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BAD_PARAMETER_VALUE);
    }
    value.parse().map_err(|_| BAD_PARAMETER_VALUE)
}

/// Decodes percent escapes and plus signs once. The result consists of visible ASCII and spaces.
fn decode(raw: &str) -> Result<Cow<'_, str>, Refusal> {
    if !raw.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Ok(Cow::Borrowed(raw));
    }
    let mut decoded = String::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => decode_percent_digits(&mut bytes).ok_or(BAD_QUERY)?,
            b'+' => b' ',
            byte => byte,
        };
        if !matches!(byte, b' '..=b'~') {
            return Err(BAD_QUERY);
        }
        decoded.push(char::from(byte));
    }
    Ok(Cow::Owned(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &str) -> Result<QueryParams<'_>, Refusal> {
        QueryParams::parse(Some(raw), UnknownKeyPolicy::RefusedUnlessHarmless)
    }

    #[test]
    fn every_spelling_of_recursion_is_recursion() {
        for raw in [
            "recursive",
            "recursive=",
            "recursive=true",
            "recursive=TRUE",
            "recursive=1",
            "%72ecursive=true",
            "recursi%76e=%74rue",
            "alt=json&recursive=True",
            "&&recursive&",
        ] {
            assert!(parse(raw).unwrap().is_recursive(), "{raw}");
        }
        for raw in ["", "recursive=false", "recursive=0", "recursive=%66alse"] {
            assert!(!parse(raw).unwrap().is_recursive(), "{raw}");
        }
    }

    #[test]
    fn what_is_not_plainly_one_value_is_refused() {
        let pairs = ["scopes=a"; MAX_PAIRS + 1].join("&");
        let tag = format!("last_etag={}", "a".repeat(MAX_ETAG + 1));
        for (raw, refusal) in [
            ("recursive=yes", BAD_PARAMETER_VALUE),
            ("recursive=%2574rue", BAD_PARAMETER_VALUE),
            ("recursive=false;recursive=true", BAD_PARAMETER_VALUE),
            ("recursive=+true", BAD_PARAMETER_VALUE),
            ("recursive=false&recursive=true", REPEATED_PARAMETER),
            ("recursive=true&%72ecursive=true", REPEATED_PARAMETER),
            ("scopes=a&scopes=a", REPEATED_PARAMETER),
            ("alt=xml", BAD_PARAMETER_VALUE),
            ("alt=", BAD_PARAMETER_VALUE),
            ("timeout_sec=-1", BAD_PARAMETER_VALUE),
            ("timeout_sec=%2B1", BAD_PARAMETER_VALUE),
            ("timeout_sec=1.5", BAD_PARAMETER_VALUE),
            ("timeout_sec=", BAD_PARAMETER_VALUE),
            ("timeout_sec=99999999999", BAD_PARAMETER_VALUE),
            ("last_etag=a%3Bb", BAD_PARAMETER_VALUE),
            (&tag, BAD_PARAMETER_VALUE),
            ("format=fuller", BAD_PARAMETER_VALUE),
            ("licenses=perhaps", BAD_PARAMETER_VALUE),
            ("Recursive=true", UNKNOWN_PARAMETER),
            ("recursive%00=true", BAD_QUERY),
            ("recursive%20=true", UNKNOWN_PARAMETER),
            ("%2572ecursive=true", UNKNOWN_PARAMETER),
            ("recursive;=true", UNKNOWN_PARAMETER),
            ("a=b", UNKNOWN_PARAMETER),
            ("scopes=%", BAD_QUERY),
            ("scopes=%C3%A9", BAD_QUERY),
            ("scopes=a\r\nb", BAD_QUERY),
            (&pairs, BAD_QUERY),
        ] {
            assert_eq!(parse(raw), Err(refusal), "{raw}");
        }
    }

    #[test]
    fn keys_that_newer_sdks_add_are_dropped_everywhere() {
        let raw = "transport=mtls&binding-enforcement=iam-policy&bindCertificateFingerprint=ab%2Bc";
        assert_eq!(parse(raw), Ok(QueryParams::default()));
    }

    /// Regression: a client that required a bound token got an unbound one.
    #[test]
    fn whoever_insists_on_a_bound_token_is_not_given_another() {
        for raw in [
            "transport=mtls&binding-enforcement=on",
            "binding-enforcement=ON&transport=alts",
            "binding%2Denforcement=o%6E",
            "binding-enforcement=on&binding-enforcement=iam-policy",
        ] {
            assert_eq!(
                parse(raw).unwrap().refuse_certificate_binding(),
                Err(BOUND_TOKEN_UNSUPPORTED),
                "{raw}"
            );
        }
        for raw in ["transport=mtls", "binding-enforcement=iam-policy", "bindCertificateFingerprint=on", ""] {
            assert_eq!(parse(raw).unwrap().refuse_certificate_binding(), Ok(()), "{raw}");
        }
    }

    #[test]
    fn a_federated_pod_may_send_keys_nobody_knows() {
        assert_eq!(
            QueryParams::parse(Some("new=%C3%A9&x"), UnknownKeyPolicy::Ignored),
            Ok(QueryParams::default())
        );
    }

    #[test]
    fn a_hold_is_bounded_and_needs_wait_for_change() {
        let hold = |raw| parse(raw).unwrap().long_poll().map(|hold| (hold.last_etag, hold.timeout.as_secs()));
        assert_eq!(hold("last_etag=NONE&timeout_sec=5"), None);
        assert_eq!(hold("wait_for_change=false"), None);
        assert_eq!(hold("wait_for_change=true"), Some((None, 300)));
        assert_eq!(hold("wait_for_change=TRUE&timeout_sec=4294967295"), Some((None, 300)));
        assert_eq!(
            hold("wait_for_change=true&last_etag=NONE&timeout_sec=60"),
            Some((Some("NONE".into()), 60))
        );
    }

    #[test]
    fn an_audience_is_visible_and_bounded() {
        let long = format!("audience={}", "a".repeat(MAX_AUDIENCE_LENGTH + 1));
        for raw in ["", "audience=", "audience=a+b", "audience=%20", &long] {
            assert_eq!(parse(raw).unwrap().audience(), Err(BAD_AUDIENCE), "{raw}");
        }
        let audience = parse("audience=https%3A%2F%2Fa.example%2F%3Fx%3D%C2").map(drop);
        assert_eq!(audience, Err(BAD_QUERY));
        let params = parse("audience=https%3A%2F%2Fa.example%2F&format=full&licenses=TRUE").unwrap();
        assert_eq!(params.audience().as_deref(), Ok("https://a.example/"));
        assert!(params.includes_email());
    }
}
