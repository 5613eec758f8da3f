//! What Kubernetes objects say about a pod in their annotations, as far as somebody has asked to know.
//!
//! Keys and texts, without a meaning: what they mean is each cloud's to say. `cluster` and `static` identity tell them, the
//! agent's clouds name the keys and read them. Small, because a node keeps them for each of its pods: what is told of a
//! ServiceAccount or namespace is shared by its pods, and a pod of which nothing is told has nothing on the heap.

use std::sync::Arc;

/// The annotations that somebody wants to know, by the kind of object that carries them. All others are let pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnotationKeys {
    /// Keys on the pod.
    pub pod: &'static [&'static str],
    /// Keys on the pod's ServiceAccount.
    pub service_account: &'static [&'static str],
    /// Keys on the pod's namespace. Without any, nobody asks about namespaces.
    pub namespace: &'static [&'static str],
}

/// Longest text that is kept, in bytes; Kubernetes takes 256 KiB of an object's annotations. Far more than what is meant for
/// a cloud takes: an e-mail 254 (RFC 5321), an AWS role's ARN 2048 (IAM API reference, `arnType`).
pub const MAX_VALUE_LENGTH: usize = 2048;

/// An annotation's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotationValue {
    /// All of it.
    Whole(Arc<str>),
    /// It is longer than [`MAX_VALUE_LENGTH`]. Nothing of it is kept, so that nobody can take its beginning for the whole.
    TooLong,
}

impl From<&str> for AnnotationValue {
    fn from(text: &str) -> Self {
        if text.len() > MAX_VALUE_LENGTH { Self::TooLong } else { Self::Whole(text.into()) }
    }
}

/// The selected annotations of one object. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations(Option<Arc<AnnotationEntries>>);

/// Behind one thin pointer: there is one of those in each pod's record.
#[derive(Debug, PartialEq, Eq)]
struct AnnotationEntries(Box<[(&'static str, AnnotationValue)]>);

impl Annotations {
    /// What stands under a key; nothing if the object has no such annotation.
    pub fn find(&self, key: &str) -> Option<&AnnotationValue> {
        let AnnotationEntries(all) = &**self.0.as_ref()?;
        all.iter().find(|(known, _)| *known == key).map(|(_, text)| text)
    }
}

impl FromIterator<(&'static str, AnnotationValue)> for Annotations {
    fn from_iter<I: IntoIterator<Item = (&'static str, AnnotationValue)>>(all: I) -> Self {
        let all: Box<[_]> = all.into_iter().collect();
        Self((!all.is_empty()).then(|| Arc::new(AnnotationEntries(all))))
    }
}

/// An object that is not the pod itself and is read beside it. One word, and cheap to clone: what is known of such an object is
/// shared by its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelatedAnnotations {
    /// Not read yet: the answer is "not known yet", not "none".
    NotRead,
    /// What it says; `None`: there is no such object.
    Known(Arc<Option<Annotations>>),
}

impl RelatedAnnotations {
    /// The object is there and says this.
    pub fn read(annotations: Annotations) -> Self {
        Self::Known(Arc::new(Some(annotations)))
    }

    /// There is no such object.
    pub fn missing() -> Self {
        Self::Known(Arc::new(None))
    }
}

/// All that is told of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAnnotations {
    /// The pod's own annotations.
    pub pod: Annotations,
    /// Its ServiceAccount's.
    pub service_account: RelatedAnnotations,
    /// Its namespace's. Where nothing is asked of namespaces, it is known that nothing of it counts.
    pub namespace: RelatedAnnotations,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_whole_or_not_at_all() {
        let longest = "x".repeat(MAX_VALUE_LENGTH);
        assert_eq!(AnnotationValue::from(&*longest), AnnotationValue::Whole(longest.as_str().into()));
        assert_eq!(AnnotationValue::from(&*format!("{longest}x")), AnnotationValue::TooLong);
    }

    #[test]
    fn an_annotation_is_found_by_its_whole_key() {
        let some: Annotations =
            [("a/b", AnnotationValue::from("1")), ("a", AnnotationValue::from(""))].into_iter().collect();
        assert_eq!(some.find("a/b"), Some(&AnnotationValue::from("1")));
        assert_eq!(some.find("a"), Some(&AnnotationValue::from("")), "empty is not none");
        assert_eq!(some.find("b"), None);
        assert_eq!(Annotations::default().find("a"), None);
    }

    /// There is one for each pod of the node, whether or not anything is told.
    #[test]
    fn what_is_told_of_a_pod_is_three_words() {
        assert!(size_of::<PodAnnotations>() <= 3 * size_of::<usize>(), "{}", size_of::<PodAnnotations>());
        assert_eq!([].into_iter().collect::<Annotations>(), Annotations(None), "nothing on the heap");
    }
}
