//! The paths of the real service that pods may read: those that an operator's expression names, and never a credential.

use crate::aws::pattern::Pattern;

/// The operator's patterns of allowed paths.
#[derive(Debug)]
pub(super) struct PassedPaths(Vec<Pattern>);

impl PassedPaths {
    pub(super) fn new(patterns: Vec<Pattern>) -> Self {
        Self(patterns)
    }

    /// True if pods may read a canonical path.
    pub(super) fn allows(&self, path: &str) -> bool {
        let lower = path.to_ascii_lowercase();
        let secret = SECRETS.iter().find(|secret| lower.contains(*secret));
        let passes = |passed: &Pattern| {
            secret.is_none_or(|secret| passed.contains_literal(secret)) && passed.matches(path)
        };
        !is_credential(&lower) && self.0.iter().any(passes)
    }
}

/// Words in paths that lead to secrets without the name credential.
///
/// The user data holds what nodes join their cluster with, and `managed-ssh-keys` holds keys of EC2 Instance Connect. The others are
/// signatures of the instance's identity document, and some services accept them as proof of the instance (Vault's EC2 login).
///
/// An expression such as `.*` was not written with these secrets in mind. So such a path is allowed only by an expression that contains its
/// word. The words match in any case of letters, as in [`is_credential`].
const SECRETS: [&str; 5] = ["user-data", "managed-ssh-keys", "pkcs7", "signature", "rsa2048"];

/// True if a path of the real service, in lower case, leads to credentials, whatever stands before them.
///
/// These are credentials of the node's role, or of the instance itself (`identity-credentials/ec2/security-credentials/`).
fn is_credential(path: &str) -> bool {
    path.contains("credentials")
}
