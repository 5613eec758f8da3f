//! What a metadata server was seen to lend, as values.

use std::fmt;
use std::time::Duration;

use seawall_fetch::{FetchError, FetchResponse};
use seawall_probe::files::{ProbeError, ProbeResult};
use serde_json::Value;

use super::secrets::Secrets;
use super::windows::{SdkRefreshWindow, SdkTimeout};
use crate::web::HttpUrl;

/// What became of asking for one cloud's server.
pub(super) enum CloudServerOutcome {
    /// Nobody is to be asked here, by the environment.
    Disabled,
    /// A variable names one that cannot be asked here.
    Unaskable(&'static str, InvalidServerVariable),
    /// A variable names one that SDKs refuse to ask, so nobody was asked.
    Refused(CredentialServer),
    /// What is to be sent there is not to be had or not to be sent, so nobody was asked; why.
    Tokenless(CredentialServer, String),
    /// It did not answer; whose server, and whether the environment names it.
    Absent(CredentialServer, FetchError),
    /// Somebody answers there, but not as this cloud's server does.
    OtherServer(CredentialServer),
    /// Somebody answers there, with this status of a server that fails (5xx) and nothing else, so whose it is cannot be told.
    Failing(CredentialServer, u16),
    /// It answers.
    Serving(Box<RespondingServer>),
}

/// Why a variable's value names nobody who could be asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum InvalidServerVariable {
    /// A URL where a host is expected.
    UrlForHost,
    NoHost,
    Https,
    NoUrl,
    /// It names a server that is asked in a way that is not spoken here.
    Unsupported,
}

impl InvalidServerVariable {
    /// Reads `HOST[:PORT]`.
    pub(super) fn host(value: &str) -> Result<HttpUrl, Self> {
        let is_url = ["http://", "https://"].iter().any(|scheme| value.trim().starts_with(scheme));
        HttpUrl::of_host(value).ok_or(if is_url { Self::UrlForHost } else { Self::NoHost })
    }

    /// Reads `http://HOST[:PORT][/PATH]`.
    pub(super) fn url(value: &str) -> Result<HttpUrl, Self> {
        let is_https = value.trim().starts_with("https://");
        HttpUrl::of_url(value).ok_or(if is_https { Self::Https } else { Self::NoUrl })
    }
}

impl CloudServerOutcome {
    /// What somebody is whose answers are not those of the server that was asked for.
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

    /// The server that was asked for.
    pub(super) fn wanted(&self) -> Option<&CredentialServer> {
        match self {
            Self::Disabled | Self::Unaskable(..) => None,
            Self::Refused(wanted)
            | Self::Tokenless(wanted, _)
            | Self::Absent(wanted, _)
            | Self::OtherServer(wanted)
            | Self::Failing(wanted, _) => Some(wanted),
            Self::Serving(server) => Some(&server.wanted),
        }
    }

    /// The same, without what says a secret of this run.
    pub(super) fn without_secrets(mut self, secrets: &Secrets) -> Self {
        if let Self::Serving(server) = &mut self {
            let (said, why) = match &server.principal {
                ServerPrincipal::Named(_, said) => {
                    (said, "its name contains a credential, so it is not shown")
                }
                ServerPrincipal::Refused(_, said) => {
                    (said, "its response contains a credential, so it is not shown")
                }
                ServerPrincipal::NoIdentity | ServerPrincipal::Failing(_) | ServerPrincipal::Unknown(_) => {
                    return self;
                }
            };
            if secrets.occur_in(said) {
                server.principal = ServerPrincipal::Unknown(why.to_owned());
            }
        }
        self
    }

    /// The system lets nobody here ask, so nothing is known.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Absent(_, FetchError::Forbidden))
    }
}

/// A server that is looked for.
#[derive(Debug, Clone)]
pub(super) struct CredentialServer {
    /// As in "AWS's metadata service".
    pub(super) server_description: &'static str,
    pub(super) place: HttpUrl,
    /// The variable that names it; SDKs have no other then.
    pub(super) named_by: Option<&'static str>,
}

impl CredentialServer {
    /// The server that a variable names, or the one that is asked where none does.
    ///
    /// # Errors
    /// The outcome of a variable that names nobody.
    pub(super) fn new(
        whose: &'static str,
        named: Option<(&'static str, String)>,
        read: fn(&str) -> Result<HttpUrl, InvalidServerVariable>,
        usual: &str,
    ) -> Result<Self, CloudServerOutcome> {
        match named {
            Some((name, value)) => {
                let place = read(&value).map_err(|why| CloudServerOutcome::Unaskable(name, why))?;
                Ok(Self { server_description: whose, place, named_by: Some(name) })
            }
            None => {
                let place = HttpUrl { authority: usual.to_owned(), path: String::new() };
                Ok(Self { server_description: whose, place, named_by: None })
            }
        }
    }
}

/// A server that answers.
pub(super) struct RespondingServer {
    pub(super) wanted: CredentialServer,
    /// Each time that credentials were asked for.
    pub(super) attempts: Vec<CredentialAttempt>,
    /// How long each of its answers took, whatever was asked for.
    pub(super) times: Vec<Duration>,
    pub(super) principal: ServerPrincipal,
    pub(super) lifetime: ProbeResult<CredentialLifetime>,
    /// When its SDKs refresh.
    pub(super) windows: &'static [SdkRefreshWindow],
    /// How long they wait for an answer.
    pub(super) sdk_timeout: SdkTimeout,
    /// Of AWS's instance metadata.
    pub(super) tokens: Option<ImdsTokenStatus>,
    /// Whether it answers what only the machine's own server does; none where no answer came to that.
    pub(super) is_machines_own: Option<bool>,
}

/// One time that credentials were asked for.
pub(super) struct CredentialAttempt {
    pub(super) took: Duration,
    pub(super) got: CredentialResult,
}

/// What came of asking for credentials.
pub(super) enum CredentialResult {
    /// All that SDKs need.
    Credentials,
    /// 200, and not all that SDKs need; what is wrong.
    Incomplete(&'static str),
    /// Another status.
    Status(u16),
    NoAnswer(FetchError),
}

impl CredentialResult {
    /// What an answer is to those who need what `lacks` looks for.
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

/// What an answer with the status 200 lacks to be credentials; none if SDKs can use it.
pub(super) type MissingFieldCheck = fn(&FetchResponse) -> Option<&'static str>;

/// Whether a member of a document is something that can be sent: not nothing, and no blank or line end in it.
pub(super) fn is_sendable_text(member: &Value) -> bool {
    member.as_str().is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Why there is no answer, in a system's words without its number, and in tenths of a second.
pub(super) fn describe_failure(why: &FetchError) -> String {
    match why {
        FetchError::Timeout(Duration::ZERO) | FetchError::ConnectTimeout(Duration::ZERO) => {
            "the time limit left no time for it".to_owned()
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

/// Why nothing is known of the life of credentials of which no answer had all.
pub(super) fn no_lifetime_reason(tries: &[CredentialAttempt]) -> ProbeError {
    let is_asked = !tries.is_empty();
    ProbeError::Absent(if is_asked { "it gave no credentials" } else { "the check requested no credentials" })
}

/// As whom its credentials are.
pub(super) enum ServerPrincipal {
    /// What it is a name of, in our words, and a role, an account or an identity, in the server's.
    Named(&'static str, String),
    /// It has none for who asks here.
    NoIdentity,
    /// It answers with this status (5xx) when it is asked for that.
    Failing(u16),
    /// It refuses to say with this status, in these words of its own.
    Refused(u16, String),
    /// It did not say; why, in ours.
    Unknown(String),
}

impl ServerPrincipal {
    /// As a server names it, if it has the form of such a name ([`super::names`]); what has another is not shown. What it is a name of is said before it.
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

/// Bytes of an error's words that are shown: Azure's have less.
const LONGEST: usize = 256;

/// Words that a server says of an error: none longer than a UUID, which errors are told by, and so none as long as a token; and no characters that
/// turn a screen around.
pub(super) fn is_plain(words: &str) -> bool {
    let is_word = |word: &str| word.len() <= 36 && word.bytes().all(|letter| letter.is_ascii_graphic());
    words.len() <= LONGEST && words.split(' ').all(is_word)
}

/// How long credentials live, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CredentialLifetime {
    pub(super) left: i64,
    /// From their issue on, where the answer says it.
    pub(super) whole: Option<i64>,
}

/// What became of asking with and without a session token (IMDSv2, IMDSv1): the status, or none if no answer came in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ImdsTokenStatus {
    pub(super) put: Option<u16>,
    pub(super) without: Option<u16>,
    /// The server's answers come so late that none may be lost.
    pub(super) is_slow: bool,
}
