//! Conditions that a response must meet to count as good: `--expect`, and `# expect=…` of a target.
//!
//! [`Expectation`] parses one condition, [`ExpectationSet`] holds all conditions of a target. [`check`] tests a response while it
//! arrives: the transport feeds it, [`crate::request_lifecycle`] asks it for the verdict. This module knows no connection and no
//! statistics. A response whose status is outside 200 to 399 is an error already, so no condition is tested on it.

pub(crate) mod check;
pub(crate) mod grpc;
mod parse;

use std::ops::RangeInclusive;
use std::sync::Arc;

use memchr::memmem::Finder;
use regex_lite::Regex;
use serde_json::Value;

use crate::request_failure_reason::ExpectationSubject;

pub use self::parse::ExpectationError;

/// One condition, such as `body~ok`. The grammar is that of [`GRAMMAR`].
#[derive(Debug, Clone)]
pub struct Expectation {
    /// The condition as the user wrote it.
    source: String,
    condition: Condition,
    /// The error text for a response that fails the condition. The text is bounded and contains no part of the response.
    failure: String,
}

/// The grammar of a condition, as help texts and errors show it.
pub const GRAMMAR: &str = "status=200,204 or status=2xx; header:NAME=VALUE; header:NAME or body, followed by ~ (contains), !~ (does not contain) or \
                           =~ (matches a regular expression); json:/POINTER=VALUE; length with =, <, <=, > or >=";

#[derive(Debug, Clone)]
enum Condition {
    Status(Vec<RangeInclusive<u16>>),
    Header { name: String, test: TextTest },
    Body(TextTest),
    Json { pointer: String, value: Value, is_equal: bool },
    Length(LengthTest),
}

#[derive(Debug, Clone)]
enum TextTest {
    Equals(Vec<u8>),
    Contains { text: Box<Finder<'static>>, is_wanted: bool },
    Matches(Regex),
}

/// A range of body lengths; both ends are included.
#[derive(Debug, Clone)]
struct LengthTest(RangeInclusive<u64>);

impl PartialEq for Expectation {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expectation {}

impl Expectation {
    /// Returns the condition as the user wrote it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the error text for a response that fails the condition, such as `body lacks "ok"`.
    #[must_use]
    pub fn failure_message(&self) -> &str {
        &self.failure
    }

    fn subject(&self) -> ExpectationSubject {
        match self.condition {
            Condition::Status(_) => ExpectationSubject::Status,
            Condition::Header { .. } => ExpectationSubject::Header,
            Condition::Body(_) => ExpectationSubject::Body,
            Condition::Json { .. } => ExpectationSubject::Json,
            Condition::Length(_) => ExpectationSubject::Length,
        }
    }

    /// True if the condition needs the whole body.
    fn needs_body(&self) -> bool {
        matches!(self.condition, Condition::Body(TextTest::Matches(_)) | Condition::Json { .. })
    }
}

impl TextTest {
    /// True if a value equals, contains or matches the text.
    fn finds(&self, value: &[u8]) -> bool {
        match self {
            Self::Equals(text) => text == value,
            Self::Contains { text, .. } => text.find(value).is_some(),
            Self::Matches(regex) => regex.is_match(&String::from_utf8_lossy(value)),
        }
    }

    /// True if the condition is met, given that the text was or was not found.
    fn is_met(&self, is_found: bool) -> bool {
        match self {
            Self::Contains { is_wanted, .. } => is_found == *is_wanted,
            Self::Equals(_) | Self::Matches(_) => is_found,
        }
    }
}

/// All conditions of a target, in the order in which they are tested. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectationSet(Vec<Expectation>);

impl ExpectationSet {
    /// Makes a set of conditions; `None` if there are none.
    #[must_use]
    pub fn new(conditions: Vec<Expectation>) -> Option<Arc<Self>> {
        (!conditions.is_empty()).then(|| Arc::new(Self(conditions)))
    }

    /// Returns the conditions of `set` followed by `more`.
    #[must_use]
    pub fn with(set: Option<&Arc<Self>>, more: Expectation) -> Arc<Self> {
        let mut conditions = set.map_or_else(Vec::new, |set| set.0.clone());
        conditions.push(more);
        Arc::new(Self(conditions))
    }

    /// Returns the conditions in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Expectation> {
        self.0.iter()
    }

    fn needs_body(&self) -> bool {
        self.iter().any(Expectation::needs_body)
    }
}
