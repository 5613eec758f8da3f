//! Google on loopback: one listener for the security token service, IAM Credentials and a metadata server.
//!
//! [`start`] binds and serves; the [`Running`] it hands back is the only handle: what was asked, what to break next,
//! and the end. Paths choose the service, as the real hosts would: `/v1/token` (sts.googleapis.com),
//! `/v1/projects/-/serviceAccounts/…` (iamcredentials.googleapis.com), `/oauth2/v3/certs` (www.googleapis.com),
//! `/tokeninfo` (oauth2.googleapis.com) and everything else a virtual machine's metadata server. One path is the
//! emulator's own: `/emulator/counts` says what was asked so far.
//!
//! Formats: google-auth-library-python `google/oauth2/sts.py`, `google/auth/iam.py`,
//! `google/auth/impersonated_credentials.py`; cloud.google.com/iam/docs/reference/sts/rest.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use seawall_core::Clock;

use crate::faults::Faults;
use crate::keys::{KeySet, SigningKey};

mod cloud;
mod credentials;
mod ledger;
mod metadata;
mod reply;
mod sts;
mod token;

pub use ledger::Counts;
pub use metadata::{CONCEALED, Machine};
pub use token::AccessToken;

pub(crate) use cloud::Cloud;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The workload identity providers whose Kubernetes tokens are exchanged.
    pub providers: Vec<Provider>,
    /// Who may become which service account.
    pub impersonation: Impersonation,
    /// The virtual machine of the metadata server, and its project.
    pub machine: Machine,
    /// What goes wrong from the start; see [`Running::set_faults`].
    pub faults: Faults,
    /// The longest life of any token issued, however long a one is asked for. Google's is one hour.
    pub token_lifetime: Duration,
    /// Whether an access token may be asked for above one hour, up to twelve
    /// (the organisation policy `iam.allowServiceAccountCredentialLifetimeExtension`).
    pub long_lifetimes: bool,
    /// The RSA key that signs identity tokens. `None`: one is made when the first is asked for, which takes some tenths
    /// of a second; tests that want none do not pay for it.
    pub identity_key: Option<Arc<SigningKey>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            providers: Vec::new(),
            impersonation: Impersonation::default(),
            machine: Machine::default(),
            faults: Faults::default(),
            token_lifetime: Duration::from_secs(3600),
            long_lifetimes: false,
            identity_key: None,
        }
    }
}

/// A workload identity provider: whose tokens are accepted, under which name.
#[derive(Clone, Debug)]
pub struct Provider {
    /// The `audience` of an exchange, such as
    /// `//iam.googleapis.com/projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER`.
    pub name: String,
    /// The `iss` its tokens must have.
    pub issuer: String,
    /// The issuer's published keys.
    pub keys: KeySet,
    /// The `aud` values its tokens may have, of which one must be in the token. Empty: the provider's name, with or
    /// without `https:` in front, as Google does.
    pub audiences: BTreeSet<String>,
}

/// Who may become which service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impersonation {
    /// Only these pairs, as in the real one: each a subject (`system:serviceaccount:NS:NAME`) and an e-mail.
    Only(BTreeSet<(String, String)>),
    /// Anyone may become anything.
    Everyone,
}

impl Default for Impersonation {
    /// Nobody.
    fn default() -> Self {
        Self::Only(BTreeSet::new())
    }
}

impl Impersonation {
    /// Whether `subject` may become `email`.
    pub fn allows(&self, subject: &str, email: &str) -> bool {
        match self {
            Self::Everyone => true,
            Self::Only(pairs) => pairs.contains(&(subject.to_owned(), email.to_owned())),
        }
    }

    /// The pairs of namespace, ServiceAccount and e-mail.
    pub fn only<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str, &'p str)>) -> Self {
        let subject = |namespace, name| format!("system:serviceaccount:{namespace}:{name}");
        Self::Only(pairs.into_iter().map(|(ns, name, email)| (subject(ns, name), email.to_owned())).collect())
    }
}

/// What a request asks for. Faults and counts are kept by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// `POST /v1/token`: a Kubernetes token for a federated access token.
    Exchange,
    /// `POST …:generateAccessToken`.
    AccessToken,
    /// `POST …:generateIdToken`.
    IdToken,
    /// `GET /oauth2/v3/certs`: the keys of the identity tokens.
    Keys,
    /// `GET /tokeninfo`: whose an access token is.
    TokenInfo,
    /// The metadata server.
    Metadata,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Self; 6] =
        [Self::Exchange, Self::AccessToken, Self::IdToken, Self::Keys, Self::TokenInfo, Self::Metadata];

    /// Those that [`Running::set_faults`] breaks. Not the two at which a checker asks for the truth.
    pub const FAULTY: [Self; 4] = [Self::Exchange, Self::AccessToken, Self::IdToken, Self::Metadata];

    /// Its name in flags and in `/emulator/counts`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::AccessToken => "access-token",
            Self::IdToken => "id-token",
            Self::Keys => "keys",
            Self::TokenInfo => "tokeninfo",
            Self::Metadata => "metadata",
        }
    }
}

/// A running emulator. Dropping it closes the listener and every connection.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    cloud: Arc<Cloud>,
    server: crate::server::Server,
}

/// Binds and serves on the current runtime.
///
/// # Errors
/// The address cannot be bound, or there is no randomness for a key.
pub async fn start(options: Options, clock: Clock) -> io::Result<Running> {
    let listener = tokio::net::TcpListener::bind(options.listen).await?;
    let address = listener.local_addr()?;
    let cloud = Arc::new(Cloud::new(options, clock).map_err(io::Error::other)?);
    let server = crate::server::Server::start(listener, cloud.clone());
    Ok(Running { address, cloud, server })
}

impl Running {
    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS:PORT`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks (or mends) the exchange, both kinds of impersonation and the metadata server from the next request on.
    pub fn set_faults(&self, faults: &Faults) {
        for endpoint in Endpoint::FAULTY {
            self.set_faults_on(endpoint, faults.clone());
        }
    }

    /// Breaks (or mends) one endpoint from the next request on.
    pub fn set_faults_on(&self, endpoint: Endpoint, faults: Faults) {
        self.cloud.set_faults(endpoint, faults);
    }

    /// Changes [`Options::token_lifetime`] for the tokens to come.
    pub fn set_token_lifetime(&self, lifetime: Duration) {
        self.cloud.set_token_lifetime(lifetime);
    }

    /// Changes who may become whom.
    pub fn set_impersonation(&self, impersonation: Impersonation) {
        self.cloud.set_impersonation(impersonation);
    }

    /// Sets an attribute of the machine, as an operator does: waiters for a change are answered.
    pub fn set_attribute(&self, name: &str, value: &str) {
        self.cloud.set_attribute(name, value);
    }

    /// What happened at an endpoint so far.
    pub fn counts(&self, endpoint: Endpoint) -> Counts {
        self.cloud.counts(endpoint)
    }

    /// Successful exchanges by Kubernetes subject.
    pub fn exchanges(&self) -> BTreeMap<String, u64> {
        self.cloud.exchanges()
    }

    /// Tokens issued by Kubernetes subject and impersonated service account.
    pub fn impersonations(&self) -> BTreeMap<(String, String), u64> {
        self.cloud.impersonations()
    }

    /// What an access token of this emulator says, once its authenticity and its expiry are checked.
    pub fn access_token(&self, token: &str) -> Option<AccessToken> {
        self.cloud.access_token(token)
    }

    /// Closes the listener and every connection, and returns when they are closed.
    pub async fn shutdown(self) {
        self.server.shutdown().await;
    }
}
