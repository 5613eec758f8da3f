//! What a pod's session is called at AWS, and what it is tagged with: how CloudTrail shows who did something, and what policies may
//! ask for.
//!
//! Both are among what credentials are held under. By default they say of a pod what all pods of its ServiceAccount have in common,
//! so that these share one session; with a pod's own name in them each has one of its own.

use std::sync::Arc;

use seawall_core::Pod;

/// Longest name of a session, in characters (STS API reference, `roleSessionNameType`).
const LONGEST_NAME: usize = 64;

/// The name of a session, made fit: what AWS does not take becomes `-`, and what is too long is cut, as KIAM does.
pub(super) fn name(prefix: &str, wanted: &str) -> Arc<str> {
    let fit = |letter: char| if is_letter(letter) { letter } else { '-' };
    let mut name: String = prefix.chars().chain(wanted.chars()).map(fit).take(LONGEST_NAME).collect();
    // The least is two.
    while name.len() < 2 {
        name.push('-');
    }
    name.into()
}

/// What a session is called where nobody says: a namespace holds no point, so where it ends is clear.
pub(super) fn default_name(prefix: &str, pod: &Pod) -> Arc<str> {
    let account = &pod.service_account;
    name(prefix, &format!("{}.{}", account.namespace, account.name))
}

/// Whether a session's name may begin so: half of its room is left for what follows.
pub(super) fn is_prefix(text: &str) -> bool {
    text.len() <= LONGEST_NAME / 2 && text.chars().all(is_letter)
}

fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_+=,.@-".contains(letter)
}

/// Whether this may be an external id (STS API reference, `externalIdType`).
pub(super) fn is_external_id(text: &str) -> bool {
    (2..=1224).contains(&text.len()) && text.chars().all(|c| is_letter(c) || c == ':' || c == '/')
}

/// Whether this may be whom a token is for: it is sent to the API server as it stands.
pub(super) fn is_audience(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
    (1..=512).contains(&text.len()) && plain
}

/// What of a pod a session may be tagged with. The keys are those of EKS Pod Identity (EKS user guide, "Grant Pods access to AWS
/// resources based on tags").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Namespace,
    ServiceAccount,
    PodName,
    PodUid,
}

impl Tag {
    /// All there are.
    pub(super) const ALL: [Self; 4] = [Self::Namespace, Self::ServiceAccount, Self::PodName, Self::PodUid];

    /// Its key at AWS, and in the configuration.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Namespace => "kubernetes-namespace",
            Self::ServiceAccount => "kubernetes-service-account",
            Self::PodName => "kubernetes-pod-name",
            Self::PodUid => "kubernetes-pod-uid",
        }
    }

    /// What it says of a pod, at most 256 characters (STS API reference, `tagValueType`): Kubernetes' names have 253.
    pub(super) fn value(self, pod: &Pod) -> Arc<str> {
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
    fn a_session_name_is_always_one_that_aws_takes() {
        for (prefix, wanted, name_of) in [
            ("", "cart", "cart"),
            ("kiam-", "cart", "kiam-cart"),
            ("", "a b/c:d\né", "a-b-c-d--"),
            ("", "", "--"),
            ("", "x", "x-"),
            ("", "A+b=c,d.e@f_g-9", "A+b=c,d.e@f_g-9"),
        ] {
            assert_eq!(&*name(prefix, wanted), name_of);
        }
        assert_eq!(name("kiam-", &"n".repeat(100)).len(), 64);
        assert_eq!(&*default_name("", &pod()), "shop.cart.v2");
    }

    #[test]
    fn an_external_id_is_what_aws_takes() {
        for good in ["ab", "123456789012:abc/d@e", &"x".repeat(1224)] {
            assert!(is_external_id(good), "{good}");
        }
        for bad in ["", "a", "a b", "a\n", "é1", &"x".repeat(1225)] {
            assert!(!is_external_id(bad), "{bad:?}");
        }
    }

    #[test]
    fn tags_say_who_the_pod_is() {
        let tags = Tag::ALL.map(|tag| (tag.key(), tag.value(&pod())));
        let values = tags.each_ref().map(|(_, value)| &**value);
        assert_eq!(values, ["shop", "cart.v2", "cart-0", "u1"]);
        assert!(tags.iter().all(|(key, _)| key.starts_with("kubernetes-") && key.len() <= 128));
    }
}
