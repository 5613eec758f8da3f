//! AWS: a Kubernetes token, or a signature of the node's, becomes a role's session.
//!
//! Three ways, one of which each principal names (`principal`): STS's `AssumeRoleWithWebIdentity` with the pod's own token, its
//! `AssumeRole` under keys of the node's, and EKS Auth's `AssumeRoleForPodIdentity`; the first two may lead through a role that is
//! assumed before. Formats: botocore `botocore/data/sts/2011-06-15/service-2.json` and
//! `botocore/data/eks-auth/2023-11-26/service-2.json`. Every answer is bounded and read as a type; what is not as expected is an
//! [`ExchangeError`] that says which call. A session that stands between is kept only if the node itself proved it (`signing_key_cache`).
//!
//! Nothing here knows a pod, a request of one, or an annotation: the agent's room says who may have what.

mod assume_role;
mod config_error;
mod credential;
mod endpoint;
#[cfg(feature = "rehearsal")]
pub mod fuzz_api;
mod imds;
mod keys;
mod names;
mod node_credentials;
mod principal;
mod refresh_policy;
mod refusal;
mod response_parser;
mod session_limits;
mod sign;
mod signing_key_cache;
mod xml;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use seawall_core::pod::SubjectTokens;
use seawall_core::{Clock, Secret};

use crate::exchange::{Exchange, ExchangeFuture, Issued};
use crate::failure::ExchangeError;
use crate::https::{self, Https};
use assume_role::{Caller, Place, Session, Shown};
use node_credentials::Own;
use refusal::Refused;
use session_limits::{Longest, shorter};
use signing_key_cache::{Shelf, Whose};

pub use config_error::ConfigError;
pub use credential::{Credential, CredentialError, Parts};
pub use endpoint::{Sts, partition};
pub use keys::{KeySource, Keys};
pub use names::{ClusterName, ExternalId, NameError, Region, RoleArn, SessionLength, SessionName, Tag, Tags};
pub use principal::{Access, Principal, Role, TokenRole, Way};
pub use refresh_policy::{FLOOR, SETTINGS};

/// The broker of AWS's credentials.
pub type Broker = crate::Broker<AwsExchange>;

/// A pod's way to AWS's credentials.
pub type Holder = crate::Holder<AwsExchange>;

/// A pod that may hold AWS's credentials, and how it comes by its role, if it has one.
pub type HolderSpec = crate::HolderSpec<Option<Arc<Access>>>;

/// One principal, as operators may see it.
pub type PrincipalView = crate::PrincipalView<Principal>;

/// The `aud` of tokens for [`Way::WebIdentity`], if nothing else is said (IRSA's default).
pub const WEB_IDENTITY_AUDIENCE: &str = "sts.amazonaws.com";

/// The `aud` of tokens for EKS Auth, which takes no other (eks-pod-identity-agent, README).
pub const POD_IDENTITY_AUDIENCE: &str = "pods.eks.amazonaws.com";

/// Where and as what to ask. What differs from role to role is in [`Access`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Keys that sign, for the ways that need some.
    pub keys: Option<KeySource>,
    /// STS in the place of every region's: https, or http on loopback, without a slash at the end.
    pub sts_url: Option<String>,
    /// EKS Auth in the place of every region's, likewise.
    pub eks_auth_url: Option<String>,
    /// Certificates in PEM, trusted beside the public roots.
    pub more_roots: Option<String>,
    /// `http://HOST:PORT` of a proxy through which STS and EKS Auth are reached, by CONNECT.
    pub proxy: Option<String>,
}

/// The longest session of a role that is assumed from another (STS API reference, `AssumeRole`).
const CHAINED: Duration = Duration::from_secs(3600);

/// STS and EKS Auth.
#[derive(Debug)]
pub struct AwsExchange {
    sts_url: Option<String>,
    eks_auth_url: Option<String>,
    https: Https,
    own: Own,
    clock: Clock,
    shelf: Shelf,
    longest: Longest,
}

impl AwsExchange {
    /// A client; connects when first asked.
    ///
    /// # Errors
    /// A URL that is not https (or http on loopback), or no metadata service's.
    pub fn new(config: Config, clock: Clock) -> Result<Self, ConfigError> {
        let urls: Vec<&str> =
            [&config.sts_url, &config.eks_auth_url].into_iter().flatten().map(String::as_str).collect();
        urls.iter().try_for_each(|url| https::check_url(url))?;
        let https = Https::new(config.more_roots.as_deref(), config.proxy.as_deref())?;
        https.check_way_to(&urls)?;
        let Config { keys, sts_url, eks_auth_url, .. } = config;
        let (shelf, longest) = (Shelf::default(), Longest::default());
        Ok(Self { sts_url, eks_auth_url, https, own: Own::new(keys)?, clock, shelf, longest })
    }

    async fn chain(
        &self,
        Principal { workload, access }: &Principal,
        subject: &dyn SubjectTokens,
    ) -> Result<Issued<Credential>, ExchangeError> {
        match &access.way {
            Way::WebIdentity { audience, first, then } => {
                let token = subject.subject_token(audience).await?;
                let proof = Proven::Token(first, &token);
                let Some(role) = then else {
                    return Ok(self.session(access, proof, access.length.get()).await?);
                };
                let first = self.session(access, proof, CHAINED).await?;
                Ok(self.for_keys(access, role, &Keys::of(&first.credential)).await?)
            }
            Way::Keys { base, role } => self.with_node_keys(access, base.as_ref(), Ask::Role(role)).await,
            Way::PodIdentity { cluster, .. } => {
                let token = &subject.subject_token(POD_IDENTITY_AUDIENCE).await?;
                let shown = Shown { cluster, token, workload };
                self.with_node_keys(access, None, Ask::PodIdentity(shown)).await
            }
        }
    }

    /// Signs with the node's keys, and once more with newer ones if they are refused: instance keys and base sessions are kept, and may
    /// be revoked meanwhile.
    async fn with_node_keys(
        &self,
        access: &Access,
        base: Option<&Role>,
        ask: Ask<'_>,
    ) -> Result<Issued<Credential>, ExchangeError> {
        let keys = self.node_keys(access, base).await?;
        match self.signed(access, &keys, ask).await {
            Err(Refused::Keys(_)) => {
                self.forget(access, base, &keys).await;
                let keys = self.node_keys(access, base).await?;
                Ok(self.signed(access, &keys, ask).await?)
            }
            result => Ok(result?),
        }
    }

    async fn signed(
        &self,
        access: &Access,
        keys: &Keys,
        ask: Ask<'_>,
    ) -> Result<Issued<Credential>, Refused> {
        match ask {
            Ask::Role(role) => self.for_keys(access, role, keys).await,
            Ask::PodIdentity(shown) => {
                let url = self.eks_auth_url.as_deref().map(Cow::Borrowed);
                let url = url.unwrap_or_else(|| endpoint::eks_auth(&access.region).into());
                let place = Place { url: &url, region: access.region.as_str() };
                let Session { credential, lifetime } = self.caller().pod_identity(place, shown, keys).await?;
                Ok(Issued::new(credential, lifetime))
            }
        }
    }

    /// A session of the length that the role allows.
    async fn session(
        &self,
        access: &Access,
        proof: Proven<'_>,
        wanted: Duration,
    ) -> Result<Issued<Credential>, Refused> {
        let (url, region) = self.sts(access);
        let place = Place { url: &url, region };
        let role = proof.role();
        let mut length = self.longest.to_ask(role, wanted, self.clock.now());
        let mut is_cut = false;
        loop {
            match proof.ask(self.caller(), place, length).await {
                Ok(session) => return Ok(self.granted(role, session, wanted, length, is_cut)),
                Err(Refused::TooLong(error)) => length = shorter(length).ok_or(error)?,
                Err(refused) => return Err(refused),
            }
            is_cut = true;
        }
    }

    async fn for_keys(
        &self,
        access: &Access,
        role: &Role,
        keys: &Keys,
    ) -> Result<Issued<Credential>, Refused> {
        let wanted = access.length.get();
        let wanted = if keys.are_of_a_session() { wanted.min(CHAINED) } else { wanted };
        self.session(access, Proven::Keys(role, keys), wanted).await
    }

    fn granted(
        &self,
        role: &RoleArn,
        session: Session,
        wanted: Duration,
        length: Duration,
        is_cut: bool,
    ) -> Issued<Credential> {
        if is_cut {
            self.longest.learn(role, length, self.clock.now());
        }
        let Session { credential, lifetime } = session;
        Issued { credential, lifetime, cut_from: is_cut.then_some(wanted) }
    }

    /// The keys that sign for principals: the node's own, or those of the base role that they assume.
    ///
    /// # Errors
    /// All are the node's own: a pod's owner cannot mend them.
    async fn node_keys(&self, access: &Access, base: Option<&Role>) -> Result<Arc<Keys>, ExchangeError> {
        let keys = match base {
            Some(base) => self.base_keys(access, base).await,
            None => self.own_keys().await,
        };
        keys.map_err(ExchangeError::of_the_node)
    }

    async fn base_keys(&self, access: &Access, base: &Role) -> Result<Arc<Keys>, ExchangeError> {
        let fetch = async {
            let own = self.own_keys().await?;
            let (url, region) = self.sts(access);
            let place = Place { url: &url, region };
            let session = match self.caller().assume(place, base, &own, CHAINED).await {
                Err(Refused::Keys(error)) => {
                    self.shelf.forget(&Whose::Instance, &own).await;
                    Err(error)
                }
                result => result.map_err(ExchangeError::from),
            };
            let session = session.map_err(|error| ExchangeError { step: OF_THE_BASE, ..error })?;
            Ok((Keys::of(&session.credential), session.lifetime))
        };
        self.shelf.keys(&whose(access, base), &self.clock, fetch).await
    }

    async fn own_keys(&self) -> Result<Arc<Keys>, ExchangeError> {
        self.own.keys(&self.shelf, &self.clock).await
    }

    async fn forget(&self, access: &Access, base: Option<&Role>, refused: &Keys) {
        let whose = base.map_or(Whose::Instance, |base| whose(access, base));
        self.shelf.forget(&whose, refused).await;
    }

    /// STS for a principal, and the region that signatures name.
    fn sts<'a>(&'a self, access: &'a Access) -> (Cow<'a, str>, &'a str) {
        let (url, region) = endpoint::sts(&access.region, access.sts);
        (self.sts_url.as_deref().map_or(Cow::Owned(url), Cow::Borrowed), region)
    }

    fn caller(&self) -> Caller<'_> {
        Caller { https: &self.https, clock: &self.clock }
    }
}

/// What the call is called by which the node takes the role that alone may take the others.
const OF_THE_BASE: &str = "AssumeRole of the base role";

/// What is asked for under the node's signature.
#[derive(Clone, Copy)]
enum Ask<'a> {
    Role(&'a Role),
    PodIdentity(Shown<'a>),
}

/// A role with what proves that it may be had.
#[derive(Clone, Copy)]
enum Proven<'a> {
    Token(&'a TokenRole, &'a Secret<String>),
    Keys(&'a Role, &'a Keys),
}

impl<'a> Proven<'a> {
    fn role(self) -> &'a RoleArn {
        match self {
            Self::Token(role, _) => &role.arn,
            Self::Keys(role, _) => &role.arn,
        }
    }

    async fn ask(self, caller: Caller<'_>, place: Place<'_>, length: Duration) -> Result<Session, Refused> {
        match self {
            Self::Token(role, token) => caller.web_identity(place, role, token, length).await,
            Self::Keys(role, keys) => caller.assume(place, role, keys, length).await,
        }
    }
}

fn whose(access: &Access, base: &Role) -> Whose {
    Whose::Base(base.clone(), access.region.clone(), access.sts)
}

impl Exchange for AwsExchange {
    const CLOUD: &'static str = "aws";
    type Principal = Principal;
    type Credential = Credential;

    fn issue<'a>(
        &'a self,
        principal: &'a Principal,
        subject: &'a dyn SubjectTokens,
    ) -> ExchangeFuture<'a, Credential> {
        Box::pin(self.chain(principal, subject))
    }
}
