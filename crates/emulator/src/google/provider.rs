//! A workload identity provider. The exchange (`sts`) decides which tokens it accepts.

use std::collections::BTreeSet;

use crate::keys::KeySet;

/// A workload identity provider: its name, its issuer and its audiences.
#[derive(Clone, Debug)]
pub struct WorkloadIdentityProvider {
    /// The `audience` of an exchange, such as
    /// `//iam.googleapis.com/projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER`.
    pub name: String,
    /// The required `iss` of its tokens.
    pub issuer: String,
    /// The issuer's published keys.
    pub keys: KeySet,
    /// The accepted `aud` values; a token needs one of them. If the set is empty, the provider's name counts, with or without `https:` in
    /// front, as at Google.
    pub audiences: BTreeSet<String>,
}
