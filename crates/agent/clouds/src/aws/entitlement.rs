//! A pod's AWS entitlement: what the pod may get from AWS.
//!
//! `RunningAws::decide_entitlement` decides the entitlement, the pod's entry stores it, and both dialects read it for each
//! request.

use std::sync::Arc;

use seawall_broker::aws::{AwsCredential, AwsPodLeaseClient, RoleAccess};
use seawall_core::Lease;
use seawall_core::kubernetes_events::PodEventRecorder;
use seawall_http::Refusal;
use seawall_protocols::aws::{RoleName, TokenSubject};

use super::passthrough;

/// A pod's AWS entitlement.
#[derive(Clone, Debug)]
pub struct AwsEntitlement {
    /// The subject of the pod's session tokens. The agent computes this hash once per entitlement, not for each request.
    pub(super) session_token_subject: TokenSubject,
    pub(super) state: RoleState,
    /// The pod's rate limit for the instance's metadata service, or `None` if the configuration allows no passthrough.
    pub(super) imds_passthrough_rate_limit: Option<passthrough::PodRateLimit>,
}

/// The role of a pod, or the reason why the pod has no role.
#[derive(Clone, Debug)]
pub(crate) enum RoleState {
    /// The pod has this role.
    Role(PodRole),
    /// The pod has no role, for this reason.
    Refused(Refusal),
}

/// A pod's role with the client for its leases.
#[derive(Clone, Debug)]
pub(crate) struct PodRole {
    /// The role's name, or `None` if EKS chooses the role. Each answer of EKS can name a different role.
    pub(super) known_role_name: Option<RoleName>,
    pub(super) role_access: Arc<RoleAccess>,
    pub(super) lease_client: Arc<AwsPodLeaseClient>,
    /// Reports refusals to the pod's owner.
    pub(super) event_recorder: PodEventRecorder,
}

/// The refusal for credentials without a role name. This case does not occur, because the broker rejects such credentials.
const NAMELESS: Refusal =
    Refusal::new(503, "upstream_unavailable", "AWS does not name the role of these credentials.");

impl PodRole {
    /// Returns the name of the role to which these credentials belong.
    pub(super) fn role_name<'a>(&'a self, lease: &'a Lease<AwsCredential>) -> &'a str {
        self.known_role_name.as_ref().map_or_else(|| lease.value.role_name(), RoleName::as_str)
    }

    /// Returns the name of the role to which these credentials belong, in the format of the role listing.
    ///
    /// # Errors
    /// The credentials name no valid role. This case does not occur.
    pub(super) fn role_name_for_listing(&self, lease: &Lease<AwsCredential>) -> Result<RoleName, Refusal> {
        let named = self.known_role_name.clone();
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
