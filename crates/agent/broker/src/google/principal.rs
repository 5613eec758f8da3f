//! The cache key of Google credentials.

use std::sync::Arc;
use std::time::Duration;

use seawall_core::{LifetimeFloor, ServiceAccount};

use super::credential_request::{CredentialRequest, CredentialRequestRef};
use super::refresh_policy;
use crate::lease_error::LeaseError;
use crate::throttle_key::ThrottledAccountOrWorkload;

/// The fields that determine a credential. Two requests share a credential only if all fields are equal.
///
/// The ServiceAccount is one of the fields, even if two ServiceAccounts impersonate the same Google account. Google decides for
/// each ServiceAccount whether the ServiceAccount is allowed to impersonate the account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GooglePrincipal {
    /// The Kubernetes ServiceAccount that authenticates at Google.
    pub workload: ServiceAccount,
    /// The e-mail address of the impersonated service account, or `None` for the federated identity itself.
    pub account: Option<Arc<str>>,
    /// The requested credential.
    pub requested_credential: CredentialRequest,
}

impl crate::principal::Principal for GooglePrincipal {
    type Want<'a> = CredentialRequestRef<'a>;
    /// The e-mail address of the service account that the pod impersonates, if any.
    type Entitlement = Option<Arc<str>>;

    fn of(
        workload: &ServiceAccount,
        account: &Option<Arc<str>>,
        want: CredentialRequestRef<'_>,
    ) -> Result<Self, LeaseError> {
        if account.is_none() && matches!(want, CredentialRequestRef::IdToken { .. }) {
            return Err(LeaseError::NotEntitled("an identity token needs an impersonated service account"));
        }
        Ok(Self {
            workload: workload.clone(),
            account: account.clone(),
            requested_credential: want.to_request(),
        })
    }

    #[inline]
    fn matches_request(&self, want: CredentialRequestRef<'_>) -> bool {
        self.requested_credential.as_ref() == want
    }

    fn request(&self) -> CredentialRequestRef<'_> {
        self.requested_credential.as_ref()
    }

    fn workload(&self) -> &ServiceAccount {
        &self.workload
    }

    fn throttle_key(&self) -> ThrottledAccountOrWorkload {
        match &self.account {
            Some(email) => ThrottledAccountOrWorkload::CloudAccount(email.clone()),
            None => ThrottledAccountOrWorkload::Workload(self.workload.clone()),
        }
    }

    fn min_lifetime(&self, floor: LifetimeFloor) -> Duration {
        refresh_policy::min_lifetime(&self.requested_credential, floor)
    }

    fn max_cache_age(&self, lifetime: Duration) -> Option<Duration> {
        refresh_policy::max_cache_age(&self.requested_credential, lifetime)
    }
}
