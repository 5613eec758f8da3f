//! How a granted role is taken: from what policy says of a pod and the configuration of all to what the broker is asked with.

use std::sync::Arc;

use anyhow::Context;
use seawall_broker::aws::{
    Access, Config, KeySource, Region, Role, RoleArn, SessionLength, SessionName, Sts, Tags, TokenRole, Way,
};
use seawall_core::Pod;

use super::config::{Exchange, From};
use super::policy;
use super::policy::{Allowed, Grant};

/// What a base role's session is called: it is the agent's and no pod's.
const AGENT: &str = "seawall-agent";

/// What the broker needs to know that is the same for all, without the roots of a file.
pub(super) fn config(exchange: &Exchange, metadata: &str) -> Config {
    let keys = match &exchange.base.from {
        From::Node => Some(KeySource::Instance { url: metadata.to_owned() }),
        From::File { path, profile } => {
            Some(KeySource::File { path: path.clone(), profile: profile.clone() })
        }
        From::Pod { .. } => None,
    };
    let (sts_url, eks_auth_url) = (exchange.sts_url.clone(), exchange.eks_auth_url.clone());
    Config { keys, sts_url, eks_auth_url, proxy: exchange.proxy.clone(), more_roots: None }
}

/// Makes accesses of grants.
#[derive(Debug)]
pub(super) struct Accesses {
    region: Region,
    sts: Sts,
    length: SessionLength,
    base: Base,
}

/// As whom roles are taken that pods name.
#[derive(Debug)]
enum Base {
    /// The agent, whose role this is if it takes one first.
    Agent(Option<Role>),
    /// The pod with this role, taken by its own token for the audience.
    Pod { audience: Arc<str>, role: RoleArn },
}

impl Accesses {
    /// Of this configuration.
    ///
    /// # Errors
    /// A region that the configuration took for good is none to the broker.
    pub(super) fn new(exchange: &Exchange) -> anyhow::Result<Self> {
        let role = exchange.base.role.as_ref().map(|role| role.arn().clone());
        let base = match (&exchange.base.from, role) {
            (From::Pod { audience }, Some(role)) => Base::Pod { audience: audience.as_str().into(), role },
            (_, role) => Base::Agent(role.map(agents)),
        };
        let region = Region::parse(&exchange.region).context("aws.region")?;
        Ok(Self { region, sts: exchange.sts, length: exchange.length, base })
    }

    /// How this pod makes use of what it may have.
    pub(super) fn of(&self, pod: &Pod, allowed: &Allowed) -> Access {
        let way = match allowed {
            Allowed::Role(grant) => self.named(grant),
            Allowed::Associated(cluster) => {
                Way::PodIdentity { cluster: cluster.clone(), pod: pod.uid.clone() }
            }
        };
        Access { way, region: self.region.clone(), sts: self.sts, length: self.length }
    }

    fn named(&self, grant: &Grant) -> Way {
        let session_name = grant.session.clone();
        match &grant.way {
            policy::Way::WebIdentity { audience } => {
                let first = TokenRole { arn: grant.role.arn().clone(), session_name };
                Way::WebIdentity { audience: audience.clone(), first, then: None }
            }
            policy::Way::Assume { external_id, tags } => {
                let (external_id, tags) = (external_id.clone(), tags.clone());
                self.assume(Role { arn: grant.role.arn().clone(), session_name, external_id, tags })
            }
        }
    }

    fn assume(&self, role: Role) -> Way {
        match &self.base {
            Base::Agent(base) => Way::Keys { base: base.clone(), role },
            Base::Pod { audience, role: first } => {
                let first = TokenRole { arn: first.clone(), session_name: role.session_name.clone() };
                Way::WebIdentity { audience: audience.clone(), first, then: Some(role) }
            }
        }
    }
}

/// The role that the agent takes before those of pods.
fn agents(arn: RoleArn) -> Role {
    Role { arn, session_name: SessionName::made_of(AGENT), external_id: None, tags: Tags::default() }
}
