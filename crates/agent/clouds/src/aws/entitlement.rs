//! A pod's AWS entitlement: decided once, stored with the pod, and read by both dialects.
//!
//! This module knows neither the code that decides an entitlement nor the handlers that answer by it.

use std::sync::Arc;

use seawall_broker::aws::{AwsCredential, AwsPodCredentials, RoleAccess};
use seawall_core::Lease;
use seawall_core::events::PodEventRecorder;
use seawall_http::Refusal;
use seawall_protocols::aws::{RoleName, TokenSubject};

use super::passthrough;

/// A pod's AWS entitlement.
#[derive(Clone, Debug)]
pub struct AwsEntitlement {
    /// The subject that the pod's session tokens name. Computed once, because it takes a hash.
    pub(super) token_subject: TokenSubject,
    pub(super) state: RoleState,
    /// The pod's rate limit for the instance's metadata service. `None` if the configuration allows no passthrough.
    pub(super) imds_passthrough_rate_limit: Option<passthrough::PodRateLimit>,
}

/// The role that a pod has, or why it has none.
#[derive(Clone, Debug)]
pub(crate) enum RoleState {
    /// The pod has this role.
    Role(PodRole),
    /// The pod has no role, for this reason.
    Refused(Refusal),
}

/// A pod's role and the way to its leases.
#[derive(Clone, Debug)]
pub(crate) struct PodRole {
    /// The role's name. `None` if EKS chooses the role, because each answer of EKS may name another one.
    pub(super) role: Option<RoleName>,
    pub(super) access: Arc<RoleAccess>,
    pub(super) credentials: Arc<AwsPodCredentials>,
    /// Reports refusals to the pod's owner.
    pub(super) event_recorder: PodEventRecorder,
}

/// Does not occur: the broker rejects credentials of a role that has no name.
const NAMELESS: Refusal =
    Refusal::new(503, "upstream_unavailable", "AWS does not name the role of these credentials.");

impl PodRole {
    /// The name of the role to which these credentials belong.
    pub(super) fn role_name<'a>(&'a self, lease: &'a Lease<AwsCredential>) -> &'a str {
        self.role.as_ref().map_or_else(|| lease.value.role_name(), RoleName::as_str)
    }

    /// The name of the role to which these credentials belong, in the form that the listing of roles takes.
    ///
    /// # Errors
    /// The credentials name no valid role, which does not occur.
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
