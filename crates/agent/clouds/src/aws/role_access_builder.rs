//! The chain of roles through which the agent assumes a pod's role.
//!
//! The module combines the policy's decision for a pod with the configuration. The result is a [`RoleAccess`], with which the
//! broker fetches credentials.

use std::sync::Arc;

use anyhow::Context;
use seawall_broker::aws::{
    AssumeMethod, AwsExchangeConfig, KeySignedRole, NodeKeySource, Region, RoleAccess, RoleArn,
    SessionDuration, SessionName, SessionTags, StsEndpointKind, TokenRole,
};
use seawall_core::Pod;

use super::config::{BaseCredentialSource, RoleSessionConfig};
use super::policy;
use super::policy::{AllowedRole, RoleGrant};

/// The session name for a base role. The session belongs to the agent, not to a pod.
const AGENT: &str = "seawall-agent";

/// Returns the part of the broker's configuration that all pods share, without the root certificates of `aws.caFile`.
pub(super) fn exchange_config(exchange: &RoleSessionConfig, metadata: &str) -> AwsExchangeConfig {
    let keys = match &exchange.base_credentials.source {
        BaseCredentialSource::InstanceRole => Some(NodeKeySource::Instance { url: metadata.to_owned() }),
        BaseCredentialSource::File { path, profile } => {
            Some(NodeKeySource::File { path: path.clone(), profile: profile.clone() })
        }
        BaseCredentialSource::PodToken { .. } => None,
    };
    let (sts_url, eks_auth_url) = (exchange.sts_url.clone(), exchange.eks_auth_url.clone());
    AwsExchangeConfig {
        node_key_source: keys,
        sts_url,
        eks_auth_url,
        proxy: exchange.proxy.clone(),
        extra_roots: None,
    }
}

/// Converts each [`AllowedRole`] to a [`RoleAccess`], with which the broker fetches the role's credentials.
#[derive(Debug)]
pub(super) struct RoleAccessBuilder {
    region: Region,
    sts: StsEndpointKind,
    length: SessionDuration,
    base: BaseIdentity,
}

/// The identity with which the agent assumes the roles of pods.
#[derive(Debug)]
enum BaseIdentity {
    /// The agent itself. If there is a base role, the agent assumes the base role first.
    Agent(Option<KeySignedRole>),
    /// The pod's identity. The pod's own token for this audience first assumes this role.
    Pod { audience: Arc<str>, role: RoleArn },
}

impl RoleAccessBuilder {
    /// Creates a builder for this configuration.
    ///
    /// # Errors
    /// The broker rejects a region that the configuration accepted.
    pub(super) fn new(exchange: &RoleSessionConfig) -> anyhow::Result<Self> {
        let role = exchange.base_credentials.role.as_ref().map(|role| role.arn().clone());
        let base = match (&exchange.base_credentials.source, role) {
            (BaseCredentialSource::PodToken { audience }, Some(role)) => {
                BaseIdentity::Pod { audience: audience.as_str().into(), role }
            }
            (_, role) => BaseIdentity::Agent(role.map(agents)),
        };
        let region = Region::parse(&exchange.region).context("aws.region")?;
        Ok(Self { region, sts: exchange.sts_endpoint, length: exchange.duration, base })
    }

    /// Returns the [`RoleAccess`] with which the broker fetches credentials of the pod's allowed role.
    pub(super) fn build(&self, pod: &Pod, allowed: &AllowedRole) -> RoleAccess {
        let way = match allowed {
            AllowedRole::Granted(grant) => self.named(grant),
            AllowedRole::Associated(cluster) => {
                AssumeMethod::PodIdentity { cluster: cluster.clone(), pod: pod.uid.clone() }
            }
        };
        RoleAccess {
            method: way,
            region: self.region.clone(),
            sts_endpoint_kind: self.sts,
            session_duration: self.length,
        }
    }

    fn named(&self, grant: &RoleGrant) -> AssumeMethod {
        let session_name = grant.session_name.clone();
        match &grant.method {
            policy::GrantMethod::WebIdentity { audience } => {
                let first = TokenRole { arn: grant.role.arn().clone(), session_name };
                AssumeMethod::WebIdentity { audience: audience.clone(), first, then: None }
            }
            policy::GrantMethod::Assume { external_id, tags } => {
                let (external_id, tags) = (external_id.clone(), tags.clone());
                self.assume(KeySignedRole { arn: grant.role.arn().clone(), session_name, external_id, tags })
            }
        }
    }

    fn assume(&self, role: KeySignedRole) -> AssumeMethod {
        match &self.base {
            BaseIdentity::Agent(base) => AssumeMethod::NodeKeys { base: base.clone(), role },
            BaseIdentity::Pod { audience, role: first } => {
                let first = TokenRole { arn: first.clone(), session_name: role.session_name.clone() };
                AssumeMethod::WebIdentity { audience: audience.clone(), first, then: Some(role) }
            }
        }
    }
}

/// Returns the base role that the agent assumes before it assumes the roles of pods.
fn agents(arn: RoleArn) -> KeySignedRole {
    KeySignedRole {
        arn,
        session_name: SessionName::sanitized(AGENT),
        external_id: None,
        tags: SessionTags::default(),
    }
}
