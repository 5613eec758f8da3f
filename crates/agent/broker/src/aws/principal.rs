//! The cache key of AWS credentials: a ServiceAccount, its role, and every setting that affects how it gets the role.

use std::sync::Arc;

use seawall_core::{PodUid, ServiceAccount};

use super::endpoint::StsEndpointKind;
use super::validated_names::{
    ClusterName, ExternalId, Region, RoleArn, SessionDuration, SessionName, SessionTags,
};
use crate::lease_error::LeaseError;
use crate::throttle_key::ThrottledAccountOrWorkload;

/// The fields that determine a credential. Two requests share a credential only if all fields are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AwsPrincipal {
    /// The Kubernetes ServiceAccount that authenticates at AWS, or for which the node authenticates.
    pub workload: ServiceAccount,
    /// The role and the method to get it.
    pub role_access: Arc<RoleAccess>,
}

/// The access of a workload to its role. Workloads whose access differs in any field have separate credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoleAccess {
    /// The method by which the workload's role is assumed.
    pub method: AssumeMethod,
    /// The region of the STS or EKS Auth endpoint.
    pub region: Region,
    /// The kind of STS endpoint.
    pub sts_endpoint_kind: StsEndpointKind,
    /// The requested duration of a session. For a role that another role assumes, it is at most one hour. With [`AssumeMethod::PodIdentity`] this
    /// field has no effect, because EKS Auth chooses the duration.
    pub session_duration: SessionDuration,
}

/// The method by which a workload's role is assumed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AssumeMethod {
    /// The agent sends the pod's own Kubernetes token to STS (`AssumeRoleWithWebIdentity`), as in IRSA. This method needs no key of
    /// the node.
    WebIdentity {
        /// The audience (`aud`) that the role's identity provider expects in the token.
        audience: Arc<str>,
        /// The role that the token assumes. [`TokenRole`] has no tags, because the token contains the tags. It has no external id, because
        /// this call accepts none.
        first: TokenRole,
        /// The pod's role, if the first role assumes it. The pod's role can be in another account.
        then: Option<KeySignedRole>,
    },
    /// The node's key signs `AssumeRole`, as in KIAM and kube2iam.
    NodeKeys {
        /// The base role, if the node assumes such a role first. The base role is allowed to assume the roles of all pods (KIAM's
        /// `--assume-role-arn`).
        base: Option<KeySignedRole>,
        /// The pod's role.
        role: KeySignedRole,
    },
    /// The node sends the pod's own Kubernetes token to EKS Auth in a signed request. EKS chooses the role.
    PodIdentity {
        /// The name of the cluster at EKS.
        cluster: ClusterName,
        /// The pod that uses the session. Pods of one ServiceAccount do not share sessions.
        /// EKS tags the session with the pod's name and UID, and policies can check these tags.
        pod: PodUid,
    },
}

/// A role that a Kubernetes token assumes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRole {
    /// The role.
    pub arn: RoleArn,
    /// The session name, which CloudTrail shows together with the role.
    pub session_name: SessionName,
}

/// A role that a signed call assumes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySignedRole {
    /// The role.
    pub arn: RoleArn,
    /// The session name, which CloudTrail shows together with the role.
    pub session_name: SessionName,
    /// The external id that the role may require.
    pub external_id: Option<ExternalId>,
    /// The session's tags.
    pub tags: SessionTags,
}

impl RoleAccess {
    /// Returns the role of the credentials, or `None` with EKS Auth, which states the role only in its response.
    pub fn role(&self) -> Option<&RoleArn> {
        match &self.method {
            AssumeMethod::WebIdentity { first, then, .. } => {
                Some(then.as_ref().map_or(&first.arn, |role| &role.arn))
            }
            AssumeMethod::NodeKeys { role, .. } => Some(&role.arn),
            AssumeMethod::PodIdentity { .. } => None,
        }
    }

    /// Returns the account and region to which AWS counts a call.
    /// STS has a quota per calling account and region. For a call with a token, the calling account is the role's account. For a
    /// call with the keys of a base role, it is the base role's account. For a call with the node's own keys, it is the node's
    /// account. EKS Auth has its own quota. So a throttled role in one account slows down no other account, and all calls of one
    /// account share one rate.
    fn counted_to(&self) -> String {
        let region = self.region.as_str();
        match &self.method {
            AssumeMethod::WebIdentity { first, .. } => format!("{}/{region}", first.arn.account()),
            AssumeMethod::NodeKeys { base: Some(base), .. } => format!("{}/{region}", base.arn.account()),
            AssumeMethod::NodeKeys { base: None, .. } => format!("node/{region}"),
            AssumeMethod::PodIdentity { cluster, .. } => format!("eks-auth/{}/{region}", cluster.as_str()),
        }
    }
}

impl crate::principal::Principal for AwsPrincipal {
    /// The empty request. A pod has one role, so a request selects nothing.
    type Want<'a> = ();
    /// The pod's access to its role, if it has one.
    type Entitlement = Option<Arc<RoleAccess>>;

    fn of(workload: &ServiceAccount, access: &Option<Arc<RoleAccess>>, (): ()) -> Result<Self, LeaseError> {
        let access = access.clone().ok_or(LeaseError::NotEntitled("no role for this ServiceAccount"))?;
        Ok(Self { workload: workload.clone(), role_access: access })
    }

    #[inline]
    fn matches_request(&self, (): ()) -> bool {
        true
    }

    fn request(&self) {}

    fn workload(&self) -> &ServiceAccount {
        &self.workload
    }

    fn throttle_key(&self) -> ThrottledAccountOrWorkload {
        ThrottledAccountOrWorkload::CloudAccount(self.role_access.counted_to().into())
    }
}
