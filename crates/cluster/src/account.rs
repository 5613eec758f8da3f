//! What a Kubernetes ServiceAccount says about the cloud account it stands for.
//!
//! Reads one annotation and nothing else. Refuses to guess: a value that is not an account is a state with a name,
//! never "no account", because the two give a pod different credentials. Called by the index.

use std::sync::Arc;

use crate::object::Annotations;

/// A ServiceAccount's cloud account, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// Not read yet: the answer is "not known yet", not "none".
    Pending,
    /// There is no such ServiceAccount.
    Missing,
    /// It has no annotation: the workload is itself, without impersonation.
    Itself,
    /// The e-mail of the Google service account to impersonate.
    Google(Arc<str>),
    /// The annotation is there and is not a service account's e-mail. Refuse the pod; do not treat it as [`Self::Itself`].
    Malformed {
        /// The value, shortened, for the operator.
        found: Arc<str>,
    },
}

impl Account {
    /// Reads a ServiceAccount's annotations.
    pub(crate) fn of(annotations: &Annotations) -> Self {
        match annotations.google.as_deref() {
            None => Self::Itself,
            Some(value) if is_google_account(value) => Self::Google(value.into()),
            Some(value) => Self::Malformed { found: value.chars().take(SHOWN).collect::<String>().into() },
        }
    }
}

/// Longest part of a wrong value that is kept, in characters. An annotation may be 256 KiB.
const SHOWN: usize = 80;

/// Longest e-mail address (RFC 5321, section 4.5.3.1.3, without the angle brackets).
const LONGEST_EMAIL: usize = 254;

/// Where every Google service account lives: user-made ones under `PROJECT.iam.`, built-in ones under `developer.`,
/// `appspot.` or `cloudservices.`. Source: Google Cloud documentation, "Types of service accounts".
const GOOGLE_DOMAIN: &str = ".gserviceaccount.com";

/// Whether `value` is the e-mail of a Google service account.
///
/// Strict in characters because the value becomes part of a URL's path at the cloud.
fn is_google_account(value: &str) -> bool {
    let Some((name, domain)) = value.split_once('@') else { return false };
    value.len() <= LONGEST_EMAIL
        && is_label(name)
        && domain.ends_with(GOOGLE_DOMAIN)
        && domain.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    !label.is_empty() && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(value: &str) -> Account {
        let annotations = serde_json::json!({ "iam.gke.io/gcp-service-account": value, "unrelated": "x" });
        Account::of(&serde_json::from_value(annotations).unwrap())
    }

    #[test]
    fn no_annotation_is_the_workload_itself() {
        assert_eq!(Account::of(&serde_json::from_str(r#"{"unrelated":"x"}"#).unwrap()), Account::Itself);
        assert_eq!(Account::of(&serde_json::from_str("{}").unwrap()), Account::Itself);
    }

    #[test]
    fn googles_kinds_of_accounts_are_read() {
        for good in [
            "coral@my-project.iam.gserviceaccount.com",
            "coral@my-project.example.com.iam.gserviceaccount.com",
            "123456789-compute@developer.gserviceaccount.com",
            "my-project@appspot.gserviceaccount.com",
        ] {
            assert_eq!(account(good), Account::Google(good.into()));
        }
    }

    #[test]
    fn a_wrong_value_is_a_refusal_and_never_no_account() {
        for wrong in [
            "",
            " ",
            "coral",
            "coral@",
            "@p.iam.gserviceaccount.com",
            "coral@example.com",
            "coral@gserviceaccount.com",
            "coral@.gserviceaccount.com",
            "coral@p.iam.gserviceaccount.com ",
            "coral@p.iam.gserviceaccount.com/../../x",
            "a@b@p.iam.gserviceaccount.com",
            "Coral@p.iam.gserviceaccount.com",
            "cörál@p.iam.gserviceaccount.com",
            "coral@p..iam.gserviceaccount.com",
            "arn:aws:iam::1:role/x",
        ] {
            assert!(matches!(account(wrong), Account::Malformed { .. }), "{wrong:?}");
        }
    }

    #[test]
    fn a_huge_value_is_kept_short() {
        let Account::Malformed { found } = account(&"x".repeat(100_000)) else { panic!("refused") };
        assert_eq!(found.len(), SHOWN);
    }
}
