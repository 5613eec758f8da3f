//! What a cloud counts calls by.

use std::sync::Arc;

use seawall_core::ServiceAccount;

/// Whom a cloud throttles. Of one cloud: each has a broker of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Account {
    /// The cloud's account that a workload acts as, by the cloud's name for it.
    Named(Arc<str>),
    /// The workload itself.
    Itself(ServiceAccount),
}

impl Account {
    /// The cloud's name for it, where it has one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::Itself(_) => None,
        }
    }
}
