//! Determines the Google service account that a pod impersonates, from GKE's annotation on the pod's ServiceAccount.
//!
//! The module reads only this annotation. A malformed value is an error and does not count as "no account", because a pod without
//! an account gets the credentials of its own identity.

use std::sync::Arc;

use seawall_core::PodAnnotations;
use seawall_core::annotations::{AnnotationKeys, LengthCheckedAnnotation, RelatedAnnotations};
use seawall_core::attestation::{AnnotatedObject, IdentityFileKey};

/// The annotation on a ServiceAccount that names the Google service account to impersonate.
/// Source: Google Cloud documentation, "Authenticate to Google Cloud APIs from GKE workloads".
const ANNOTATION: &str = "iam.gke.io/gcp-service-account";

/// Returns the annotation keys that this policy needs.
pub(super) fn required_annotation_keys() -> AnnotationKeys {
    AnnotationKeys { service_account: vec![ANNOTATION.into()], ..AnnotationKeys::default() }
}

/// The key that replaces the annotation in an identity file.
pub(crate) const IDENTITY_FILE_ANNOTATION_KEYS: &[IdentityFileKey] = &[IdentityFileKey {
    name: "googleServiceAccount",
    object: AnnotatedObject::ServiceAccount,
    annotation: ANNOTATION,
    expected: "a Google service account's e-mail such as cart@my-project.iam.gserviceaccount.com",
    is_valid: is_google_account,
}];

/// The reason why the agent cannot determine a pod's Google account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountError {
    /// The agent has not read the pod's ServiceAccount yet.
    ServiceAccountNotRead,
    /// The pod's ServiceAccount does not exist.
    ServiceAccountMissing,
    /// The annotation is not a service account's e-mail address. The agent must refuse the pod, and must not use the pod's own
    /// identity instead.
    MalformedAnnotation,
}

/// Returns the e-mail address of the Google service account to impersonate, or `None` if the pod uses its own identity.
///
/// # Errors
/// The annotations are not known yet, the ServiceAccount does not exist, or its annotation is malformed.
pub(super) fn resolve_account(facts: &PodAnnotations) -> Result<Option<Arc<str>>, AccountError> {
    let annotations = match &facts.service_account {
        RelatedAnnotations::NotRead => return Err(AccountError::ServiceAccountNotRead),
        RelatedAnnotations::Known(object) => {
            object.as_ref().as_ref().ok_or(AccountError::ServiceAccountMissing)?
        }
    };
    match annotations.find(ANNOTATION) {
        None => Ok(None),
        Some(LengthCheckedAnnotation::Whole(email)) if is_google_account(email) => Ok(Some(email.clone())),
        Some(LengthCheckedAnnotation::Whole(_) | LengthCheckedAnnotation::TooLong) => {
            Err(AccountError::MalformedAnnotation)
        }
    }
}

/// The maximum length of an e-mail address (RFC 5321, section 4.5.3.1.3, without the angle brackets).
const LONGEST_EMAIL: usize = 254;

/// The domain suffix of every Google service account. Source: Google Cloud documentation, "Types of service accounts". Before the
/// suffix, the domain of a user-made account has `PROJECT.iam`. The domain of a built-in account has `developer`, `appspot` or
/// `cloudservices`.
const GOOGLE_DOMAIN: &str = ".gserviceaccount.com";

/// True if `value` is the e-mail address of a Google service account.
///
/// The function allows only few characters, because the value becomes part of a URL path at the cloud and of a metadata listing.
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
            own_annotations: Annotations::default(),
            service_account,
            namespace: RelatedAnnotations::NotRead,
        }
    }

    fn account(value: &str) -> Result<Option<Arc<str>>, AccountError> {
        let annotations = [
            ("unrelated", LengthCheckedAnnotation::from("x")),
            (ANNOTATION, LengthCheckedAnnotation::from(value)),
        ];
        resolve_account(&told(RelatedAnnotations::of_object(annotations.into_iter().collect())))
    }

    #[test]
    fn no_annotation_is_the_workload_itself() {
        let unrelated = [("unrelated", LengthCheckedAnnotation::from("x"))].into_iter().collect();
        assert_eq!(resolve_account(&told(RelatedAnnotations::of_object(unrelated))), Ok(None));
        assert_eq!(resolve_account(&told(RelatedAnnotations::of_object(Annotations::default()))), Ok(None));
    }

    #[test]
    fn what_is_not_known_is_not_taken_for_no_account() {
        assert_eq!(
            resolve_account(&told(RelatedAnnotations::NotRead)),
            Err(AccountError::ServiceAccountNotRead)
        );
        assert_eq!(
            resolve_account(&told(RelatedAnnotations::of_missing_object())),
            Err(AccountError::ServiceAccountMissing)
        );
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
            assert_eq!(account(wrong), Err(AccountError::MalformedAnnotation), "{wrong:?}");
        }
    }

    /// A value that is too long is malformed, even if its beginning is a valid account. The agent stores no part of it.
    #[test]
    fn a_huge_value_is_a_refusal() {
        let account_of =
            |padding: usize| account(&format!("{}@p.iam.gserviceaccount.com", "x".repeat(padding)));
        assert!(account_of(200).is_ok());
        for padding in [254, seawall_core::annotations::MAX_VALUE_LENGTH, 100_000] {
            assert_eq!(account_of(padding), Err(AccountError::MalformedAnnotation), "{padding}");
        }
    }
}
