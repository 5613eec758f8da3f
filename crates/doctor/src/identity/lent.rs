//! What a metadata server was seen to lend, as values.

use std::fmt;
use std::time::Duration;

use seawall_fetch::{Answer, Failed};
use seawall_probe::files::{Reading, Unread};
use serde_json::Value;

use super::secrets::Secrets;
use super::windows::{Patience, Window};
use crate::web::Place;

/// What became of asking for one cloud's server.
pub(super) enum Outcome {
    /// Nobody is to be asked here, by the environment.
    Unasked,
    /// A variable names one that cannot be asked here.
    Unaskable(&'static str, Misread),
    /// A variable names one that SDKs refuse to ask, so nobody was asked.
    Refused(Wanted),
    /// What is to be sent there is not to be had or not to be sent, so nobody was asked; why.
    Tokenless(Wanted, String),
    /// It did not answer; whose server, and whether the environment names it.
    Absent(Wanted, Failed),
    /// Somebody answers there, but not as this cloud's server does.
    Another(Wanted),
    /// Somebody answers there, with this status of a server that fails (5xx) and nothing else, so whose it is cannot be told.
    Failing(Wanted, u16),
    /// It answers.
    Serving(Box<Server>),
}

/// Why a variable's value names nobody who could be asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Misread {
    /// A URL where a host is expected.
    UrlForHost,
    NoHost,
    Https,
    NoUrl,
    /// It names a server that is asked in a way that is not spoken here.
    Unspoken,
}

impl Misread {
    /// Reads `HOST[:PORT]`.
    pub(super) fn host(value: &str) -> Result<Place, Self> {
        let is_url = ["http://", "https://"].iter().any(|scheme| value.trim().starts_with(scheme));
        Place::of_host(value).ok_or(if is_url { Self::UrlForHost } else { Self::NoHost })
    }

    /// Reads `http://HOST[:PORT][/PATH]`.
    pub(super) fn url(value: &str) -> Result<Place, Self> {
        let is_https = value.trim().starts_with("https://");
        Place::of_url(value).ok_or(if is_https { Self::Https } else { Self::NoUrl })
    }
}

impl Outcome {
    /// What somebody is whose answers are not those of the server that was asked for.
    pub(super) fn stranger<'a>(wanted: Wanted, answers: impl IntoIterator<Item = &'a Answer>) -> Self {
        let lowest = answers.into_iter().map(Answer::status).min();
        match lowest {
            Some(status @ 500..) => Self::Failing(wanted, status),
            _ => Self::Another(wanted),
        }
    }

    /// The server that was asked for.
    pub(super) fn wanted(&self) -> Option<&Wanted> {
        match self {
            Self::Unasked | Self::Unaskable(..) => None,
            Self::Refused(wanted)
            | Self::Tokenless(wanted, _)
            | Self::Absent(wanted, _)
            | Self::Another(wanted)
            | Self::Failing(wanted, _) => Some(wanted),
            Self::Serving(server) => Some(&server.wanted),
        }
    }

    /// The same, without what says a secret of this run.
    pub(super) fn without(mut self, secrets: &Secrets) -> Self {
        if let Self::Serving(server) = &mut self {
            let (said, why) = match &server.principal {
                Principal::Named(_, said) => {
                    (said, "it says a name that holds a credential, which is not shown")
                }
                Principal::Refused(_, said) => {
                    (said, "it says a credential when it is asked for that, which is not shown")
                }
                Principal::Nobody | Principal::Failing(_) | Principal::Unsaid(_) => return self,
            };
            if secrets.are_in(said) {
                server.principal = Principal::Unsaid(why.to_owned());
            }
        }
        self
    }

    /// The system lets nobody here ask, so nothing is known.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Absent(_, Failed::Forbidden))
    }
}

/// A server that is looked for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// As in "AWS's metadata service".
    pub(super) whose: &'static str,
    pub(super) place: Place,
    /// The variable that names it; SDKs have no other then.
    pub(super) named_by: Option<&'static str>,
}

impl Wanted {
    /// The server that a variable names, or the one that is asked where none does.
    ///
    /// # Errors
    /// The outcome of a variable that names nobody.
    pub(super) fn new(
        whose: &'static str,
        named: Option<(&'static str, String)>,
        read: fn(&str) -> Result<Place, Misread>,
        usual: &str,
    ) -> Result<Self, Outcome> {
        match named {
            Some((name, value)) => {
                let place = read(&value).map_err(|why| Outcome::Unaskable(name, why))?;
                Ok(Self { whose, place, named_by: Some(name) })
            }
            None => {
                let place = Place { authority: usual.to_owned(), path: String::new() };
                Ok(Self { whose, place, named_by: None })
            }
        }
    }
}

/// A server that answers.
pub(super) struct Server {
    pub(super) wanted: Wanted,
    /// Each time that credentials were asked for.
    pub(super) tries: Vec<Try>,
    /// How long each of its answers took, whatever was asked for.
    pub(super) times: Vec<Duration>,
    pub(super) principal: Principal,
    pub(super) life: Reading<Life>,
    /// When its SDKs refresh.
    pub(super) windows: &'static [Window],
    /// How long they wait for an answer.
    pub(super) patience: Patience,
    /// Of AWS's instance metadata.
    pub(super) tokens: Option<Tokens>,
    /// Whether it answers what only the machine's own server does; none where no answer came to that.
    pub(super) is_machines_own: Option<bool>,
}

/// One time that credentials were asked for.
pub(super) struct Try {
    pub(super) took: Duration,
    pub(super) got: Got,
}

/// What came of asking for credentials.
pub(super) enum Got {
    /// All that SDKs need.
    Credentials,
    /// 200, and not all that SDKs need; what is wrong.
    Less(&'static str),
    /// Another status.
    Status(u16),
    Nothing(Failed),
}

impl Got {
    /// What an answer is to those who need what `lacks` looks for.
    pub(super) fn of(answer: &Answer, lacks: Lacks) -> Self {
        match answer.status() {
            200 => lacks(answer).map_or(Self::Credentials, Self::Less),
            status => Self::Status(status),
        }
    }
}

impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials => write!(f, "credentials"),
            Self::Less(lack) => write!(f, "200 {lack}"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Nothing(why) => write!(f, "{}", told(why)),
        }
    }
}

/// What an answer with the status 200 lacks to be credentials; none if SDKs can use it.
pub(super) type Lacks = fn(&Answer) -> Option<&'static str>;

/// Whether a member of a document is something that can be sent: not nothing, and no blank or line end in it.
pub(super) fn is_said(member: &Value) -> bool {
    member.as_str().is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Why there is no answer, in a system's words without its number, and in tenths of a second.
pub(super) fn told(why: &Failed) -> String {
    match why {
        Failed::Late(Duration::ZERO) | Failed::Unreached(Duration::ZERO) => {
            "no time was left for it".to_owned()
        }
        Failed::Late(patience) => format!("no whole answer within {:.1} s", patience.as_secs_f64()),
        Failed::Unreached(patience) => format!("no connection within {:.1} s", patience.as_secs_f64()),
        why => why.to_string().split(" (os error").next().unwrap_or_default().to_owned(),
    }
}

/// Why nothing is known of the life of credentials of which no answer had all.
pub(super) fn lifeless(tries: &[Try]) -> Unread {
    let is_asked = !tries.is_empty();
    Unread::Absent(if is_asked { "it gave no credentials" } else { "it was not asked for credentials" })
}

/// As whom its credentials are.
pub(super) enum Principal {
    /// What it is a name of, in our words, and a role, an account or an identity, in the server's.
    Named(&'static str, String),
    /// It has none for who asks here.
    Nobody,
    /// It answers with this status (5xx) when it is asked for that.
    Failing(u16),
    /// It refuses to say with this status, in these words of its own.
    Refused(u16, String),
    /// It did not say; why, in ours.
    Unsaid(String),
}

impl Principal {
    /// As a server names it, if it has the form of such a name ([`super::names`]); what has another is not shown. What it is a name of is said before it.
    pub(super) fn named(what: &'static str, text: &str, has_form: fn(&str) -> bool) -> Self {
        let text = text.trim();
        if has_form(text) {
            Self::Named(what, text.to_owned())
        } else {
            Self::Unsaid("what it says there is no name of an account or a role, and is not shown".to_owned())
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
pub(super) struct Life {
    pub(super) left: i64,
    /// From their issue on, where the answer says it.
    pub(super) whole: Option<i64>,
}

/// What became of asking with and without a session token (IMDSv2, IMDSv1): the status, or none if no answer came in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) put: Option<u16>,
    pub(super) without: Option<u16>,
    /// The server's answers come so late that none may be lost.
    pub(super) is_slow: bool,
}
