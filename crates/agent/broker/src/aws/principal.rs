//! What AWS's credentials are held under: a ServiceAccount, and the role that it acts as with everything that decides how.

use std::sync::Arc;

use seawall_core::{PodUid, ServiceAccount};

use super::endpoint::StsEndpointKind;
use super::names::{ClusterName, ExternalId, Region, RoleArn, SessionDuration, SessionName, SessionTags};
use crate::lease_error::LeaseError;
use crate::throttle_key::ThrottleKey;

/// Everything that decides which credential is the right one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AwsPrincipal {
    /// The Kubernetes identity that proves itself, or on whose behalf the node does.
    pub workload: ServiceAccount,
    /// How it comes by which role. Shared: the same for all pods of a ServiceAccount.
    pub access: Arc<RoleAccess>,
}

/// How a workload comes by its role. Every field counts: two that differ in one have credentials of their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoleAccess {
    /// Who proves what to whom.
    pub method: AssumeMethod,
    /// Whose STS or EKS Auth is asked.
    pub region: Region,
    /// Which STS.
    pub sts: StsEndpointKind,
    /// How long a session is asked for. A role assumed from another has an hour, whatever is asked for here; EKS Auth decides itself.
    pub duration: SessionDuration,
}

/// Who proves what to whom.
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
    /// What CloudTrail shows beside it.
    pub session_name: SessionName,
}

/// A role to be assumed by a signature.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySignedRole {
    /// The role.
    pub arn: RoleArn,
    /// What CloudTrail shows beside it.
    pub session_name: SessionName,
    /// What the role may ask a caller to know.
    pub external_id: Option<ExternalId>,
    /// The session's tags.
    pub tags: SessionTags,
}

impl RoleAccess {
    /// The role that credentials are of, where that is known before they are there: EKS keeps it to itself.
    pub fn role(&self) -> Option<&RoleArn> {
        match &self.method {
            AssumeMethod::WebIdentity { first, then, .. } => {
                Some(then.as_ref().map_or(&first.arn, |role| &role.arn))
            }
            AssumeMethod::NodeKeys { role, .. } => Some(&role.arn),
            AssumeMethod::PodIdentity { .. } => None,
        }
    }

    /// The account that AWS counts a call to. STS's quota is of one account in one region, and the account is the caller's: that of
    /// the role that a token is for (its caller has none), that of the base role, the node's own where its keys sign. EKS Auth has a quota
    /// of its own. So a role of another team's account that is throttled slows nobody else, and all of one account are paced together.
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
    /// Nothing: a pod has one role, and a request cannot choose.
    type Want<'a> = ();
    /// How the pod comes by its role, if it has one.
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
