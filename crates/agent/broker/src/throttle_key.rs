//! What a cloud counts calls by.

use std::sync::Arc;

use seawall_core::ServiceAccount;

/// Whom a cloud throttles. Of one cloud: each has a broker of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ThrottleKey {
    /// The cloud's account that a workload acts as, by the cloud's name for it.
    CloudAccount(Arc<str>),
    /// The workload itself.
    Workload(ServiceAccount),
}

impl ThrottleKey {
    /// The cloud's name for it, where it has one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::CloudAccount(name) => Some(name),
            Self::Workload(_) => None,
        }
    }
}
