//! A pod's AWS entitlement: what the pod may get from AWS.
//!
//! `RunningAws::decide_entitlement` decides the entitlement, the pod's entry stores it, and both dialects read it for each
//! request.

use std::sync::Arc;

use seawall_broker::aws::{AwsCredential, AwsPodLeaseClient, RoleAccess};
use seawall_core::Lease;
use seawall_core::kubernetes_events::PodEventRecorder;
use seawall_http::Refusal;
use seawall_protocols::aws::imds::check_role;
use seawall_protocols::aws::{OwnRole, RequestedRole, RoleName, TokenSubject};

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
    /// Checks that a request names this role, as far as the role is known without credentials. If EKS chooses the role, this check
    /// accepts each role, and [`Self::check_role`] decides.
    ///
    /// # Errors
    /// The request names another role.
    pub(super) fn check_before_lease(&self, asked: &RequestedRole<'_>) -> Result<(), Refusal> {
        self.known_role().map_or(Ok(()), |own| check_role(asked, Some(own)))
    }

    /// Checks that a request names the role to which these credentials belong.
    ///
    /// If EKS chooses the role, AWS names the role only by its session, without the role's path. Then the path in an ARN does not
    /// count. It still names no other role, because role names are unique within an account (IAM user guide, "IAM identifiers").
    ///
    /// # Errors
    /// The request names another role.
    pub(super) fn check_role(
        &self,
        asked: &RequestedRole<'_>,
        lease: &Lease<AwsCredential>,
    ) -> Result<(), Refusal> {
        if let Some(own) = self.known_role() {
            return check_role(asked, Some(own));
        }
        let name = lease.value.role_name();
        if let RequestedRole::Name(_) = asked {
            return check_role(asked, Some(OwnRole { name, arn: "" }));
        }
        let arn = role_arn_without_path(&lease.value);
        check_role(&asked.without_path(), Some(OwnRole { name, arn: &arn }))
    }

    fn known_role(&self) -> Option<OwnRole<'_>> {
        let arn = self.role_access.role()?.as_str();
        Some(OwnRole { name: self.known_role_name.as_ref()?.as_str(), arn })
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

fn role_arn_without_path(credential: &AwsCredential) -> String {
    let partition = credential.assumed_role_arn().split(':').nth(1).unwrap_or_default();
    format!("arn:{partition}:iam::{}:role/{}", credential.account(), credential.role_name())
}

impl AwsEntitlement {
    pub(super) fn role(&self) -> Result<&PodRole, Refusal> {
        match &self.state {
            RoleState::Role(own) => Ok(own),
            RoleState::Refused(refusal) => Err(*refusal),
        }
    }
}
