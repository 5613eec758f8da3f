//! Who may become whom: the one policy of the emulated IAM.

use std::collections::BTreeSet;

/// Who may become which service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impersonation {
    /// Only these pairs, as in the real one: each a subject (`system:serviceaccount:NS:NAME`) and an e-mail.
    Only(BTreeSet<(String, String)>),
    /// Anyone may become anything.
    Everyone,
}

impl Default for Impersonation {
    /// Nobody.
    fn default() -> Self {
        Self::Only(BTreeSet::new())
    }
}

impl Impersonation {
    /// Whether `subject` may become `email`.
    pub fn allows(&self, subject: &str, email: &str) -> bool {
        match self {
            Self::Everyone => true,
            Self::Only(pairs) => pairs.contains(&(subject.to_owned(), email.to_owned())),
        }
    }

    /// The pairs of namespace, ServiceAccount and e-mail.
    pub fn only<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str, &'p str)>) -> Self {
        let subject = |namespace, name| format!("system:serviceaccount:{namespace}:{name}");
        Self::Only(pairs.into_iter().map(|(ns, name, email)| (subject(ns, name), email.to_owned())).collect())
    }
}
