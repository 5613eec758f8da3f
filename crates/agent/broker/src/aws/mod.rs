//! Exchanges a Kubernetes token, or a request signed by the node, for a session of an AWS role.
//!
//! Each principal uses one of three calls (see `principal`): STS's `AssumeRoleWithWebIdentity` with the pod's token, STS's
//! `AssumeRole` signed with the node's keys, or EKS Auth's `AssumeRoleForPodIdentity`. With the first two calls, the agent can
//! assume an intermediate role before the pod's role. Formats: botocore `botocore/data/sts/2011-06-15/service-2.json` and
//! `botocore/data/eks-auth/2023-11-26/service-2.json`. Every response has a size limit and is parsed into a type. An unexpected
//! response is an [`ExchangeError`] that names the call. The agent caches an intermediate session only if the node's own keys
//! signed the call for it (see `node_key_cache`).
//!
//! This module does not know pods, requests of pods or annotations of pods. The crate `clouds` decides which pod gets which role.

mod assume_role;
mod config_error;
mod credential;
mod endpoint;
#[cfg(feature = "rehearsal")]
pub mod fuzz_api;
mod imds;
mod learned_session_limits;
mod node_credentials;
mod node_key_cache;
mod node_signing_keys;
mod principal;
mod refresh_policy;
mod refusal;
mod response_parser;
mod sign;
mod validated_names;
mod xml;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use seawall_core::pod::SubjectTokens;
use seawall_core::{Clock, Secret};

use crate::credential_exchange::{ExchangeFuture, IssuedCredential, TokenExchange};
use crate::failure::ExchangeError;
use crate::https::{self, HttpsClient};
use assume_role::{AssumedSession, AwsApiClient, EksAuthRequest, ServiceEndpoint};
use learned_session_limits::{LearnedSessionLimits, next_shorter_duration};
use node_credentials::NodeKeyProvider;
use node_key_cache::{KeyOwner, NodeKeyCache};
use refusal::AwsCallError;

pub use config_error::AwsConfigError;
pub use credential::{AwsCredential, AwsCredentialError, AwsCredentialParts};
pub use endpoint::{StsEndpointKind, partition};
pub use node_signing_keys::{AwsAccessKeys, NodeKeySource};
pub use principal::{AssumeMethod, AwsPrincipal, KeySignedRole, RoleAccess, TokenRole};
pub use refresh_policy::{BROKER_SETTINGS, LIFETIME_FLOOR};
pub use validated_names::{
    ClusterName, ExternalId, NameError, Region, RoleArn, SessionDuration, SessionName, SessionTag,
    SessionTags,
};

/// The broker for AWS credentials.
pub type AwsBroker = crate::Broker<AwsExchange>;

/// A pod's client for AWS credentials.
pub type AwsPodLeaseClient = crate::PodLeaseClient<AwsExchange>;

/// A pod that is allowed to get AWS credentials, and the pod's access to a role, if the pod has a role.
pub type AwsPodClientInput = crate::PodCredentialsSpec<Option<Arc<RoleAccess>>>;

/// The state of one principal, as operators see it.
pub type AwsPrincipalDebugView = crate::PrincipalView<AwsPrincipal>;

/// The default `aud` of tokens for [`AssumeMethod::WebIdentity`], as in IRSA.
pub const WEB_IDENTITY_AUDIENCE: &str = "sts.amazonaws.com";

/// The `aud` of tokens for EKS Auth, which accepts no other `aud` (eks-pod-identity-agent, README).
pub const POD_IDENTITY_AUDIENCE: &str = "pods.eks.amazonaws.com";

/// The configuration of the exchange with AWS. Settings that differ between roles are in [`RoleAccess`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwsExchangeConfig {
    /// The source of the signing keys, for calls that need a signature.
    pub node_key_source: Option<NodeKeySource>,
    /// The URL to use instead of the regional STS URL: https, or http on loopback, without a final slash.
    pub sts_url: Option<String>,
    /// The URL to use instead of the regional EKS Auth URL: https, or http on loopback, without a final slash.
    pub eks_auth_url: Option<String>,
    /// Additional root certificates in PEM format. The public roots are trusted, too.
    pub extra_roots: Option<String>,
    /// The proxy for STS and EKS Auth (`http://HOST:PORT`). The agent sends CONNECT requests to the proxy.
    pub proxy: Option<String>,
}

/// The longest session of a role that another role assumes (STS API reference, `AssumeRole`).
const CHAINED: Duration = Duration::from_secs(3600);

/// The [`TokenExchange`] for AWS. It calls STS and EKS Auth.
#[derive(Debug)]
pub struct AwsExchange {
    sts_url: Option<String>,
    eks_auth_url: Option<String>,
    https: HttpsClient,
    own: NodeKeyProvider,
    clock: Clock,
    signing_key_cache: NodeKeyCache,
    session_limits: LearnedSessionLimits,
}

impl AwsExchange {
    /// Returns an exchange. The exchange opens its first connection at the first call.
    ///
    /// # Errors
    /// A URL of STS or EKS Auth is not https (or http on loopback), or the metadata URL is not the URL of a metadata service. Or
    /// the root certificates or the proxy are unusable.
    pub fn new(config: AwsExchangeConfig, clock: Clock) -> Result<Self, AwsConfigError> {
        let urls: Vec<&str> =
            [&config.sts_url, &config.eks_auth_url].into_iter().flatten().map(String::as_str).collect();
        urls.iter().try_for_each(|url| https::require_https_unless_loopback(url))?;
        let https = HttpsClient::new(config.extra_roots.as_deref(), config.proxy.as_deref())?;
        https.check_proxy_for(&urls)?;
        let AwsExchangeConfig { node_key_source: keys, sts_url, eks_auth_url, .. } = config;
        let (shelf, longest) = (NodeKeyCache::default(), LearnedSessionLimits::default());
        Ok(Self {
            sts_url,
            eks_auth_url,
            https,
            own: NodeKeyProvider::new(keys)?,
            clock,
            signing_key_cache: shelf,
            session_limits: longest,
        })
    }

    async fn chain(
        &self,
        AwsPrincipal { workload, role_access: access }: &AwsPrincipal,
        subject: &dyn SubjectTokens,
    ) -> Result<IssuedCredential<AwsCredential>, ExchangeError> {
        match &access.method {
            AssumeMethod::WebIdentity { audience, first, then } => {
                let token = subject.subject_token(audience).await?;
                let proof = RoleProof::Token(first, &token);
                let Some(role) = then else {
                    return Ok(self.session(access, proof, access.session_duration.get()).await?);
                };
                let first = self.session(access, proof, CHAINED).await?;
                Ok(self.for_keys(access, role, &AwsAccessKeys::from_credential(&first.credential)).await?)
            }
            AssumeMethod::NodeKeys { base, role } => {
                self.with_node_keys(access, base.as_ref(), SignedCall::Role(role)).await
            }
            AssumeMethod::PodIdentity { cluster, .. } => {
                let token = &subject.subject_token(POD_IDENTITY_AUDIENCE).await?;
                let shown = EksAuthRequest { cluster, token, workload };
                self.with_node_keys(access, None, SignedCall::PodIdentity(shown)).await
            }
        }
    }

    /// Makes a call that is signed with the node's keys. If AWS rejects the keys, the function fetches newer keys and tries once
    /// more. AWS may have revoked the cached keys of the instance or of a base role before the keys expired.
    async fn with_node_keys(
        &self,
        access: &RoleAccess,
        base: Option<&KeySignedRole>,
        ask: SignedCall<'_>,
    ) -> Result<IssuedCredential<AwsCredential>, ExchangeError> {
        let keys = self.node_keys(access, base).await?;
        match self.signed(access, &keys, ask).await {
            Err(AwsCallError::KeysRejected(_)) => {
                self.forget(access, base, &keys).await;
                let keys = self.node_keys(access, base).await?;
                Ok(self.signed(access, &keys, ask).await?)
            }
            result => Ok(result?),
        }
    }

    async fn signed(
        &self,
        access: &RoleAccess,
        keys: &AwsAccessKeys,
        ask: SignedCall<'_>,
    ) -> Result<IssuedCredential<AwsCredential>, AwsCallError> {
        match ask {
            SignedCall::Role(role) => self.for_keys(access, role, keys).await,
            SignedCall::PodIdentity(shown) => {
                let url = self.eks_auth_url.as_deref().map(Cow::Borrowed);
                let url = url.unwrap_or_else(|| endpoint::eks_auth_url(&access.region).into());
                let place = ServiceEndpoint { url: &url, region: access.region.as_str() };
                let AssumedSession { credential, lifetime } =
                    self.api_client().assume_for_pod_identity(place, shown, keys).await?;
                Ok(IssuedCredential::new(credential, lifetime))
            }
        }
    }

    /// Gets a session of the duration `wanted`. If the role does not allow that duration, the function tries shorter durations.
    async fn session(
        &self,
        access: &RoleAccess,
        proof: RoleProof<'_>,
        wanted: Duration,
    ) -> Result<IssuedCredential<AwsCredential>, AwsCallError> {
        let (url, region) = self.sts(access);
        let place = ServiceEndpoint { url: &url, region };
        let role = proof.role();
        let mut length = self.session_limits.clamp(role, wanted, self.clock.now());
        let mut is_cut = false;
        loop {
            match proof.ask(self.api_client(), place, length).await {
                Ok(session) => return Ok(self.granted(role, session, wanted, length, is_cut)),
                Err(AwsCallError::SessionTooLong(error)) => {
                    length = next_shorter_duration(length).ok_or(error)?;
                }
                Err(refused) => return Err(refused),
            }
            is_cut = true;
        }
    }

    async fn for_keys(
        &self,
        access: &RoleAccess,
        role: &KeySignedRole,
        keys: &AwsAccessKeys,
    ) -> Result<IssuedCredential<AwsCredential>, AwsCallError> {
        let wanted = access.session_duration.get();
        let wanted = if keys.are_session_keys() { wanted.min(CHAINED) } else { wanted };
        self.session(access, RoleProof::Keys(role, keys), wanted).await
    }

    fn granted(
        &self,
        role: &RoleArn,
        session: AssumedSession,
        wanted: Duration,
        length: Duration,
        is_cut: bool,
    ) -> IssuedCredential<AwsCredential> {
        if is_cut {
            self.session_limits.record_longest(role, length, self.clock.now());
        }
        let AssumedSession { credential, lifetime } = session;
        IssuedCredential { credential, lifetime, shortened_from: is_cut.then_some(wanted) }
    }

    /// Returns the keys that sign calls for principals: the node's own keys, or the keys of the base role.
    ///
    /// # Errors
    /// Each error is marked as a node error, because a pod's owner cannot fix it.
    async fn node_keys(
        &self,
        access: &RoleAccess,
        base: Option<&KeySignedRole>,
    ) -> Result<Arc<AwsAccessKeys>, ExchangeError> {
        let keys = match base {
            Some(base) => self.base_keys(access, base).await,
            None => self.own_keys().await,
        };
        keys.map_err(ExchangeError::into_node_error)
    }

    async fn base_keys(
        &self,
        access: &RoleAccess,
        base: &KeySignedRole,
    ) -> Result<Arc<AwsAccessKeys>, ExchangeError> {
        let fetch = async {
            let own = self.own_keys().await?;
            let (url, region) = self.sts(access);
            let place = ServiceEndpoint { url: &url, region };
            let session = match self.api_client().assume_role(place, base, &own, CHAINED).await {
                Err(AwsCallError::KeysRejected(error)) => {
                    self.signing_key_cache.forget_rejected(&KeyOwner::Instance, &own).await;
                    Err(error)
                }
                result => result.map_err(ExchangeError::from),
            };
            let session = session.map_err(|error| ExchangeError { step: OF_THE_BASE, ..error })?;
            Ok((AwsAccessKeys::from_credential(&session.credential), session.lifetime))
        };
        self.signing_key_cache.get_or_fetch(&base_role_key_owner(access, base), &self.clock, fetch).await
    }

    async fn own_keys(&self) -> Result<Arc<AwsAccessKeys>, ExchangeError> {
        self.own.keys(&self.signing_key_cache, &self.clock).await
    }

    async fn forget(&self, access: &RoleAccess, base: Option<&KeySignedRole>, refused: &AwsAccessKeys) {
        let whose = base.map_or(KeyOwner::Instance, |base| base_role_key_owner(access, base));
        self.signing_key_cache.forget_rejected(&whose, refused).await;
    }

    /// Returns the STS URL for a principal, and the region for its signatures.
    fn sts<'a>(&'a self, access: &'a RoleAccess) -> (Cow<'a, str>, &'a str) {
        let (url, region) = endpoint::sts_url_and_region(&access.region, access.sts_endpoint_kind);
        (self.sts_url.as_deref().map_or(Cow::Owned(url), Cow::Borrowed), region)
    }

    fn api_client(&self) -> AwsApiClient<'_> {
        AwsApiClient { https: &self.https, clock: &self.clock }
    }
}

/// The name of the call by which the node assumes the base role. The base role is allowed to assume the pods' roles.
const OF_THE_BASE: &str = "AssumeRole of the base role";

/// A call that is signed with the node's keys.
#[derive(Clone, Copy)]
enum SignedCall<'a> {
    Role(&'a KeySignedRole),
    PodIdentity(EksAuthRequest<'a>),
}

/// A role, and the token or the keys with which the agent assumes it.
#[derive(Clone, Copy)]
enum RoleProof<'a> {
    Token(&'a TokenRole, &'a Secret<String>),
    Keys(&'a KeySignedRole, &'a AwsAccessKeys),
}

impl<'a> RoleProof<'a> {
    fn role(self) -> &'a RoleArn {
        match self {
            Self::Token(role, _) => &role.arn,
            Self::Keys(role, _) => &role.arn,
        }
    }

    async fn ask(
        self,
        caller: AwsApiClient<'_>,
        place: ServiceEndpoint<'_>,
        length: Duration,
    ) -> Result<AssumedSession, AwsCallError> {
        match self {
            Self::Token(role, token) => caller.assume_with_web_identity(place, role, token, length).await,
            Self::Keys(role, keys) => caller.assume_role(place, role, keys, length).await,
        }
    }
}

fn base_role_key_owner(access: &RoleAccess, base: &KeySignedRole) -> KeyOwner {
    KeyOwner::BaseRole(base.clone(), access.region.clone(), access.sts_endpoint_kind)
}

impl TokenExchange for AwsExchange {
    const CLOUD: &'static str = "aws";
    type Principal = AwsPrincipal;
    type Credential = AwsCredential;

    fn issue<'a>(
        &'a self,
        principal: &'a AwsPrincipal,
        subject: &'a dyn SubjectTokens,
    ) -> ExchangeFuture<'a, AwsCredential> {
        Box::pin(self.chain(principal, subject))
    }
}
