//! Which Google service account a pod acts as: what GKE's annotation on its ServiceAccount says.
//!
//! Reads one annotation and nothing else. Refuses to guess: a value that is not an account is a reason with a name,
//! never "no account", because the two give a pod different credentials.

use std::sync::Arc;

use seawall_core::PodAnnotations;
use seawall_core::annotations::{AnnotationKeys, AnnotationValue, RelatedAnnotations};
use seawall_core::attestation::{AnnotatedObject, IdentityFileKey};

/// On a ServiceAccount: the Google account it stands for. Source: Google Cloud documentation, "Authenticate to
/// Google Cloud APIs from GKE workloads".
const ANNOTATION: &str = "iam.gke.io/gcp-service-account";

/// What is to be known of pods.
pub(super) const SELECTION: AnnotationKeys =
    AnnotationKeys { pod: &[], service_account: &[ANNOTATION], namespace: &[] };

/// What stands for the annotation in a file of pods.
pub(crate) const FILE_KEYS: &[IdentityFileKey] = &[IdentityFileKey {
    name: "googleServiceAccount",
    object: AnnotatedObject::ServiceAccount,
    annotation: ANNOTATION,
    expected: "a Google service account's e-mail such as cart@my-project.iam.gserviceaccount.com",
    is_valid: is_google_account,
}];

/// Why it is not to be said as which account a pod acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountError {
    /// Its ServiceAccount is not read yet.
    NotRead,
    /// There is no such ServiceAccount.
    Missing,
    /// The annotation is there and is not a service account's e-mail. Refuse the pod; it does not act as itself.
    Malformed,
}

/// The e-mail of the Google service account to impersonate; `None`: the workload is itself.
///
/// # Errors
/// It is not known, or not to be said.
pub(super) fn resolve_account(facts: &PodAnnotations) -> Result<Option<Arc<str>>, AccountError> {
    let annotations = match &facts.service_account {
        RelatedAnnotations::NotRead => return Err(AccountError::NotRead),
        RelatedAnnotations::Known(object) => object.as_ref().as_ref().ok_or(AccountError::Missing)?,
    };
    match annotations.find(ANNOTATION) {
        None => Ok(None),
        Some(AnnotationValue::Whole(email)) if is_google_account(email) => Ok(Some(email.clone())),
        Some(AnnotationValue::Whole(_) | AnnotationValue::TooLong) => Err(AccountError::Malformed),
    }
}

/// Longest e-mail address (RFC 5321, section 4.5.3.1.3, without the angle brackets).
const LONGEST_EMAIL: usize = 254;

/// Where every Google service account lives: user-made ones under `PROJECT.iam.`, built-in ones under `developer.`,
/// `appspot.` or `cloudservices.`. Source: Google Cloud documentation, "Types of service accounts".
const GOOGLE_DOMAIN: &str = ".gserviceaccount.com";

/// Whether `value` is the e-mail of a Google service account.
///
/// Strict in characters because the value becomes part of a URL's path at the cloud, and of a metadata listing.
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
    use seawall_core::annotations::Annotations;

    use super::*;

    fn told(service_account: RelatedAnnotations) -> PodAnnotations {
        PodAnnotations {
            pod: Annotations::default(),
            service_account,
            namespace: RelatedAnnotations::NotRead,
        }
    }

    fn account(value: &str) -> Result<Option<Arc<str>>, AccountError> {
        let annotations =
            [("unrelated", AnnotationValue::from("x")), (ANNOTATION, AnnotationValue::from(value))];
        resolve_account(&told(RelatedAnnotations::read(annotations.into_iter().collect())))
    }

    #[test]
    fn no_annotation_is_the_workload_itself() {
        let unrelated = [("unrelated", AnnotationValue::from("x"))].into_iter().collect();
        assert_eq!(resolve_account(&told(RelatedAnnotations::read(unrelated))), Ok(None));
        assert_eq!(resolve_account(&told(RelatedAnnotations::read(Annotations::default()))), Ok(None));
    }

    #[test]
    fn what_is_not_known_is_not_taken_for_no_account() {
        assert_eq!(resolve_account(&told(RelatedAnnotations::NotRead)), Err(AccountError::NotRead));
        assert_eq!(resolve_account(&told(RelatedAnnotations::missing())), Err(AccountError::Missing));
    }

    #[test]
    fn googles_kinds_of_accounts_are_read() {
        for good in [
            "coral@my-project.iam.gserviceaccount.com",
            "coral@my-project.example.com.iam.gserviceaccount.com",
            "123456789-compute@developer.gserviceaccount.com",
            "my-project@appspot.gserviceaccount.com",
        ] {
            assert_eq!(account(good), Ok(Some(good.into())));
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
            "coral@p.iam.gserviceaccount.com\n",
            "coral:x@p.iam.gserviceaccount.com",
            "a b@p.iam.gserviceaccount.com",
            "a@b@p.iam.gserviceaccount.com",
            "Coral@p.iam.gserviceaccount.com",
            "cörál@p.iam.gserviceaccount.com",
            "coral@p..iam.gserviceaccount.com",
            "arn:aws:iam::1:role/x",
        ] {
            assert_eq!(account(wrong), Err(AccountError::Malformed), "{wrong:?}");
        }
    }

    /// However its beginning looks: of a longer one, nothing is kept that could be taken for an account.
    #[test]
    fn a_huge_value_is_a_refusal() {
        let account_of =
            |padding: usize| account(&format!("{}@p.iam.gserviceaccount.com", "x".repeat(padding)));
        assert!(account_of(200).is_ok());
        for padding in [254, seawall_core::annotations::MAX_VALUE_LENGTH, 100_000] {
            assert_eq!(account_of(padding), Err(AccountError::Malformed), "{padding}");
        }
    }
}
