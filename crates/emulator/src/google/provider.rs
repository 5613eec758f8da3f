//! A workload identity provider. What it accepts is the exchange's to decide (`sts`).

use std::collections::BTreeSet;

use crate::keys::KeySet;

/// A workload identity provider: whose tokens are accepted, under which name.
#[derive(Clone, Debug)]
pub struct WorkloadIdentityProvider {
    /// The `audience` of an exchange, such as
    /// `//iam.googleapis.com/projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER`.
    pub name: String,
    /// The `iss` its tokens must have.
    pub issuer: String,
    /// The issuer's published keys.
    pub keys: KeySet,
    /// The `aud` values its tokens may have, of which one must be in the token. Empty: the provider's name, with or
    /// without `https:` in front, as Google does.
    pub audiences: BTreeSet<String>,
}
