//! What Google's credentials are held under.

use std::sync::Arc;
use std::time::Duration;

use seawall_core::{Floor, ServiceAccount};

use super::credential_request::{Want, WantRef};
use super::refresh_policy;
use crate::throttle_key::Account;
use crate::unavailable::Unavailable;

/// Everything that decides which credential is the right one.
///
/// The Kubernetes ServiceAccount is one of the fields even when two impersonate the same Google account: Google decides per
/// ServiceAccount whether it may.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// The Kubernetes identity that proves itself.
    pub workload: ServiceAccount,
    /// The e-mail of the service account that is impersonated; `None` is the federated identity itself.
    pub account: Option<Arc<str>>,
    /// What is wanted.
    pub want: Want,
}

impl crate::principal::Principal for Principal {
    type Want<'a> = WantRef<'a>;
    /// The e-mail of the service account that the pod impersonates, if any.
    type Entitlement = Option<Arc<str>>;

    fn of(
        workload: &ServiceAccount,
        account: &Option<Arc<str>>,
        want: WantRef<'_>,
    ) -> Result<Self, Unavailable> {
        if account.is_none() && matches!(want, WantRef::IdToken { .. }) {
            return Err(Unavailable::NotEntitled("no service account to issue an identity token for"));
        }
        Ok(Self { workload: workload.clone(), account: account.clone(), want: want.to_want() })
    }

    #[inline]
    fn is_for(&self, want: WantRef<'_>) -> bool {
        self.want.as_ref() == want
    }

    fn want(&self) -> WantRef<'_> {
        self.want.as_ref()
    }

    fn workload(&self) -> &ServiceAccount {
        &self.workload
    }

    fn account(&self) -> Account {
        match &self.account {
            Some(email) => Account::Named(email.clone()),
            None => Account::Itself(self.workload.clone()),
        }
    }

    fn least_life(&self, floor: Floor) -> Duration {
        refresh_policy::least_life(&self.want, floor)
    }

    fn shared_for(&self, lifetime: Duration) -> Option<Duration> {
        refresh_policy::shared_for(&self.want, lifetime)
    }
}
