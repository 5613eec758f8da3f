//! The key by which a cloud counts and throttles calls.

use std::sync::Arc;

use seawall_core::ServiceAccount;

/// The account or workload that a cloud throttles. The key does not name the cloud, because each cloud has its own broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ThrottledAccountOrWorkload {
    /// A cloud account. The cloud's module chooses its name: for Google an e-mail address, for AWS an account and a region.
    CloudAccount(Arc<str>),
    /// The workload's Kubernetes ServiceAccount.
    Workload(ServiceAccount),
}

impl ThrottledAccountOrWorkload {
    /// Returns the name of the cloud account, or `None` for a ServiceAccount.
    pub fn account_name(&self) -> Option<&str> {
        match self {
            Self::CloudAccount(name) => Some(name),
            Self::Workload(_) => None,
        }
    }
}
