//! How a granted role is taken: from what policy says of a pod and the configuration of all to what the broker is asked with.

use std::sync::Arc;

use anyhow::Context;
use seawall_broker::aws::{
    AssumeMethod, AwsExchangeConfig, KeySignedRole, KeySource, Region, RoleAccess, RoleArn, SessionDuration,
    SessionName, SessionTags, StsEndpointKind, TokenRole,
};
use seawall_core::Pod;

use super::config::{BaseCredentialSource, RoleSessionConfig};
use super::policy;
use super::policy::{AllowedRole, RoleGrant};

/// What a base role's session is called: it is the agent's and no pod's.
const AGENT: &str = "seawall-agent";

/// What the broker needs to know that is the same for all, without the roots of a file.
pub(super) fn config(exchange: &RoleSessionConfig, metadata: &str) -> AwsExchangeConfig {
    let keys = match &exchange.base.from {
        BaseCredentialSource::Node => Some(KeySource::Instance { url: metadata.to_owned() }),
        BaseCredentialSource::File { path, profile } => {
            Some(KeySource::File { path: path.clone(), profile: profile.clone() })
        }
        BaseCredentialSource::Pod { .. } => None,
    };
    let (sts_url, eks_auth_url) = (exchange.sts_url.clone(), exchange.eks_auth_url.clone());
    AwsExchangeConfig { keys, sts_url, eks_auth_url, proxy: exchange.proxy.clone(), extra_roots: None }
}

/// Makes accesses of grants.
#[derive(Debug)]
pub(super) struct RoleAccessBuilder {
    region: Region,
    sts: StsEndpointKind,
    length: SessionDuration,
    base: BaseIdentity,
}

/// As whom roles are taken that pods name.
#[derive(Debug)]
enum BaseIdentity {
    /// The agent, whose role this is if it takes one first.
    Agent(Option<KeySignedRole>),
    /// The pod with this role, taken by its own token for the audience.
    Pod { audience: Arc<str>, role: RoleArn },
}

impl RoleAccessBuilder {
    /// Of this configuration.
    ///
    /// # Errors
    /// A region that the configuration took for good is none to the broker.
    pub(super) fn new(exchange: &RoleSessionConfig) -> anyhow::Result<Self> {
        let role = exchange.base.role.as_ref().map(|role| role.arn().clone());
        let base = match (&exchange.base.from, role) {
            (BaseCredentialSource::Pod { audience }, Some(role)) => {
                BaseIdentity::Pod { audience: audience.as_str().into(), role }
            }
            (_, role) => BaseIdentity::Agent(role.map(agents)),
        };
        let region = Region::parse(&exchange.region).context("aws.region")?;
        Ok(Self { region, sts: exchange.sts, length: exchange.length, base })
    }

    /// How this pod makes use of what it may have.
    pub(super) fn build(&self, pod: &Pod, allowed: &AllowedRole) -> RoleAccess {
        let way = match allowed {
            AllowedRole::Granted(grant) => self.named(grant),
            AllowedRole::Associated(cluster) => {
                AssumeMethod::PodIdentity { cluster: cluster.clone(), pod: pod.uid.clone() }
            }
        };
        RoleAccess { method: way, region: self.region.clone(), sts: self.sts, duration: self.length }
    }

    fn named(&self, grant: &RoleGrant) -> AssumeMethod {
        let session_name = grant.session.clone();
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

/// The role that the agent takes before those of pods.
fn agents(arn: RoleArn) -> KeySignedRole {
    KeySignedRole {
        arn,
        session_name: SessionName::sanitized(AGENT),
        external_id: None,
        tags: SessionTags::default(),
    }
}
