//! Selects the paths of the real service that pods can read. An operator's expressions allow these paths. Paths to credentials
//! are always excluded.

use crate::aws::full_match_regex::Pattern;

/// The operator's patterns of allowed paths.
#[derive(Debug)]
pub(super) struct PassthroughPathPatterns(Vec<Pattern>);

impl PassthroughPathPatterns {
    pub(super) fn new(patterns: Vec<Pattern>) -> Self {
        Self(patterns)
    }

    /// True if pods are allowed to read a canonical path.
    pub(super) fn allows(&self, path: &str) -> bool {
        let lower = path.to_ascii_lowercase();
        let secret = SECRETS.iter().find(|secret| lower.contains(*secret));
        let passes = |passed: &Pattern| {
            secret.is_none_or(|secret| passed.source_contains_word(secret)) && passed.matches(path)
        };
        !is_credential(&lower) && self.0.iter().any(passes)
    }
}

/// Words in paths that lead to secrets, although the paths do not contain the word "credential".
///
/// User data often contains the secret with which nodes join their cluster. `managed-ssh-keys` contains keys of EC2 Instance
/// Connect. The other words are signatures of the instance's identity document, which some services (for example Vault's EC2
/// login) accept as proof of the instance's identity.
///
/// The author of an expression such as `.*` probably did not think of these secrets. So an expression allows a path with one of
/// these words only if the expression contains the same word. The check ignores the letter case of the path.
const SECRETS: [&str; 5] = ["user-data", "managed-ssh-keys", "pkcs7", "signature", "rsa2048"];

/// True if a path of the real service, in lower case, leads to credentials, at any depth.
///
/// The credentials are those of the node's role or of the instance itself (`identity-credentials/ec2/security-credentials/`).
fn is_credential(path: &str) -> bool {
    path.contains("credentials")
}
