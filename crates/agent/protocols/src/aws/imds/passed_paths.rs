//! Which paths of the real service a pod may read: those that an operator's expression names, and never a credential.

use crate::aws::pattern::Pattern;

/// The paths that pass.
#[derive(Debug)]
pub(super) struct PassedPaths(Vec<Pattern>);

impl PassedPaths {
    pub(super) fn new(patterns: Vec<Pattern>) -> Self {
        Self(patterns)
    }

    /// Whether a canonical path passes.
    pub(super) fn allows(&self, path: &str) -> bool {
        let lower = path.to_ascii_lowercase();
        let secret = SECRETS.iter().find(|secret| lower.contains(*secret));
        let passes = |passed: &Pattern| {
            secret.is_none_or(|secret| passed.contains_literal(secret)) && passed.matches(path)
        };
        !is_credential(&lower) && self.0.iter().any(passes)
    }
}

/// What is as good as a credential without being called one: what nodes join their cluster with stands in the user data, and keys of
/// EC2 Instance Connect below the next; the others are signatures of the instance's identity document, which some services take for the
/// instance itself (Vault's EC2 login). An expression such as `.*` was not written with them in mind, so each passes only by one in
/// which it is named. In any case of letters, as [`is_credential`].
const SECRETS: [&str; 5] = ["user-data", "managed-ssh-keys", "pkcs7", "signature", "rsa2048"];

/// Whether a path of the real service, in small letters, leads to credentials: of the node's role, or of the instance itself
/// (`identity-credentials/ec2/security-credentials/`). Whatever stands before it.
fn is_credential(path: &str) -> bool {
    path.contains("credentials")
}
