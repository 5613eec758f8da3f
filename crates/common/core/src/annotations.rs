//! The annotations of Kubernetes objects that concern a pod. Each cloud selects the keys that the agent keeps.
//!
//! The module stores keys and values; each cloud defines their meaning. `cluster` and `static` identity supply the annotations.
//! The types are small because the agent stores them for each pod of its node. Pods share the annotations of their ServiceAccount
//! or namespace. A pod without selected annotations uses no heap memory.

use std::borrow::Cow;
use std::sync::Arc;

/// The keys of the selected annotations, by the kind of object. The agent ignores all other annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationKeys {
    /// The selected keys on the pod.
    pub pod: Vec<AnnotationKey>,
    /// The selected keys on the pod's ServiceAccount.
    pub service_account: Vec<AnnotationKey>,
    /// The selected keys on the pod's namespace. If this list is empty, the agent does not read namespaces.
    pub namespace: Vec<AnnotationKey>,
}

/// The key of an annotation, and the name by which a cloud finds its value in [`Annotations`]. They differ if the operator chose
/// another key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnnotationKey {
    /// The key in the object's metadata.
    pub in_metadata: Cow<'static, str>,
    /// The key in [`Annotations`].
    pub stored_as: &'static str,
}

impl From<&'static str> for AnnotationKey {
    fn from(key: &'static str) -> Self {
        Self { in_metadata: key.into(), stored_as: key }
    }
}

/// The maximum length of a stored value in bytes. Kubernetes allows 256 KiB for all annotations of an object. Valid values are
/// shorter: an e-mail address has at most 254 bytes (RFC 5321), and an AWS role's ARN has at most 2048 bytes (IAM API reference,
/// `arnType`).
pub const MAX_VALUE_LENGTH: usize = 2048;

/// The value of an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LengthCheckedAnnotation {
    /// The complete value.
    Whole(Arc<str>),
    /// A value longer than [`MAX_VALUE_LENGTH`]. The agent stores no part of such a value, so no code can mistake a truncated
    /// value for a complete value.
    TooLong,
}

impl From<&str> for LengthCheckedAnnotation {
    fn from(text: &str) -> Self {
        if text.len() > MAX_VALUE_LENGTH { Self::TooLong } else { Self::Whole(text.into()) }
    }
}

/// The selected annotations of one object. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations(Option<Arc<AnnotationEntries>>);

/// The entries of [`Annotations`]. Because of this box, [`Annotations`] is a single thin pointer, which saves memory in each
/// pod's record.
#[derive(Debug, PartialEq, Eq)]
struct AnnotationEntries(Box<[(&'static str, LengthCheckedAnnotation)]>);

impl Annotations {
    /// Returns the value of an annotation, or `None` if the object does not have the annotation.
    pub fn find(&self, key: &str) -> Option<&LengthCheckedAnnotation> {
        let AnnotationEntries(all) = &**self.0.as_ref()?;
        all.iter().find(|(known, _)| *known == key).map(|(_, text)| text)
    }
}

impl FromIterator<(&'static str, LengthCheckedAnnotation)> for Annotations {
    fn from_iter<I: IntoIterator<Item = (&'static str, LengthCheckedAnnotation)>>(all: I) -> Self {
        let all: Box<[_]> = all.into_iter().collect();
        Self((!all.is_empty()).then(|| Arc::new(AnnotationEntries(all))))
    }
}

/// The annotations of a pod's ServiceAccount or namespace. The value is one machine word and cheap to clone. All pods of the
/// ServiceAccount or namespace share the annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelatedAnnotations {
    /// The agent has not read the object yet, so its annotations are unknown.
    NotRead,
    /// The object's selected annotations, or `None` if the object does not exist.
    Known(Arc<Option<Annotations>>),
}

impl RelatedAnnotations {
    /// Creates the value for an object that exists and has these annotations.
    pub fn of_object(annotations: Annotations) -> Self {
        Self::Known(Arc::new(Some(annotations)))
    }

    /// Creates the value for an object that does not exist.
    pub fn of_missing_object() -> Self {
        Self::Known(Arc::new(None))
    }
}

/// All selected annotations that concern a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAnnotations {
    /// The pod's own annotations.
    pub own_annotations: Annotations,
    /// The annotations of the pod's ServiceAccount.
    pub service_account: RelatedAnnotations,
    /// The annotations of the pod's namespace. If no cloud selects keys of namespaces, the value is known and empty.
    pub namespace: RelatedAnnotations,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_whole_or_not_at_all() {
        let longest = "x".repeat(MAX_VALUE_LENGTH);
        assert_eq!(
            LengthCheckedAnnotation::from(&*longest),
            LengthCheckedAnnotation::Whole(longest.as_str().into())
        );
        assert_eq!(LengthCheckedAnnotation::from(&*format!("{longest}x")), LengthCheckedAnnotation::TooLong);
    }

    #[test]
    fn an_annotation_is_found_by_its_whole_key() {
        let some: Annotations =
            [("a/b", LengthCheckedAnnotation::from("1")), ("a", LengthCheckedAnnotation::from(""))]
                .into_iter()
                .collect();
        assert_eq!(some.find("a/b"), Some(&LengthCheckedAnnotation::from("1")));
        assert_eq!(some.find("a"), Some(&LengthCheckedAnnotation::from("")), "empty is not none");
        assert_eq!(some.find("b"), None);
        assert_eq!(Annotations::default().find("a"), None);
    }

    /// The agent stores one [`PodAnnotations`] for each pod of its node, even for a pod without annotations.
    #[test]
    fn what_is_told_of_a_pod_is_three_words() {
        assert!(size_of::<PodAnnotations>() <= 3 * size_of::<usize>(), "{}", size_of::<PodAnnotations>());
        assert_eq!([].into_iter().collect::<Annotations>(), Annotations(None), "nothing on the heap");
    }
}
