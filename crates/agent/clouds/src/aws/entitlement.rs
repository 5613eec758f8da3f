//! What a pod may have of AWS: the value that is decided for it, kept with it, and read by both dialects.
//!
//! Knows neither who decides it nor who answers by it.

use std::sync::Arc;

use seawall_broker::aws::{Access, Credential, Holder};
use seawall_core::Lease;
use seawall_core::events::Complainer;
use seawall_http::Refusal;
use seawall_protocols::aws::{Bearer, RoleName};

use super::passthrough;

/// What a pod may have of AWS.
#[derive(Clone, Debug)]
pub struct Entitlement {
    /// What its session tokens name it by: made once, because it takes a hash.
    pub(super) bearer: Bearer,
    pub(super) standing: Standing,
    /// How fast it may have the instance's service asked, where the configuration lets anything pass.
    pub(super) passthrough: Option<passthrough::Share>,
}

/// The role that a pod has, or why it has none.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// A role of its own.
    Role(Own),
    /// None, and why.
    Refused(Refusal),
}

/// A pod's role and the way to its leases.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    /// Nothing where EKS says it: each of its answers may name another.
    pub(super) role: Option<RoleName>,
    pub(super) access: Arc<Access>,
    pub(super) holder: Arc<Holder>,
    /// Told when the pod is refused something.
    pub(super) complainer: Complainer,
}

/// Never so: the broker takes no credentials of a role that has no name.
const NAMELESS: Refusal =
    Refusal::new(503, "upstream_down", "AWS does not say what the role of these credentials is called.");

impl Own {
    /// What the role is called whose credentials these are.
    pub(super) fn name_of<'a>(&'a self, lease: &'a Lease<Credential>) -> &'a str {
        self.role.as_ref().map_or_else(|| lease.value.role_name(), RoleName::as_str)
    }

    /// The same, as it is listed.
    pub(super) fn role_of(&self, lease: &Lease<Credential>) -> Result<RoleName, Refusal> {
        let named = self.role.clone();
        named.or_else(|| RoleName::new(lease.value.role_name())).ok_or(NAMELESS)
    }
}

impl Entitlement {
    pub(super) fn own(&self) -> Result<&Own, Refusal> {
        match &self.standing {
            Standing::Role(own) => Ok(own),
            Standing::Refused(refusal) => Err(*refusal),
        }
    }
}
