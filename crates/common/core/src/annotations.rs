//! The annotations of Kubernetes objects that concern a pod, as far as a cloud has selected their keys.
//!
//! The module holds keys and texts; each cloud defines their meaning. `cluster` and `static` identity supply the annotations; the
//! agent's clouds select the keys and read the texts. The types are small because a node keeps them for each of its pods. Pods share
//! the annotations of their ServiceAccount or namespace, and a pod without selected annotations has nothing on the heap.

use std::sync::Arc;

/// The keys of the selected annotations, by the kind of object that carries them. All other annotations are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnotationKeys {
    /// Keys on the pod.
    pub pod: &'static [&'static str],
    /// Keys on the pod's ServiceAccount.
    pub service_account: &'static [&'static str],
    /// Keys on the pod's namespace. If it is empty, namespaces are not read.
    pub namespace: &'static [&'static str],
}

/// Longest text that is kept, in bytes; Kubernetes allows 256 KiB for an object's annotations. It is far more than a cloud's values
/// take: an e-mail 254 (RFC 5321), an AWS role's ARN 2048 (IAM API reference, `arnType`).
pub const MAX_VALUE_LENGTH: usize = 2048;

/// An annotation's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotationValue {
    /// The whole text.
    Whole(Arc<str>),
    /// The text is longer than [`MAX_VALUE_LENGTH`]. No part of it is kept, so that its beginning cannot pass for the whole.
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

/// The entries of [`Annotations`]. They are behind one thin pointer because each pod's record holds one.
#[derive(Debug, PartialEq, Eq)]
struct AnnotationEntries(Box<[(&'static str, AnnotationValue)]>);

impl Annotations {
    /// Returns the value of an annotation; `None` if the object does not have the annotation.
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

/// The annotations of a pod's ServiceAccount or namespace. The type is one word and cheap to clone: an object's pods share what is
/// known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelatedAnnotations {
    /// Not read yet: the answer is "not known yet", not "none".
    NotRead,
    /// The object's selected annotations; `None` if the object does not exist.
    Known(Arc<Option<Annotations>>),
}

impl RelatedAnnotations {
    /// Creates the value for an object that exists and has these annotations.
    pub fn read(annotations: Annotations) -> Self {
        Self::Known(Arc::new(Some(annotations)))
    }

    /// Creates the value for an object that does not exist.
    pub fn missing() -> Self {
        Self::Known(Arc::new(None))
    }
}

/// All selected annotations that concern a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAnnotations {
    /// The pod's own annotations.
    pub pod: Annotations,
    /// Its ServiceAccount's.
    pub service_account: RelatedAnnotations,
    /// Its namespace's. If no keys on namespaces are selected, it is known and empty.
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

    /// A node holds one for each of its pods, with or without annotations.
    #[test]
    fn what_is_told_of_a_pod_is_three_words() {
        assert!(size_of::<PodAnnotations>() <= 3 * size_of::<usize>(), "{}", size_of::<PodAnnotations>());
        assert_eq!([].into_iter().collect::<Annotations>(), Annotations(None), "nothing on the heap");
    }
}
