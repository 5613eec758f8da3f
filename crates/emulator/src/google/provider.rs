//! A workload identity provider. The exchange (`sts`) decides which tokens it accepts.

use std::collections::BTreeSet;

use crate::keys::KeySet;

/// A workload identity provider: its name, its issuer and its audiences.
#[derive(Clone, Debug)]
pub struct WorkloadIdentityProvider {
    /// The `audience` of an exchange, such as
    /// `//iam.googleapis.com/projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER`, or for a pool of GKE's own
    /// `identitynamespace:PROJECT.svc.id.goog:https://container.googleapis.com/v1/projects/PROJECT/locations/LOCATION/clusters/CLUSTER`.
    pub name: String,
    /// The required `iss` of its tokens.
    pub issuer: String,
    /// The issuer's published keys.
    pub keys: KeySet,
    /// The accepted `aud` values; a token needs one of them. If the set is empty, the provider's name counts, with or without `https:` in
    /// front, as at Google. For a pool of GKE's own it is the name of the pool.
    pub audiences: BTreeSet<String>,
}

/// The name of a provider of GKE's own pools: `identitynamespace:POOL:PROVIDER`. The provider is the URL of the cluster.
///
/// Source: secrets-store-csi-driver-provider-gcp `auth/auth.go`; the fleet documentation of Google Cloud gives the same `audience` in
/// credential configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdentityNamespace<'a> {
    pub(super) pool: &'a str,
}

impl<'a> IdentityNamespace<'a> {
    /// Parses a name. Returns `None` for a name of another form, or without a pool or a provider.
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        let (pool, provider) = name.strip_prefix("identitynamespace:")?.split_once(':')?;
        (!pool.is_empty() && !provider.is_empty()).then_some(Self { pool })
    }
}
