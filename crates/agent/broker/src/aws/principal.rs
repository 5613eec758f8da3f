//! The cache key of AWS credentials: a ServiceAccount, its role, and every setting that affects how the agent gets the role's
//! credentials.

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
    /// The pod's Kubernetes ServiceAccount.
    /// Either the ServiceAccount's token authenticates at AWS, or the node authenticates on behalf of the ServiceAccount.
    pub workload: ServiceAccount,
    /// The role, and the method by which the agent assumes the role.
    pub role_access: Arc<RoleAccess>,
}

/// The access of a workload to its role. If any field of two workloads' access differs, the workloads have separate credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoleAccess {
    /// The method by which the agent assumes the workload's role.
    pub method: AssumeMethod,
    /// The region of the STS or EKS Auth endpoint.
    pub region: Region,
    /// The kind of STS endpoint.
    pub sts_endpoint_kind: StsEndpointKind,
    /// The requested duration of a session. If another role assumes the role, the agent requests at most one hour. With
    /// [`AssumeMethod::PodIdentity`] this field has no effect, because EKS Auth chooses the duration.
    pub session_duration: SessionDuration,
}

/// The method by which the agent assumes a workload's role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AssumeMethod {
    /// The agent sends the pod's own Kubernetes token to STS (`AssumeRoleWithWebIdentity`), as in IRSA. This method needs no key
    /// of the node.
    WebIdentity {
        /// The audience (`aud`) that the role's identity provider expects in the token.
        audience: Arc<str>,
        /// The role that the token assumes. [`TokenRole`] has no tags, because the token contains the tags. [`TokenRole`] has no
        /// external id, because this call accepts no external id.
        first: TokenRole,
        /// The pod's role, if the first role is an intermediate role that assumes the pod's role.
        /// The pod's role can be in another account.
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

    /// Returns the account and the region whose quota limits a call.
    /// STS has a quota per calling account and region. For a call with a token, the calling account is the role's account. For a
    /// call with the keys of a base role, the calling account is the base role's account. For a call with the node's own keys, it
    /// is the node's account. EKS Auth has its own quota. So if AWS throttles a role in one account, other accounts stay fast.
    /// All calls of one account share one rate.
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
    /// The type of a request. The type is empty, because a pod has one role and a request has nothing to select.
    type Want<'a> = ();
    /// The pod's access to its role, if the pod has a role.
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
