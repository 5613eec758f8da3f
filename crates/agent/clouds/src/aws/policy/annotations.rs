//! The annotations that name a pod's role, and the keys that replace the annotations in an identity file.
//!
//! The agent uses the annotations of KIAM, kube2iam and the EKS webhook, so manifests for these projects need no change. `policy`
//! and `namespace` interpret the annotations.
//!
//! Two annotations of the EKS webhook have no effect: `eks.amazonaws.com/token-expiration` and `/sts-regional-endpoints`. They
//! configure a token and an endpoint inside the pod. The agent instead requests a token for the pod, with the lifetime
//! `identity.podTokenLifetime`, and calls the endpoint `aws.stsUrl`.

use seawall_broker::aws::ExternalId;
use seawall_core::annotations::{AnnotationKey, AnnotationKeys};
use seawall_core::attestation::{AnnotatedObject, IdentityFileKey};

use super::{role_arn, session};

/// The key of the pod annotation that names the role that the pod requests. Source: uswitch/kiam and jtblin/kube2iam, README.
pub(in crate::aws) const ROLE_ANNOTATION: &str = "iam.amazonaws.com/role";

/// The key of the pod annotation that names the pod's session at AWS. Source: uswitch/kiam, README.
pub(in crate::aws) const SESSION_NAME_ANNOTATION: &str = "iam.amazonaws.com/session-name";

/// The key of the pod annotation for the external ID that a role's trust policy can require. Source: uswitch/kiam, README.
pub(in crate::aws) const EXTERNAL_ID_ANNOTATION: &str = "iam.amazonaws.com/external-id";

/// The key of the namespace annotation that permits roles to the namespace's pods. The value is a regular expression. Source:
/// uswitch/kiam, README.
pub(in crate::aws) const PERMITTED_ROLES_ANNOTATION: &str = "iam.amazonaws.com/permitted";

/// The key of the namespace annotation that permits roles to the namespace's pods. The value is a JSON list of roles. Source:
/// jtblin/kube2iam, README.
pub(in crate::aws) const ALLOWED_ROLES_ANNOTATION: &str = "iam.amazonaws.com/allowed-roles";

/// The prefix of the next two keys, unless `aws.irsaAnnotationPrefix` is another. The webhook's flag for it is `--annotation-prefix`.
/// Source: aws/amazon-eks-pod-identity-webhook, README.
pub(in crate::aws) const DEFAULT_IRSA_ANNOTATION_PREFIX: &str = "eks.amazonaws.com";

/// The key of the ServiceAccount annotation that names the role of the ServiceAccount's pods, with the default prefix. Source:
/// aws/amazon-eks-pod-identity-webhook, README.
pub(crate) const ROLE_ARN_ANNOTATION: &str = "eks.amazonaws.com/role-arn";

/// The key of the ServiceAccount annotation for the audience of the token that assumes the role, with the default prefix. Source:
/// aws/amazon-eks-pod-identity-webhook, README.
pub(in crate::aws) const AUDIENCE_ANNOTATION: &str = "eks.amazonaws.com/audience";

const POD: [&str; 3] = [ROLE_ANNOTATION, SESSION_NAME_ANNOTATION, EXTERNAL_ID_ANNOTATION];
const SERVICE_ACCOUNT: [&str; 2] = [ROLE_ARN_ANNOTATION, AUDIENCE_ANNOTATION];

/// Returns the annotation keys that the agent must read for the enabled projects.
///
/// KIAM and kube2iam need annotations of pods and namespaces. IRSA needs annotations of ServiceAccounts, with this prefix.
pub(in crate::aws) fn required_annotation_keys(
    kiam: bool,
    kube2iam: bool,
    irsa_prefix: Option<&str>,
) -> AnnotationKeys {
    let namespace = [(kiam, PERMITTED_ROLES_ANNOTATION), (kube2iam, ALLOWED_ROLES_ANNOTATION)];
    AnnotationKeys {
        pod: if kiam || kube2iam { POD.map(AnnotationKey::from).to_vec() } else { Vec::new() },
        service_account: irsa_prefix
            .map_or_else(Vec::new, |prefix| SERVICE_ACCOUNT.map(|key| with_prefix(prefix, key)).to_vec()),
        namespace: namespace
            .into_iter()
            .filter(|(is_needed, _)| *is_needed)
            .map(|(_, key)| key.into())
            .collect(),
    }
}

/// Returns the key that has this prefix on objects and is stored as `key`.
fn with_prefix(prefix: &str, key: &'static str) -> AnnotationKey {
    let name = key.rsplit('/').next().unwrap_or(key);
    AnnotationKey { in_metadata: format!("{prefix}/{name}").into(), stored_as: key }
}

const fn key(
    name: &'static str,
    of: AnnotatedObject,
    annotation: &'static str,
    expected: &'static str,
    is_good: fn(&str) -> bool,
) -> IdentityFileKey {
    IdentityFileKey { name, object: of, annotation, expected, is_valid: is_good }
}

/// The keys that replace the annotations in an identity file.
pub(crate) const IDENTITY_FILE_ANNOTATION_KEYS: &[IdentityFileKey] = &[
    key("awsRole", AnnotatedObject::Pod, ROLE_ANNOTATION, "the name or ARN of an AWS role", |text| {
        !text.is_empty()
    }),
    key("awsSessionName", AnnotatedObject::Pod, SESSION_NAME_ANNOTATION, "the name of a session", |text| {
        !text.is_empty()
    }),
    key("awsExternalId", AnnotatedObject::Pod, EXTERNAL_ID_ANNOTATION, "an external id", |text| {
        ExternalId::parse(text).is_ok()
    }),
    key(
        "awsPermitted",
        AnnotatedObject::Namespace,
        PERMITTED_ROLES_ANNOTATION,
        "a regular expression",
        |text| !text.is_empty(),
    ),
    key(
        "awsAllowedRoles",
        AnnotatedObject::Namespace,
        ALLOWED_ROLES_ANNOTATION,
        "a JSON list of roles",
        |text| text.starts_with('['),
    ),
    key(
        "awsRoleArn",
        AnnotatedObject::ServiceAccount,
        ROLE_ARN_ANNOTATION,
        "the ARN of an AWS role",
        |text| role_arn::NamedRole::new(text).is_some(),
    ),
    key(
        "awsAudience",
        AnnotatedObject::ServiceAccount,
        AUDIENCE_ANNOTATION,
        "a token audience",
        session::is_valid_audience,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_asked_about_only_where_they_decide() {
        let irsa = Some(DEFAULT_IRSA_ANNOTATION_PREFIX);
        assert_eq!(required_annotation_keys(false, false, irsa).namespace, []);
        assert_eq!(
            required_annotation_keys(true, false, None).namespace,
            [PERMITTED_ROLES_ANNOTATION.into()]
        );
        assert_eq!(required_annotation_keys(false, true, irsa).namespace, [ALLOWED_ROLES_ANNOTATION.into()]);
        assert_eq!(required_annotation_keys(true, true, irsa).namespace.len(), 2);
        assert_eq!(required_annotation_keys(false, false, None), AnnotationKeys::default());
    }

    #[test]
    fn the_role_of_a_service_account_can_be_at_a_key_that_the_webhook_ignores() {
        let own = required_annotation_keys(false, false, Some(DEFAULT_IRSA_ANNOTATION_PREFIX));
        assert_eq!(own.service_account, SERVICE_ACCOUNT.map(AnnotationKey::from));
        let other = required_annotation_keys(false, false, Some("seawall.example")).service_account;
        let keys: Vec<_> = other.iter().map(|key| (&*key.in_metadata, key.stored_as)).collect();
        assert_eq!(
            keys,
            [
                ("seawall.example/role-arn", ROLE_ARN_ANNOTATION),
                ("seawall.example/audience", AUDIENCE_ANNOTATION)
            ]
        );
    }
}
