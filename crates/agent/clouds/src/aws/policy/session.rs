//! The name and the tags of a pod's session at AWS. CloudTrail shows the name and the tags, and policies can require them.
//!
//! The name and the tags are part of the key under which the agent caches credentials. By default they contain only the
//! ServiceAccount, so all pods of a ServiceAccount share one session. If they contain the name or UID of a pod, each pod has its
//! own session.

use std::sync::Arc;

use seawall_broker::aws::{NameError, SessionName, SessionTags};
use seawall_core::Pod;

/// The maximum length of the prefix of session names. The limit is half of the 64 characters that a session name can have.
const LONGEST_PREFIX: usize = 32;

/// Returns a valid session name. As in KIAM, each invalid character becomes `-`, and a long name is truncated.
pub(in crate::aws) fn sanitize_session_name(prefix: &str, wanted: &str) -> SessionName {
    SessionName::sanitized(&format!("{prefix}{wanted}"))
}

/// Returns the default session name `namespace.account`. A namespace contains no dot, so the first dot always ends the namespace.
pub(in crate::aws) fn default_session_name(prefix: &str, pod: &Pod) -> SessionName {
    let account = &pod.service_account;
    sanitize_session_name(prefix, &format!("{}.{}", account.namespace, account.name))
}

/// True if a session's name can begin with this text.
pub(in crate::aws) fn is_session_name_prefix(text: &str) -> bool {
    text.len() <= LONGEST_PREFIX && SessionName::parse(&format!("{text}--")).is_ok()
}

/// Returns the tags of a pod's session.
///
/// # Errors
/// A name of the pod is not a valid tag value.
pub(in crate::aws) fn build_session_tags(of: &[PodTag], pod: &Pod) -> Result<SessionTags, NameError> {
    let tag = |tag: &PodTag| seawall_broker::aws::SessionTag {
        key: tag.key().into(),
        value: tag.value(pod),
        is_transitive: false,
    };
    SessionTags::new(of.iter().map(tag).collect())
}

/// True if the text can be the audience of a token. The agent sends the audience to the API server without escapes.
pub(in crate::aws) fn is_valid_audience(text: &str) -> bool {
    seawall_core::name_syntax::needs_no_escape(text, 512)
}

/// A property of a pod that can become a tag of the pod's session.
///
/// EKS Pod Identity uses the same keys (EKS user guide, "Grant Pods access to AWS resources based on tags").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::aws) enum PodTag {
    Namespace,
    ServiceAccount,
    PodName,
    PodUid,
}

impl PodTag {
    /// All tags.
    pub(in crate::aws) const ALL: [Self; 4] =
        [Self::Namespace, Self::ServiceAccount, Self::PodName, Self::PodUid];

    /// Returns the tag's key at AWS, which is also its name in the configuration.
    pub(in crate::aws) fn key(self) -> &'static str {
        match self {
            Self::Namespace => "kubernetes-namespace",
            Self::ServiceAccount => "kubernetes-service-account",
            Self::PodName => "kubernetes-pod-name",
            Self::PodUid => "kubernetes-pod-uid",
        }
    }

    /// Returns the tag's value for a pod. AWS allows 256 characters (STS API reference, `tagValueType`); Kubernetes names have at
    /// most 253.
    pub(in crate::aws) fn value(self, pod: &Pod) -> Arc<str> {
        let value = match self {
            Self::Namespace => &pod.service_account.namespace,
            Self::ServiceAccount => &pod.service_account.name,
            Self::PodName => &pod.name,
            Self::PodUid => &pod.uid.0,
        };
        value.clone()
    }
}

#[cfg(test)]
mod tests {
    use seawall_core::{PodUid, ServiceAccount};

    use super::*;

    fn pod() -> Pod {
        let service_account = ServiceAccount { namespace: "shop".into(), name: "cart.v2".into() };
        Pod { uid: PodUid("u1".into()), name: "cart-0".into(), service_account }
    }

    #[test]
    fn a_session_is_called_by_its_pods_account_unless_somebody_says() {
        assert_eq!(sanitize_session_name("kiam-", "my session").as_str(), "kiam-my-session");
        assert_eq!(default_session_name("", &pod()).as_str(), "shop.cart.v2");
        assert!(
            is_session_name_prefix("")
                && is_session_name_prefix("kiam-")
                && !is_session_name_prefix("a b")
                && !is_session_name_prefix(&"x".repeat(33))
        );
    }

    #[test]
    fn tags_say_who_the_pod_is() {
        let tags = PodTag::ALL.map(|tag| (tag.key(), tag.value(&pod())));
        let values = tags.each_ref().map(|(_, value)| &**value);
        assert_eq!(values, ["shop", "cart.v2", "cart-0", "u1"]);
        assert!(build_session_tags(&PodTag::ALL, &pod()).is_ok());
    }
}
