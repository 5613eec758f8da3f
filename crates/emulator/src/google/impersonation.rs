//! The policy of the emulated IAM: the callers that may impersonate each service account.

use std::collections::BTreeSet;

/// The allowed impersonations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImpersonationPolicy {
    /// Only these pairs are allowed, each a subject (`system:serviceaccount:NS:NAME`) and an e-mail, as in the real IAM.
    Only(BTreeSet<(String, String)>),
    /// Every subject may impersonate every account.
    Everyone,
}

impl Default for ImpersonationPolicy {
    /// No impersonation is allowed.
    fn default() -> Self {
        Self::Only(BTreeSet::new())
    }
}

impl ImpersonationPolicy {
    /// Returns whether `subject` may impersonate `email`.
    pub fn allows(&self, subject: &str, email: &str) -> bool {
        match self {
            Self::Everyone => true,
            Self::Only(pairs) => pairs.contains(&(subject.to_owned(), email.to_owned())),
        }
    }

    /// Allows these triples of namespace, ServiceAccount and e-mail.
    pub fn only<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str, &'p str)>) -> Self {
        let subject = |namespace, name| format!("system:serviceaccount:{namespace}:{name}");
        Self::Only(pairs.into_iter().map(|(ns, name, email)| (subject(ns, name), email.to_owned())).collect())
    }
}
