//! The key by which a cloud counts and throttles calls.

use std::sync::Arc;

use seawall_core::ServiceAccount;

/// The account or workload that a cloud throttles. The key does not name the cloud, because each cloud has its own broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ThrottleKey {
    /// The cloud account of a workload, under the cloud's name for the account.
    CloudAccount(Arc<str>),
    /// The workload's Kubernetes ServiceAccount.
    Workload(ServiceAccount),
}

impl ThrottleKey {
    /// Returns the cloud's name for the account, if there is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::CloudAccount(name) => Some(name),
            Self::Workload(_) => None,
        }
    }
}
