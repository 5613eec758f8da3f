//! The observed responses of metadata servers, as values.

use std::fmt;
use std::time::Duration;

use seawall_fetch::{FetchError, FetchResponse};
use seawall_probe::file_reader::{ProbeError, ProbeResult};
use serde_json::Value;

use super::refresh_windows::{SdkRefreshWindow, SdkTimeout};
use super::secret_redaction::SeenSecrets;
use crate::http_client::HttpUrl;

/// The result of the search for one cloud's server.
pub(super) enum CloudServerOutcome {
    /// The environment tells SDKs not to ask this server.
    Disabled,
    /// A variable names a server that this check cannot ask.
    Unaskable(&'static str, InvalidServerVariable),
    /// A variable names a server that SDKs refuse, so the check sent nothing.
    RefusedBySdks(CredentialServer),
    /// The token for the server is missing or invalid for this reason, so the check sent nothing.
    NotAskedWithoutToken(CredentialServer, String),
    /// The server did not respond.
    Absent(CredentialServer, FetchError),
    /// A server responds, but not like this cloud's server.
    OtherServer(CredentialServer),
    /// A server responds only with this 5xx status, so its kind is unknown.
    Failing(CredentialServer, u16),
    /// The server responds.
    Responding(Box<RespondingServer>),
}

/// The reason why a variable's value names no server that the check can ask.
#[derive(Debug, Clone, Copy)]
pub(super) enum InvalidServerVariable {
    /// The value is a URL, but the variable needs a host.
    UrlForHost,
    NoHost,
    Https,
    NoUrl,
    /// The check does not support the protocol of the named server.
    Unsupported,
}

impl InvalidServerVariable {
    /// Parses `HOST[:PORT]`.
    pub(super) fn parse_host(value: &str) -> Result<HttpUrl, Self> {
        let is_url = ["http://", "https://"].iter().any(|scheme| value.trim().starts_with(scheme));
        HttpUrl::of_host(value).ok_or(if is_url { Self::UrlForHost } else { Self::NoHost })
    }

    /// Parses `http://HOST[:PORT][/PATH]`.
    pub(super) fn parse_url(value: &str) -> Result<HttpUrl, Self> {
        let is_https = value.trim().starts_with("https://");
        HttpUrl::of_url(value).ok_or(if is_https { Self::Https } else { Self::NoUrl })
    }
}

impl CloudServerOutcome {
    /// Returns the outcome for a server whose responses are not those of the expected server.
    pub(super) fn from_unexpected<'a>(
        wanted: CredentialServer,
        answers: impl IntoIterator<Item = &'a FetchResponse>,
    ) -> Self {
        let lowest = answers.into_iter().map(FetchResponse::status).min();
        match lowest {
            Some(status @ 500..) => Self::Failing(wanted, status),
            _ => Self::OtherServer(wanted),
        }
    }

    /// Returns the server that the check looked for.
    pub(super) fn server(&self) -> Option<&CredentialServer> {
        match self {
            Self::Disabled | Self::Unaskable(..) => None,
            Self::RefusedBySdks(wanted)
            | Self::NotAskedWithoutToken(wanted, _)
            | Self::Absent(wanted, _)
            | Self::OtherServer(wanted)
            | Self::Failing(wanted, _) => Some(wanted),
            Self::Responding(server) => Some(&server.server),
        }
    }

    /// Replaces each text that contains a secret of this run.
    pub(super) fn without_secrets(mut self, secrets: &SeenSecrets) -> Self {
        if let Self::Responding(server) = &mut self {
            let (said, why) = match &server.principal {
                ServerPrincipal::Named(_, said) => {
                    (said, "its name contains a credential, so it is not shown")
                }
                ServerPrincipal::Refused(_, said) => {
                    (said, "its response contains a credential, so it is not shown")
                }
                ServerPrincipal::NoIdentity(words) => {
                    if words.as_ref().is_some_and(|words| secrets.occur_in(words)) {
                        server.principal = ServerPrincipal::NoIdentity(None);
                    }
                    return self;
                }
                ServerPrincipal::Failing(_) | ServerPrincipal::Unknown(_) => return self,
            };
            if secrets.occur_in(said) {
                server.principal = ServerPrincipal::Unknown(why.to_owned());
            }
        }
        self
    }

    /// Returns whether the system forbids requests, so that nothing is known.
    pub(super) fn is_connection_forbidden(&self) -> bool {
        matches!(self, Self::Absent(_, FetchError::ConnectionForbidden))
    }
}

/// A server that the check looks for.
#[derive(Debug, Clone)]
pub(super) struct CredentialServer {
    /// A description such as "AWS's metadata service".
    pub(super) server_description: &'static str,
    pub(super) url: HttpUrl,
    /// The environment variable that names the server. SDKs then use no other server.
    pub(super) named_by: Option<&'static str>,
}

impl CredentialServer {
    /// Returns the server that a variable names, or the default one.
    ///
    /// # Errors
    /// The outcome of an invalid variable.
    pub(super) fn new(
        whose: &'static str,
        named: Option<(&'static str, String)>,
        read: fn(&str) -> Result<HttpUrl, InvalidServerVariable>,
        usual: &str,
    ) -> Result<Self, CloudServerOutcome> {
        match named {
            Some((name, value)) => {
                let place = read(&value).map_err(|why| CloudServerOutcome::Unaskable(name, why))?;
                Ok(Self { server_description: whose, url: place, named_by: Some(name) })
            }
            None => {
                let place = HttpUrl { authority: usual.to_owned(), path: String::new() };
                Ok(Self { server_description: whose, url: place, named_by: None })
            }
        }
    }
}

/// A server that responds.
pub(super) struct RespondingServer {
    pub(super) server: CredentialServer,
    /// The requests for credentials.
    pub(super) credential_attempts: Vec<CredentialAttempt>,
    /// The response times of all requests.
    pub(super) response_times: Vec<Duration>,
    pub(super) principal: ServerPrincipal,
    pub(super) lifetime: ProbeResult<CredentialLifetime>,
    /// The refresh windows of the SDKs for this server.
    pub(super) refresh_windows: &'static [SdkRefreshWindow],
    /// The time that the SDKs wait for a response.
    pub(super) sdk_timeout: SdkTimeout,
    /// The results with and without a session token, for AWS's instance metadata.
    pub(super) imds_token_status: Option<ImdsTokenStatus>,
    /// The result of a request by name, for Google's server at the metadata address.
    pub(super) by_name_result: Option<Result<(), FetchError>>,
    /// True if the server has data that only the node's own server has; none if that request got no response.
    pub(super) is_node_metadata_server: Option<bool>,
}

/// One request for credentials.
pub(super) struct CredentialAttempt {
    pub(super) took: Duration,
    pub(super) result: CredentialResult,
}

/// The result of a request for credentials.
pub(super) enum CredentialResult {
    /// The response has all fields that SDKs need.
    Credentials,
    /// The response has status 200 but lacks this field.
    Incomplete(&'static str),
    /// The response has another status.
    Status(u16),
    NoAnswer(FetchError),
}

impl CredentialResult {
    /// Classifies a response; `lacks` finds missing fields.
    pub(super) fn of(answer: &FetchResponse, lacks: MissingFieldCheck) -> Self {
        match answer.status() {
            200 => lacks(answer).map_or(Self::Credentials, Self::Incomplete),
            status => Self::Status(status),
        }
    }
}

impl fmt::Display for CredentialResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials => write!(f, "credentials"),
            Self::Incomplete(lack) => write!(f, "200 {lack}"),
            Self::Status(status) => write!(f, "{status}"),
            Self::NoAnswer(why) => write!(f, "{}", describe_failure(why)),
        }
    }
}

/// A function that names the part that a response with status 200 lacks; none if SDKs can use the response.
pub(super) type MissingFieldCheck = fn(&FetchResponse) -> Option<&'static str>;

/// Returns whether a member is a text that fits a header: not empty, without whitespace or line ends.
pub(super) fn is_sendable_text(member: &Value) -> bool {
    member.as_str().is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Describes a failed request: the system's message without its number, or the wait in tenths of a second.
pub(super) fn describe_failure(why: &FetchError) -> String {
    match why {
        FetchError::Timeout(Duration::ZERO) | FetchError::ConnectTimeout(Duration::ZERO) => {
            "the time limit left no time for this request".to_owned()
        }
        FetchError::Timeout(patience) => {
            format!("no complete response within {:.1} s", patience.as_secs_f64())
        }
        FetchError::ConnectTimeout(patience) => {
            format!("no connection within {:.1} s", patience.as_secs_f64())
        }
        why => why.to_string().split(" (os error").next().unwrap_or_default().to_owned(),
    }
}

/// Returns the reason for an unknown lifetime if no response had complete credentials.
pub(super) fn no_lifetime_reason(tries: &[CredentialAttempt]) -> ProbeError {
    let is_asked = !tries.is_empty();
    ProbeError::NotApplicable(if is_asked {
        "the server gave no credentials"
    } else {
        "the check requested no credentials"
    })
}

/// The identity of the server's credentials.
pub(super) enum ServerPrincipal {
    /// The kind of the identity, in this program's words, and its name from the server.
    Named(&'static str, String),
    /// The server has no identity for this pod or machine, and gives this reason, if any.
    NoIdentity(Option<String>),
    /// The server responds to the request for the identity with this 5xx status.
    Failing(u16),
    /// The server refuses to say what the identity is, with this status and message.
    Refused(u16, String),
    /// The identity is unknown for this reason.
    Unknown(String),
}

impl ServerPrincipal {
    /// Returns the name from the server after a prefix, if it has the form of such a name ([`super::cloud_name_syntax`]). Other
    /// texts are not shown.
    pub(super) fn named(what: &'static str, text: &str, has_form: fn(&str) -> bool) -> Self {
        let text = text.trim();
        if has_form(text) {
            Self::Named(what, text.to_owned())
        } else {
            Self::Unknown(
                "its response is not the name of an account or a role, so it is not shown".to_owned(),
            )
        }
    }
}

impl ServerPrincipal {
    /// Returns the reason in a response with an error status, or `None` if it is not safe to show.
    pub(super) fn reason_in(answer: &FetchResponse) -> Option<String> {
        let text = answer.text();
        let line = text.trim();
        (!line.is_empty() && is_safe_to_show(line)).then(|| line.to_owned())
    }

    /// Returns the principal for a response with an error status that is neither 404 nor 5xx. `wanted` is what the request was for.
    pub(super) fn refused(answer: &FetchResponse, wanted: &str) -> Self {
        let status = answer.status();
        Self::reason_in(answer).map_or_else(
            || Self::Unknown(format!("it responded {status} to the request for its {wanted}")),
            |words| Self::Refused(status, words),
        )
    }
}

/// The longest error message that is shown, in bytes. Azure's are shorter.
const LONGEST: usize = 256;

/// Returns whether an error message is safe to show. Each word is at most as long as a UUID, so no word is a token, and no
/// character changes the direction of the text.
pub(super) fn is_safe_to_show(words: &str) -> bool {
    let is_word = |word: &str| word.len() <= 36 && word.bytes().all(|letter| letter.is_ascii_graphic());
    words.len() <= LONGEST && words.split(' ').all(is_word)
}

/// The lifetime of credentials, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CredentialLifetime {
    pub(super) remaining_seconds: i64,
    /// The lifetime counted from the time of issue, if the response states it.
    pub(super) total_seconds: Option<i64>,
}

/// The statuses of requests with and without a session token (IMDSv2, IMDSv1); none if no response came in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ImdsTokenStatus {
    pub(super) put_status: Option<u16>,
    pub(super) status_without_token: Option<u16>,
    /// True if the server is so slow that a missing response may be late rather than lost.
    pub(super) is_server_slow: bool,
}
