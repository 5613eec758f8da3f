//! What a pod may have of AWS: the value that is decided for it, kept with it, and read by both dialects.
//!
//! Knows neither who decides it nor who answers by it.

use std::sync::Arc;

use seawall_broker::aws::{AwsCredential, AwsPodCredentials, RoleAccess};
use seawall_core::Lease;
use seawall_core::events::PodEventRecorder;
use seawall_http::Refusal;
use seawall_protocols::aws::{RoleName, TokenSubject};

use super::passthrough;

/// What a pod may have of AWS.
#[derive(Clone, Debug)]
pub struct AwsEntitlement {
    /// What its session tokens name it by: made once, because it takes a hash.
    pub(super) token_subject: TokenSubject,
    pub(super) state: RoleState,
    /// How fast it may have the instance's service asked, where the configuration lets anything pass.
    pub(super) passthrough_limit: Option<passthrough::PodRateLimit>,
}

/// The role that a pod has, or why it has none.
#[derive(Clone, Debug)]
pub(crate) enum RoleState {
    /// A role of its own.
    Role(PodRole),
    /// None, and why.
    Refused(Refusal),
}

/// A pod's role and the way to its leases.
#[derive(Clone, Debug)]
pub(crate) struct PodRole {
    /// Nothing where EKS says it: each of its answers may name another.
    pub(super) role: Option<RoleName>,
    pub(super) access: Arc<RoleAccess>,
    pub(super) credentials: Arc<AwsPodCredentials>,
    /// Told when the pod is refused something.
    pub(super) event_recorder: PodEventRecorder,
}

/// Never so: the broker takes no credentials of a role that has no name.
const NAMELESS: Refusal =
    Refusal::new(503, "upstream_down", "AWS does not say what the role of these credentials is called.");

impl PodRole {
    /// What the role is called whose credentials these are.
    pub(super) fn role_name<'a>(&'a self, lease: &'a Lease<AwsCredential>) -> &'a str {
        self.role.as_ref().map_or_else(|| lease.value.role_name(), RoleName::as_str)
    }

    /// The same, as it is listed.
    pub(super) fn listed_name(&self, lease: &Lease<AwsCredential>) -> Result<RoleName, Refusal> {
        let named = self.role.clone();
        named.or_else(|| RoleName::new(lease.value.role_name())).ok_or(NAMELESS)
    }
}

impl AwsEntitlement {
    pub(super) fn role(&self) -> Result<&PodRole, Refusal> {
        match &self.state {
            RoleState::Role(own) => Ok(own),
            RoleState::Refused(refusal) => Err(*refusal),
        }
    }
}
