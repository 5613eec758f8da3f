//! The cache key of AWS's credentials: a ServiceAccount, its role, and every setting that decides how it gets the role.

use std::sync::Arc;

use seawall_core::{PodUid, ServiceAccount};

use super::endpoint::StsEndpointKind;
use super::names::{ClusterName, ExternalId, Region, RoleArn, SessionDuration, SessionName, SessionTags};
use crate::lease_error::LeaseError;
use crate::throttle_key::ThrottleKey;

/// All fields that decide which credential is the right one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AwsPrincipal {
    /// The Kubernetes identity that proves itself, or on whose behalf the node does.
    pub workload: ServiceAccount,
    /// The role, and the method to get it. Shared: the same for all pods of a ServiceAccount.
    pub access: Arc<RoleAccess>,
}

/// The method by which a workload gets its role. Every field counts: two values that differ in one field have separate credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoleAccess {
    /// The method that proves the workload to AWS.
    pub method: AssumeMethod,
    /// The region whose STS or EKS Auth is called.
    pub region: Region,
    /// The kind of STS endpoint.
    pub sts: StsEndpointKind,
    /// The requested duration of a session. A role assumed from another role has an hour, whatever is requested; EKS Auth decides
    /// itself.
    pub duration: SessionDuration,
}

/// The method that proves the workload to AWS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AssumeMethod {
    /// The pod's own Kubernetes token is shown to STS (`AssumeRoleWithWebIdentity`): what IRSA does. No key of the node's.
    WebIdentity {
        /// The `aud` that the role's provider expects of the token.
        audience: Arc<str>,
        /// The role that the token is for. Tags come from the token alone, and there is no external id.
        first: TokenRole,
        /// The role that is assumed with the first one's keys, if the pod is to act as another: one of another account.
        then: Option<KeySignedRole>,
    },
    /// A key of the node's signs `AssumeRole`: what KIAM and kube2iam do.
    NodeKeys {
        /// A role that is assumed before, and that alone may assume the others (KIAM's `--assume-role-arn`). Shared by all.
        base: Option<KeySignedRole>,
        /// The pod's role.
        role: KeySignedRole,
    },
    /// The pod's own Kubernetes token is handed to EKS Auth under the node's signature; EKS knows the role.
    PodIdentity {
        /// The cluster, by its name at EKS.
        cluster: ClusterName,
        /// The pod whose session it is. EKS tags it with that pod's name and UID, which policies may ask for, so pods of one
        /// ServiceAccount share none.
        pod: PodUid,
    },
}

/// A role to be assumed by a Kubernetes token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenRole {
    /// The role.
    pub arn: RoleArn,
    /// The session name that CloudTrail shows beside the role.
    pub session_name: SessionName,
}

/// A role to be assumed by a signature.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySignedRole {
    /// The role.
    pub arn: RoleArn,
    /// The session name that CloudTrail shows beside the role.
    pub session_name: SessionName,
    /// The external id that the role may require.
    pub external_id: Option<ExternalId>,
    /// The session's tags.
    pub tags: SessionTags,
}

impl RoleAccess {
    /// The role of the credentials, if it is known before they arrive: EKS Auth does not tell it before.
    pub fn role(&self) -> Option<&RoleArn> {
        match &self.method {
            AssumeMethod::WebIdentity { first, then, .. } => {
                Some(then.as_ref().map_or(&first.arn, |role| &role.arn))
            }
            AssumeMethod::NodeKeys { role, .. } => Some(&role.arn),
            AssumeMethod::PodIdentity { .. } => None,
        }
    }

    /// Returns the account and region to which AWS counts a call. STS's quota is per account and region, and the calling account
    /// counts: for a token it is the role's account (the request itself has none), for a base role that role's, and for the node's
    /// keys the node's own. EKS Auth has its own quota. So a throttled role of another team's account slows no other account, and
    /// all calls of one account are paced together.
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
    /// The empty request: a pod has one role, and a request cannot choose.
    type Want<'a> = ();
    /// The pod's access to its role, if it has one.
    type Entitlement = Option<Arc<RoleAccess>>;

    fn of(workload: &ServiceAccount, access: &Option<Arc<RoleAccess>>, (): ()) -> Result<Self, LeaseError> {
        let access = access.clone().ok_or(LeaseError::NotEntitled("no role for this ServiceAccount"))?;
        Ok(Self { workload: workload.clone(), access })
    }

    #[inline]
    fn is_for(&self, (): ()) -> bool {
        true
    }

    fn request(&self) {}

    fn workload(&self) -> &ServiceAccount {
        &self.workload
    }

    fn throttle_key(&self) -> ThrottleKey {
        ThrottleKey::CloudAccount(self.access.counted_to().into())
    }
}
