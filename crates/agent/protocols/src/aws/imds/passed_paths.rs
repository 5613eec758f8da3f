//! The paths of the real service that pods may read. An operator's expressions select them, and paths to credentials are always
//! excluded.

use crate::aws::full_match_regex::Pattern;

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

/// Words in paths that lead to secrets, although the paths do not contain the word "credential".
///
/// User data often contains the secret by which nodes join their cluster. `managed-ssh-keys` contains keys of EC2 Instance Connect.
/// The other words are signatures of the instance's identity document, which some services accept as proof of the instance (for
/// example Vault's EC2 login).
///
/// The author of an expression such as `.*` may not have thought of these secrets. So such a path is allowed only by an expression
/// that contains its word. Words match in any letter case, as in [`is_credential`].
const SECRETS: [&str; 5] = ["user-data", "managed-ssh-keys", "pkcs7", "signature", "rsa2048"];

/// True if a path of the real service, in lower case, leads to credentials, at any depth.
///
/// These are credentials of the node's role or of the instance itself (`identity-credentials/ec2/security-credentials/`).
fn is_credential(path: &str) -> bool {
    path.contains("credentials")
}
